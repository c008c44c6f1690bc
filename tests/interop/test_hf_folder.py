"""Hugging Face folders as a user has them: texts in, texts out, and what is refused in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

import headwise
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf

logging.disable_progress_bar()
PROMPTS = ["the cat", "a dog and", "cats"]
NAMES = {
    "gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    "llama": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
}


def build_hf_model(name: str) -> Any:
    torch.manual_seed(5)
    if name == "gpt2":
        sizes = {"vocab_size": 281, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
        return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=280, eos_token_id=280, initializer_range=0.3))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=420, num_key_value_heads=2, initializer_range=0.3))


@pytest.fixture(scope="module")
def folders(engines: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {}
    for name, tokens in NAMES.items():
        folder = tmp_path_factory.mktemp("folders") / name
        build_hf_model(name).save_pretrained(folder)
        (folder / "tokenizer.json").write_text(json.dumps(engines[name]))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        paths[name] = folder
    return paths


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["gpt2"], tmp_path / "copy"))


def generate_with_transformers(folder: Path, beams: int = 1) -> list[str]:
    """What `transformers` itself makes of the prompts."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    outputs = []
    for prompt in PROMPTS:
        batch = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        ids = model.generate(
            **batch, num_beams=beams, max_new_tokens=8, do_sample=False, length_penalty=0.0, pad_token_id=0
        )
        outputs.append(tokenizer.decode(ids[0], skip_special_tokens=True))
    return outputs


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_continued_as_by_transformers(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    loaded = headwise.load(folders[name])
    settings = {"max_ratio": 0, "max_extra": 8, "length_penalty": 0}
    ours = [hypotheses[0].text for hypotheses in loaded.generate(PROMPTS, **settings)]
    assert ours == generate_with_transformers(folders[name]) and len(set(ours)) == len(PROMPTS)
    to_hf(loaded, tmp_path / "out")
    assert generate_with_transformers(tmp_path / "out") == ours
    for file in ("model.safetensors", "tokenizer.json"):
        before, after = folders[name] / file, tmp_path / "out" / file
        assert json.loads(before.read_bytes()) == json.loads(after.read_bytes()) if file.endswith("json") else True
    old, new = load_file(folders[name] / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert old.keys() == new.keys() and all(torch.equal(old[key], new[key]) for key in old)


def test_an_imported_run_can_be_used_scored_inspected_and_exported(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out, text = tmp_path / "run", tmp_path / "out", tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 20)
    main(["import", str(folders["llama"]), str(run)])
    assert "headwise generate" in capsys.readouterr().err
    scores = []
    for model in (run, folders["llama"]):
        main(["generate", str(model), "the cat", "--temperature", "0", "--length", "8"])
        main(["evaluate", str(model), "--data", str(text), "--json"])
        scores.append(capsys.readouterr().out.replace(str(model), ""))
    assert scores[0] == scores[1] and generate_with_transformers(folders["llama"])[0] in scores[0]
    main(["inspect", str(folders["llama"]), "the cat", "--out", str(tmp_path / "maps.html")])
    main(["export", str(run), str(out), "--to", "hf"])
    assert generate_with_transformers(out, beams=2) == generate_with_transformers(folders["llama"], beams=2)


@pytest.mark.parametrize("name", NAMES)
def test_words_are_completed(name: str, folders: dict[str, Path]) -> None:
    completions = headwise.load(folders[name]).complete("the c")
    assert completions and all(completion.word.startswith("c") for completion in completions)


def test_perplexity_is_that_of_transformers(folders: dict[str, Path]) -> None:
    loaded, hf_model = from_hf(folders["llama"]), AutoModelForCausalLM.from_pretrained(folders["llama"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folders["llama"])
    ids = torch.tensor([[*tokenizer("the dog sat on a mat").input_ids, 2]])
    expected = hf_model(ids, labels=ids).loss.exp().item()
    assert loaded.evaluate([("", "the dog sat on a mat")]).scores[0].value == pytest.approx(expected, rel=1e-4)


def test_a_trained_model_is_exported_with_its_tokeniser(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran\n" * 30)
    experiment = {
        "name": "born",
        "task": {"kind": "language-model", "context": 16},
        "data": {"train": str(text), "valid": str(text), "format": "lines"},
        "tokeniser": {"kind": "bpe", "size": 280},
        "model": {
            "kind": "gpt2",
            "width": 32,
            "heads": 2,
            "depth": 1,
            "positions": {"kind": "learned", "max_length": 32},
        },
        "train": {"steps": 30, "batch_size": 8},
    }
    run, _ = headwise.train_experiment(parse_experiment(experiment), tmp_path)
    loaded = headwise.load(run.path)
    to_hf(loaded, tmp_path / "out")
    ours = [hypotheses[0].text for hypotheses in loaded.generate(PROMPTS, max_ratio=0, max_extra=8)]
    assert generate_with_transformers(tmp_path / "out") == ours
    back = from_hf(tmp_path / "out")
    assert [hypotheses[0].text for hypotheses in back.generate(PROMPTS, max_ratio=0, max_extra=8)] == ours


def test_what_no_architecture_can_express_is_exported_with_our_own_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran\n" * 30)
    experiment = {
        "name": "born",
        "task": {"kind": "language-model", "context": 16},
        "data": {"train": str(text), "valid": str(text), "format": "lines"},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "gpt2", "width": 32, "heads": 2, "depth": 1, "positions": "alibi"},
        "train": {"steps": 3, "batch_size": 8},
    }
    run, _ = headwise.train_experiment(parse_experiment(experiment), tmp_path / "runs")
    main(["export", str(run.path), str(tmp_path / "out"), "--to", "hf"])
    assert "transformers cannot load: positions: config.json of gpt2" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "headwise"
    ours, back = headwise.load(run.path), headwise.from_hf(tmp_path / "out")
    ids = torch.tensor([ours.tokenisers.source.encode("the cat ran")])
    assert torch.equal(ours.model(ids), back.model(ids))
    main(["import", str(tmp_path / "out"), str(tmp_path / "again")])
    outputs = []
    for folder in (run.path, tmp_path / "out", tmp_path / "again"):
        main(["generate", str(folder), "the cat", "--temperature", "0", "--length", "8"])
        outputs.append(capsys.readouterr().out.splitlines()[-1])
    assert len(set(outputs)) == 1
    data = json.loads((tmp_path / "out" / "config.json").read_text())
    data["experiment"]["model"]["width"] = 10**8
    (tmp_path / "out" / "config.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match="larger model than the checkpoint"):
        headwise.from_hf(tmp_path / "out")


@pytest.mark.parametrize("name", NAMES)
def test_a_fine_tuned_import_is_exported_with_equal_logits(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    loaded = from_hf(folders[name])
    model, rows = loaded.model, loaded.tokenisers.target.vocabulary_map  # type: ignore[attr-defined]
    ids = torch.tensor([loaded.tokenisers.target.encode("cats sat, and 12 dogs ran to a mat")])
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.03, weight_decay=0.1)
    for _ in range(3):
        loss = model(ids[:, :-1], labels=ids[:, 1:])
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
    to_hf(loaded, tmp_path / "out")
    hf_model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.inference_mode():
        expected = hf_model(torch.tensor(rows.hf_ids)[ids]).logits
        assert (model(ids)[..., list(rows.headwise_ids)] - expected).abs().max() < 1e-4


def test_shards_are_read_as_one(copy: Path) -> None:
    expected = from_hf(copy).model(torch.arange(4, 12)[None])
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    halves = {"one.safetensors": list(tensors)[::2], "two.safetensors": list(tensors)[1::2]}
    for file, names in halves.items():
        save_file({name: tensors[name] for name in names}, copy / file)
    where = {name: file for file, names in halves.items() for name in names}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    assert torch.equal(from_hf(copy).model(torch.arange(4, 12)[None]), expected)
    where["transformer.wte.weight"] = "../elsewhere.safetensors"
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    with pytest.raises(UserError, match="of this folder"):
        from_hf(copy)


def test_the_file_that_transformers_reads_is_read(copy: Path) -> None:
    """One file before shards; of a tensor in two shards it reads the last, not the one that the index says."""
    tensors = load_file(copy / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, copy / "one.safetensors")
    index = copy / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, "one.safetensors")}))
    loaded = from_hf(copy)
    rows = loaded.tokenisers.target.vocabulary_map  # type: ignore[attr-defined]
    assert torch.equal(
        loaded.model.decoder.embed.table.weight[list(rows.headwise_ids)],
        AutoModelForCausalLM.from_pretrained(copy).transformer.wte.weight,
    )
    (copy / "model.safetensors").unlink()
    save_file({"transformer.ln_f.bias": torch.ones(32)}, copy / "two.safetensors")
    where = {**dict.fromkeys(tensors, "one.safetensors"), "transformer.ln_f.bias": "two.safetensors"}
    index.write_text(json.dumps({"weight_map": where}))
    with pytest.raises(UserError, match=r"does not list transformer\.ln_f\.bias of one\.safetensors"):
        from_hf(copy)


