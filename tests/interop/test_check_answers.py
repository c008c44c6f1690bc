"""`--check` from texts to answers: what differs between Headwise and transformers beside the logits of given ids."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from headwise import from_hf, to_hf
from headwise.cli.main import main
from headwise.experiment.convert import to_trained_model
from headwise.inference.trained_model import TrainedModel
from headwise.interop.hf.check import Comparison, check_folder
from headwise.text.base import Tokeniser

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
from tiny_folders import TINY, build_hf_model
from tiny_tokenizers import FAMILIES, write_folder

CLASSES = [  # each task, and kinds of tokenizers that differ in what they do with spaces
    ("bert", "BertForTokenClassification"), ("roberta", "RobertaForTokenClassification"),
    ("bert", "BertForSequenceClassification"), ("roberta", "RobertaForSequenceClassification"),
    ("deberta-v2", "DebertaV2ForQuestionAnswering"), ("roberta", "RobertaForQuestionAnswering"),
    ("longformer", "LongformerForQuestionAnswering"),
    ("roberta", "RobertaForMaskedLM"), ("big_bird", "BigBirdForMaskedLM"), ("funnel", "FunnelForPreTraining"),
    ("bert", "BertModel"), ("gpt2", "GPT2LMHeadModel"), ("llama", "LlamaForCausalLM"),
    ("t5", "T5ForConditionalGeneration"), ("mbart", "MBartForConditionalGeneration"),
]  # fmt: skip


def write(family_name: str, name: str, folder: Path, **settings: Any) -> Path:
    """A folder of theirs with a trained tokenizer and a model with random weights."""
    family = FAMILIES[family_name]
    tokenizer = AutoTokenizer.from_pretrained(write_folder(folder, family))
    names = [f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep", "unk")]
    roles = {name: getattr(tokenizer, name, None) for name in names}
    sizes = {key: 128 for key in ("max_position_embeddings", "n_positions") if key in TINY[family.model_type]}
    if "decoder_start_token_id" in TINY[family.model_type]:
        sizes["decoder_start_token_id"] = tokenizer.pad_token_id
    ids = {role: number for role, number in roles.items() if number is not None}
    vocab = 1 + max(tokenizer.get_vocab().values())
    model = build_hf_model(family.model_type, name, **{"vocab_size": vocab, **sizes, **ids, **settings})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def check(folder: Path) -> Comparison:
    return check_folder(folder, None, to_trained_model)


@pytest.mark.parametrize(("family", "name"), CLASSES)
def test_answers_to_texts_are_those_of_transformers(family: str, name: str, tmp_path: Path) -> None:
    comparison = check(write(family, name, tmp_path / "in"))
    ids, answers = comparison.answers
    assert comparison.equal and ids.equal and answers.equal, str(comparison)
    assert "token ids of texts: all" in str(ids) and "texts are equal" in str(answers)


@pytest.mark.parametrize(
    ("problem", "labels"), [("regression", 1), ("regression", 3), ("multi_label_classification", 3), (None, 1)]
)
def test_probabilities_follow_the_problem_type(problem: str | None, labels: int, tmp_path: Path) -> None:
    settings = {"problem_type": problem, "num_labels": labels}
    folder = write("bert", "BertForSequenceClassification", tmp_path / "in", **settings)
    assert check(folder).equal
    loaded = from_hf(folder)
    to_hf(loaded, tmp_path / "out")
    assert check_folder(tmp_path / "out", loaded.model, lambda *_: loaded).equal


def drop_eos(loaded: TrainedModel, patch: pytest.MonkeyPatch) -> None:
    loaded.tokenisers.source.__dict__["appends_eos"] = False


def drop_separators(loaded: TrainedModel, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "headwise.text.paired.join_with_eos", lambda parts, count: [number for part in parts for number in part]
    )


def drop_spaces(loaded: TrainedModel, patch: pytest.MonkeyPatch) -> None:
    source = loaded.tokenisers.target
    source.__dict__["encode_around_masks"] = lambda parts: Tokeniser.encode_around_masks(source, parts)


def use_sigmoid(loaded: TrainedModel, patch: pytest.MonkeyPatch) -> None:
    loaded.experiment.__dict__["task"] = loaded.experiment.task.replace(function="sigmoid")


def rename_tags(loaded: TrainedModel, patch: pytest.MonkeyPatch) -> None:
    loaded.tokenisers.target.vocabulary.reverse()


MUTATIONS: list[tuple[str, str, Callable[..., None], str]] = [
    (
        "bert",
        "BertForTokenClassification",
        drop_eos,
        "token ids of texts, 'The cat.*: the end here, .*SEP.* in transformers",
    ),
    ("roberta", "RobertaForQuestionAnswering", drop_separators, "token ids of texts, .* and .*: token .*, '</s>'"),
    ("bert", "BertForSequenceClassification", drop_separators, "token ids of texts, .* and .*: token .*SEP"),
    ("roberta", "RobertaForMaskedLM", drop_spaces, "token ids of texts, .*: token .*, 'Ġ.* in transformers"),
    ("bert", "BertForSequenceClassification", use_sigmoid, "classify: 'The cat sat on the mat.': 'LABEL_0' 0.* here, "),
    ("bert", "BertForTokenClassification", rename_tags, "tag: 'The cat sat on the mat.': 'The: .*in transformers"),
]


@pytest.mark.parametrize(("family", "name", "mutate", "sentence"), MUTATIONS)
def test_the_first_difference_is_named(
    family: str, name: str, mutate: Callable[..., None], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*read: Any) -> TrainedModel:
        loaded = to_trained_model(*read)
        mutate(loaded, monkeypatch)
        return loaded

    comparison = check_folder(write(family, name, tmp_path / "in"), None, prepare)
    assert not comparison.equal and comparison.difference < 1e-4
    (different,) = [each for each in comparison.answers if not each.equal]
    assert re.match(sentence, str(different)), str(comparison)


def test_the_command_prints_what_it_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("bert", "BertForTokenClassification", tmp_path / "in")
    main(["import", str(folder), str(tmp_path / "run"), "--check"])
    main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "hf", "--check"])
    assert capsys.readouterr().out.count("tag: the answers to all 8 texts are equal") == 2
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    main(["import", str(folder), "--check"])
    assert "texts: not compared, as the folder has no tokenizer.json" in capsys.readouterr().out


def test_a_difference_has_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("bert", "BertForQuestionAnswering", tmp_path / "in")
    drop_separators(None, monkeypatch)  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as stopped:
        main(["import", str(folder), "--check"])
    assert stopped.value.code == 1 and "token ids of texts, " in capsys.readouterr().out
