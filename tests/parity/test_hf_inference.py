"""What the methods of an imported model return for texts, beside `transformers` on the same texts: not logits of given
ids, but everything between a text and its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_folders import build_hf_model, save_folder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

from headwise import UserError, from_hf, load, to_hf
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.interop.hf.read import read_folder

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 0, "unk": 3, "cls": 1, "sep": 2, "mask": 4}
SIZES: dict[str, Any] = {
    "vocab_size": len(vocabulary(SPECIAL_IDS)), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 30, "pad_token_id": 0, "initializer_range": 0.7,
    "num_labels": 4,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {"Bert": {}, "Electra": {"embedding_size": 12}, "FNet": {}}
TEXTS = ["w5 w9 w9 w20", "w7", "w21 w6 w8 w5 w14 w13"]
PAIRS = [("w5 w9", "w8 w20 w5 w11 w17"), ("w7", "w6 w7"), ("w20 w21 w5", "w9 w9 w12 w14")]


def write(kind: str, head: str, folder: Path, **settings: Any) -> Path:
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **FAMILIES[kind], **settings})
    model = build_noisy_model(f"{kind}For{head}", config)
    return save(model, folder, SPECIAL_IDS)


def load_theirs(folder: Path) -> tuple[Any, Any]:
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    model = getattr(transformers, name).from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@torch.inference_mode()
def tag_their_way(folder: Path, texts: list[str]) -> list[list[str]]:
    model, tokenizer = load_theirs(folder)
    rows = []
    for text in texts:
        encoding = tokenizer(text)
        numbers = model(**tokenizer(text, return_tensors="pt")).logits[0].argmax(-1).tolist()
        words = encoding.word_ids()
        rows.append([model.config.id2label[numbers[words.index(word)]] for word in range(len(text.split()))])
    return rows


@torch.inference_mode()
def answer_their_way(folder: Path) -> list[str]:
    model, tokenizer = load_theirs(folder)
    answers = []
    for question, text in PAIRS:
        outputs, words = model(**tokenizer(question, text, return_tensors="pt")), text.split()
        start = outputs.start_logits.shape[1] - len(words) - 1
        starts, ends = (logits[0, start:-1].tolist() for logits in (outputs.start_logits, outputs.end_logits))
        spans = [(first, last) for last in range(len(words)) for first in range(last + 1)]
        first, last = max(spans, key=lambda span: starts[span[0]] + ends[span[1]])
        answers.append(" ".join(words[first : last + 1]))
    return answers


@pytest.mark.parametrize("kind", FAMILIES)
def test_tags_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = write(kind, "TokenClassification", tmp_path / "folder")
    loaded = from_hf(folder)
    expected = tag_their_way(folder, TEXTS)
    assert [[tag for _, tag in row] for row in loaded.tag(TEXTS)] == expected
    assert len({tag for row in expected for tag in row}) > 1
    to_hf(loaded, tmp_path / "out")
    assert tag_their_way(tmp_path / "out", TEXTS) == expected


@pytest.mark.parametrize("kind", FAMILIES)
def test_answers_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = write(kind, "QuestionAnswering", tmp_path / "folder", num_labels=2)
    loaded, expected = from_hf(folder), answer_their_way(folder)
    assert loaded.answer(PAIRS) == expected
    to_hf(loaded, tmp_path / "out")
    assert answer_their_way(tmp_path / "out") == expected


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("problem", ["single_label_classification", "regression"])
@torch.inference_mode()
def test_pairs_are_classified_as_by_transformers(kind: str, problem: str, tmp_path: Path) -> None:
    count = 1 if problem == "regression" else 4
    folder = write(kind, "SequenceClassification", tmp_path / "folder", num_labels=count, problem_type=problem)
    loaded, (model, tokenizer) = from_hf(folder), load_theirs(folder)
    expected = torch.cat([model(**tokenizer(*pair, return_tensors="pt")).logits for pair in PAIRS])
    texts = ["\t".join(pair) for pair in PAIRS]
    if problem == "regression":
        actual = torch.tensor(loaded.regress(texts))[:, None]
    else:
        actual = torch.tensor([list(labels.values()) for labels in loaded.classify(texts)])
        expected = expected.softmax(-1)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_the_words_of_a_tagged_text_are_encoded_together(tmp_path: Path) -> None:
    """RoBERTa's byte-level BPE has other tokens for a word after a space."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "c", "a", "t", "Ġ", "d", "o", "g", "do", "Ġc", "dog", "Ġdo"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    merges = [("d", "o"), ("Ġ", "c"), ("do", "g"), ("Ġ", "do")]
    engine = Tokenizer(models.BPE(ids, merges, unk_token="<unk>"))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    engine.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    settings = {"vocab_size": len(pieces), "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    config = transformers.RobertaConfig(**{**SIZES, **settings})
    build_noisy_model("RobertaForTokenClassification", config).save_pretrained(tmp_path)
    names = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, **{f"{name}_token": token for name, token in names.items()}
    ).save_pretrained(tmp_path)
    texts, loaded = ["dog cat dog a", "cat dog", "a c dog dogcat"], from_hf(tmp_path)
    words = [text.split() for text in texts]
    source = loaded.tokenisers.source
    together = [[number for word in row for number in word] for row in source.encode_words(words)]
    assert together == source.encode_batch(texts)
    assert [["".join(source.tokens(word)).strip(" ▁Ġ") for word in row] for row in source.encode_words(words)] == words
    assert [[tag for _, tag in row] for row in loaded.tag(texts)] == tag_their_way(tmp_path, texts)


def test_a_tagger_trained_here_tags_there_as_here(tmp_path: Path) -> None:
    """It reads no EOS after a text, and neither does the exported tokenizer put one there."""
    data = tmp_path / "tags.tsv"
    data.write_text("a b\tx y\nb a a\ty x x\na\tz\n" * 8)
    tables = {
        "task": "tag",
        "data": {"train": str(data), "valid": str(data), "cache": str(tmp_path / "cache")},
        "tokeniser": {"kind": "words"},
        "model": {"kind": "bert-tiny", "dropout": 0.0},
        "train": {"steps": 3, "batch_size": 8},
    }
    run, _ = train_experiment(parse_experiment(tables), tmp_path / "runs")
    trained = load(run.path)
    texts = ["a b b a", "b", "a a b"]
    expected = [[tag for _, tag in row] for row in trained.tag(texts)]
    to_hf(trained, tmp_path / "out")
    assert tag_their_way(tmp_path / "out", texts) == expected
    assert [[tag for _, tag in row] for row in from_hf(tmp_path / "out").tag(texts)] == expected


@pytest.mark.parametrize("place", ["generation_config.json", "config.json"])
def test_experts_with_a_capacity_need_the_cache(place: str, tmp_path: Path) -> None:
    model = build_hf_model("switch_transformers", "SwitchTransformersForConditionalGeneration")
    save_folder(model, tmp_path)
    if place == "config.json":
        (tmp_path / "generation_config.json").unlink()
    data = json.loads((tmp_path / place).read_text())
    (tmp_path / place).write_text(json.dumps({**data, "use_cache": False}))
    with pytest.raises(UserError, match=rf"{place}: use_cache: false .*; set it to true$"):
        read_folder(tmp_path)