def test_a_config_that_names_another_file_of_weights_is_refused(copy: Path) -> None:
    """transformers reads the weights from there."""
    config = json.loads((copy / "config.json").read_text())
    for name in ("other.safetensors", "model.safetensors"):
        (copy / "config.json").write_text(json.dumps({**config, "transformers_weights": name}))
        if name == "model.safetensors":
            from_hf(copy)
            continue
        with pytest.raises(UserError, match=r"transformers_weights: names another file than model\.safetensors"):
            from_hf(copy)


def test_half_precision_is_read_as_it_is(copy: Path) -> None:
    tensors = {name: x.bfloat16() for name, x in load_file(copy / "model.safetensors").items()}
    save_file(tensors, copy / "model.safetensors")
    loaded = from_hf(copy)
    table = loaded.model.decoder.embed.table.weight
    rows = loaded.tokenisers.target.vocabulary_map  # type: ignore[attr-defined]
    assert table.dtype == torch.float32
    assert torch.equal(table[list(rows.headwise_ids)], tensors["transformer.wte.weight"].float())


def test_a_base_model_without_its_prefix_is_read(copy: Path) -> None:
    """As the published folder of GPT-2 has it, with masks that are no weights."""
    expected = from_hf(copy).model(torch.arange(4, 12)[None])
    tensors = {name.removeprefix("transformer."): x for name, x in load_file(copy / "model.safetensors").items()}
    save_file({**tensors, "h.0.attn.bias": torch.ones(1, 1, 32, 32)}, copy / "model.safetensors")
    assert torch.equal(from_hf(copy).model(torch.arange(4, 12)[None]), expected)


