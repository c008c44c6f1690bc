"""Whole Marian folders, as a user has them: texts in, texts out, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer
from transformers.utils import logging

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import choose_architecture, write_folder
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, SPECIALS

logging.disable_progress_bar()
TEXTS = ["the cat sat on the mat", "a dog", ">>deu<< cats and dogs"]


SINES_FIRST = {"positions": {"kind": "sinusoid", "halves": True}}
SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}


def write_opus(folder: Path, pieces: Any, source: dict[str, int], target: dict[str, int]) -> Path:
    """A folder like those of OPUS-MT, with random weights."""
    torch.manual_seed(2)
    pad = target["<pad>"]
    sizes = {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in SIZES.items()}
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    vocabularies = {"vocab_size": len(source), "decoder_vocab_size": len(target)}
    separate = source is not target
    config = MarianConfig(
        d_model=32, scale_embedding=True, init_std=0.4, share_encoder_decoder_embeddings=not separate,
        **sizes, **ids, **vocabularies,
    )  # fmt: skip
    MarianMTModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(source))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(target))
    (folder / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": separate}))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(pieces.model)
    return folder


@pytest.fixture(scope="module")
def opus(pieces: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_opus(tmp_path_factory.mktemp("opus") / "opus-mt", pieces, pieces.ids, pieces.ids)


@pytest.fixture(scope="module")
def separate(pieces: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its target side has fewer words, in another order."""
    words = sorted(set(pieces.ids) - {"</s>", "<unk>", "<pad>", ">>deu<<"}, reverse=True)
    target = {piece: number for number, piece in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    return write_opus(tmp_path_factory.mktemp("opus") / "opus-separate", pieces, pieces.ids, target)


@pytest.fixture
def copy(opus: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(opus, tmp_path / "copy"))


def generate_with_transformers(folder: Path) -> list[str]:
    """What `transformers` itself makes of the texts."""
    tokenizer, model = MarianTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()
    outputs = []
    special_ids = {model.config.pad_token_id, model.config.eos_token_id, model.config.decoder_start_token_id}
    for text in TEXTS:
        batch = tokenizer([text], return_tensors="pt")
        banned = [[model.config.pad_token_id]]
        ids = model.generate(**batch, num_beams=1, max_new_tokens=9, bad_words_ids=banned, do_sample=False)
        outputs.append(tokenizer.decode([i for i in ids[0].tolist() if i not in special_ids]))
    return outputs


@pytest.mark.parametrize("name", ["opus", "separate"])
def test_texts_are_translated_as_by_transformers(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(name)
    loaded = from_hf(folder)
    ours = loaded.translate(TEXTS, max_ratio=0, max_extra=9)
    assert ours == generate_with_transformers(folder) and len(set(ours)) > 1
    to_hf(loaded, tmp_path / "out")
    assert generate_with_transformers(tmp_path / "out") == ours
    assert from_hf(tmp_path / "out").translate(TEXTS, max_ratio=0, max_extra=9) == ours


def test_the_written_vocabulary_has_our_ids(opus: Path, tmp_path: Path) -> None:
    loaded = from_hf(opus)
    to_hf(loaded, tmp_path / "out")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 3]) == list(SPECIALS)
    for text in TEXTS:
        assert tokenizer(text).input_ids[:-1] == loaded.tokenisers.source.encode(text)


@pytest.fixture(scope="module")
def exported(reverser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "reverser"
    write_folder(reverser.model, reverser.config, "transduce", reverser.tokenisers, folder)
    return folder


@pytest.mark.parametrize("beams", [1, 4])
def test_a_trained_model_writes_the_same_in_transformers(reverser: Any, exported: Path, beams: int) -> None:
    hf_model = MarianMTModel.from_pretrained(exported).eval()
    ours = decode(reverser.model, reverser.sources, DecodeConfig(beams=beams, length_penalty=0))
    for source, actual in zip(reverser.sources[:12], ours, strict=False):
        ids = torch.tensor([[*source, EOS]])
        output = hf_model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beams, length_penalty=0.0)
        assert output[0].tolist() == [BOS, *actual[0].ids, EOS]


def test_headwise_tokenisers_are_exported_with_the_model(exported: Path) -> None:
    assert from_hf(exported).translate(["abcd", "hgf"]) == ["dcba", "fgh"]


def test_pickles_are_refused_with_a_way_to_convert_them(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(UserError, match=r"pickle.*save_pretrained"):
        read_folder(copy)


def test_a_bare_model_is_imported_but_cannot_read_texts(copy: Path) -> None:
    (copy / "source.spm").unlink()
    assert read_folder(copy).tokenisers is None
    with pytest.raises(UserError, match=r"source\.spm"):
        from_hf(copy)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "marain"}, "did you mean marian"),
        ({"normalize_before": True}, "normalize_before"),
        ({"activation_function": "mish"}, "activation_function"),
        ({"d_model": "wide"}, "d_model"),
        ({"d_model": 64}, "asks for"),
        ({"encoder_ffn_dim": 33}, "config.json"),
        ({"encoder_layers": 2}, r"encoder\.layers\.1"),
        ({"vocab_size": 1_000}, "decoder_vocab_size: one table"),
        ({"vocab_size": 1_000, "decoder_vocab_size": 1_000}, "asks for"),
        ({"decoder_start_token_id": 99999}, "decoder_start_token_id: 99999 is no token id below"),
    ],
)
def test_wrong_configs_are_named(copy: Path, changes: dict[str, Any], word: str) -> None:
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=word):
        read_folder(copy)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.json"])
def test_damaged_files_are_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=name):
        read_folder(copy)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"wiring": "sandwich"}, "wiring"),
        ({"positions": "rotary"}, "positions"),
        ({"norm": "rms"}, "norm"),
        ({"start_id": 0}, "start_id"),
        ({"activation": "swiglu"}, "activation"),
        ({"attention_bias": False}, "attention_bias"),
        ({"encoder": {"layers": [[{"heads": 2, "head_width": 5}, {"kind": "mlp"}]]}}, "heads"),
    ],
)
def test_settings_that_marian_cannot_express_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}:"):
        choose_architecture(
            TransformerConfig.model_validate({**SINES_FIRST, "width": 32, "heads": 4, **settings}), "transduce", 10
        )