def test_pickles_are_refused_with_a_way_to_convert_them(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(UserError, match=r"pickle.*save_pretrained"):
        from_hf(copy)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gtp2"}, "did you mean gpt2"),
        ({"model_type": "bloom"}, "known: .*gpt2.*llama"),
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "GPT2LMHeadModel"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"activation_function": "mish"}, "activation_function"),
        ({"n_embd": "wide"}, "n_embd"),
        ({"n_embd": 64}, r"wpe\.weight .*\(32, 32\).*\(32, 64\)|wte.*config.json asks"),
        ({"n_layer": 3}, r"has no transformer\.h\.2\.attn\.c_attn\.bias.* and 7 more"),
        ({"n_layer": 1}, r"does not ask for transformer\.h\.1.* and 7 more"),
        ({"vocab_size": 279}, "281 tokens, the model's table only 279|eos 280"),
        ({"vocab_size": 400}, "400"),
        ({"eos_token_id": 999}, "from 0 to 280"),
    ],
    ids=str,
)
def test_wrong_configs_are_named(copy: Path, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=words):
        from_hf(copy)


def test_a_mistake_is_one_sentence_and_writes_nothing(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "config.json").unlink()
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(copy), str(tmp_path / "run")])
    said = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and len(said) == 1 and "config.json" in said[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_files_are_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=name):
        from_hf(copy)


def test_rotary_positions_of_an_unknown_type_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders["llama"], tmp_path / "copy"))
    data = json.loads((copy / "config.json").read_text())
    for key, kind in (("rope_parameters", "rope_type"), ("rope_scaling", "type")):
        (copy / "config.json").write_text(json.dumps(data | {key: {kind: "su", "factor": 2.0}}))
        with pytest.raises(UserError, match=f"{key}.*'su'"):
            from_hf(copy)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"kind": "gpt2", "positions": "alibi"}, "positions"),
        ({"kind": "gpt2", "wiring": "admin"}, "wiring"),
        ({"kind": "gpt2", "activation": "swiglu"}, "activation"),
        ({"kind": "gpt2", "norm": "rms"}, "norm"),
        ({"kind": "gpt2", "attention_bias": False}, "attention_bias"),
        ({"kind": "gpt2", "head_width": 16}, "head_width"),
        ({"kind": "gpt2", "layers": [[{"score_mods": ["window"]}, {"kind": "mlp"}]]}, "layers"),
        ({"kind": "gpt3", "window": 4}, "window"),
        ({"kind": "llama", "embedding_norm": True}, "embedding_norm"),
    ],
    ids=str,
)
def test_settings_that_config_json_cannot_express_are_named(settings: dict[str, Any], key: str) -> None:
    from headwise.catalog import MODELS
    from headwise.interop.hf.write import choose_architecture

    config = MODELS.parse({"width": 32, "heads": 4, "depth": 1, **settings})
    with pytest.raises(UserError, match=f"^{key}:"):
        choose_architecture(config, "language-model", 10)


def test_a_related_architecture_may_express_what_the_same_kind_cannot() -> None:
    from headwise.catalog import MODELS
    from headwise.interop.hf.write import choose_architecture

    kind, _ = choose_architecture(MODELS.parse({"kind": "gpt", "wiring": "pre"}), "language-model", 10)
    assert kind.model_type == "gpt2"
