"""What classifiers of `transformers` make of their logits: as its pipeline does, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_folders import build_hf_model as build_tiny
from tiny_folders import save_folder as save_tiny
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

import headwise
from headwise import UserError
from headwise.cli.main import main
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf.read import read_folder

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}
SHAPE: dict[str, Any] = {
    "vocab_size": len(vocabulary(SPECIAL_IDS)), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 20, "pad_token_id": SPECIAL_IDS["pad"],
    "initializer_range": 1.0,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Albert": {"embedding_size": 12},
    "FNet": {},
    "Roberta": {"bos_token_id": SPECIAL_IDS["cls"], "eos_token_id": SPECIAL_IDS["sep"], "type_vocab_size": 1},
    "Electra": {"embedding_size": 12},
    "Deberta": {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]},
}
TEXTS = ["w1 w2 w20", "w4", "w5 w6"]
CASES: list[tuple[int, str | None, str]] = [
    (3, None, "classify"),
    (2, "single_label_classification", "classify"),
    (3, "multi_label_classification", "classify"),
    (1, "multi_label_classification", "classify"),
    (1, None, "classify"),
    (1, "regression", "regress"),
]


def write_classifier(kind: str, folder: Path, **settings: Any) -> Path:
    config = getattr(transformers, f"{kind}Config")(**SHAPE, **SETTINGS[kind], **settings)
    return save(build_noisy_model(f"{kind}ForSequenceClassification", config), folder, SPECIAL_IDS)


def run_pipeline(folder: Path) -> list[dict[str, float]]:
    """The scores of the pipeline of transformers."""
    pipe = transformers.pipeline("text-classification", model=str(folder), tokenizer=str(folder))
    return [{each["label"]: each["score"] for each in pipe(text, top_k=None)} for text in TEXTS]


def run_headwise(loaded: headwise.Loaded) -> list[dict[str, float]]:
    if loaded.task.kind == "regress":
        return [{"LABEL_0": value} for value in loaded.regress(TEXTS)]
    return loaded.classify(TEXTS)


@pytest.mark.parametrize(
    ("kind", "count", "problem", "task"),
    [(kind, *case) for kind in SETTINGS for case in CASES if kind == "Bert" or case[1] in ("regression", CASES[2][1])],
)
def test_scores_are_those_of_the_pipeline(
    kind: str, count: int, problem: str | None, task: str, tmp_path: Path
) -> None:
    folder = write_classifier(kind, tmp_path / "in", num_labels=count, problem_type=problem)
    expected, loaded = run_pipeline(folder), from_hf(folder)
    assert loaded.task.kind == task
    to_hf(loaded, tmp_path / "out")
    run = headwise.load(loaded.save(tmp_path / "run").path)
    for actual in (
        run_headwise(loaded),
        run_headwise(run),
        run_headwise(from_hf(tmp_path / "out")),
        run_pipeline(tmp_path / "out"),
    ):
        for one, other in zip(actual, expected, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-5)


def test_num_labels_wins_over_names_of_another_number(tmp_path: Path) -> None:
    path = write_classifier("Bert", tmp_path / "in", num_labels=3) / "config.json"
    data = json.loads(path.read_text())
    for change in ({"num_labels": 3, "id2label": None, "label2id": None}, {"num_labels": 3, "id2label": {"0": "yes"}}):
        path.write_text(json.dumps(data | change))
        assert [set(each) for each in run_headwise(from_hf(path.parent))] == [
            set(each) for each in run_pipeline(path.parent)
        ]


def test_labels_with_equal_names_are_distinguished(tmp_path: Path) -> None:
    folder = write_classifier("Bert", tmp_path, id2label={0: "bad", 1: "good", 2: "bad"})
    assert list(from_hf(folder).classify(["w1"])[0]) == ["bad", "good", "bad (2)"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"problem_type": "ranking"}, r"problem_type: 'ranking'"),
        ({"problem_type": "single_label_classification", "num_labels": 1}, "problem_type: .* with 1 labels"),
        ({"id2label": {"a": "x", "b": "y", "c": "z"}}, "id2label: must name labels by their numbers"),
        ({"id2label": ["x", "y", "z"]}, "id2label: must name labels by their numbers"),
        ({"num_labels": "many"}, "num_labels: is 'many'"),
        ({"num_labels": 2**60}, "num_labels"),
    ],
    ids=str,
)
def test_other_heads_are_refused(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = write_classifier("Bert", tmp_path, num_labels=3) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=f"config.json: {complaint}"):
        from_hf(path.parent)


@pytest.mark.parametrize(
    "settings",
    [{"problem_type": "multi_label_classification"}, {"problem_type": "regression"}, {"num_labels": 1}],
    ids=str,
)
@pytest.mark.parametrize(
    ("kind", "name"), [("vit", "ViTForImageClassification"), ("resnet", "ResNetForImageClassification")]
)
def test_of_images_only_one_label_of_several_is_read(
    kind: str, name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = save_tiny(build_tiny(kind, name, **settings), tmp_path)
    with pytest.raises(UserError, match="problem_type"):
        read_folder(folder)


def test_several_labels_of_a_text_are_neither_scored_nor_learnt(tmp_path: Path) -> None:
    folder = write_classifier("Bert", tmp_path / "in", num_labels=3, problem_type="multi_label_classification")
    with pytest.raises(UserError, match=r"task\.function: .* cannot be scored here"):
        from_hf(folder).evaluate([("w1", "LABEL_0")])
    (tmp_path / "texts.tsv").write_text("".join(f"w1 w2 w{n}\tLABEL_0\nw5 w{n}\tLABEL_1\n" for n in range(1, 9)))
    tables = {
        "name": "tuned", "task": {"kind": "classify", "function": "sigmoid"}, "init_from": str(folder),
        "data": {"train": str(tmp_path / "texts.tsv"), "cache": str(tmp_path / "cache")}, "train": {"steps": 1},
    }  # fmt: skip
    with pytest.raises(UserError, match=r"task\.function: .* cannot be learnt here"):
        train_experiment(parse_experiment(tables), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_regression_of_several_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_classifier("Bert", tmp_path / "in", num_labels=3, problem_type="regression")
    main(["import", str(folder), str(tmp_path / "run")])
    for extra in ([], ["--json"]):
        main(["classify", str(tmp_path / "run"), *TEXTS, *extra])
    lines = [line for line in capsys.readouterr().out.splitlines() if "LABEL_0" in line]
    rows = [json.loads(line) for line in lines[len(TEXTS) :]]
    expected = run_pipeline(folder)
    assert [row["text"] for row in rows] == TEXTS
    for row, line, values in zip(rows, lines, expected, strict=False):
        assert row["values"] == pytest.approx(values, rel=1e-4, abs=1e-5)
        assert line.split("\t")[1] == f"LABEL_1 {row['values']['LABEL_1']:.3f}"


def test_a_regression_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_classifier("Bert", tmp_path / "in", num_labels=1, problem_type="regression")
    expected = [each["LABEL_0"] for each in run_pipeline(folder)]
    main(["import", str(folder), str(tmp_path / "run")])
    assert f"headwise classify {tmp_path / 'run'}" in capsys.readouterr().err
    main(["classify", str(tmp_path / "run"), *TEXTS, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["value"] for row in rows] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    (tmp_path / "texts.tsv").write_text(
        "".join(f"{text}\t{value}\n" for text, value in zip(TEXTS, expected, strict=True))
    )
    main(["evaluate", str(tmp_path / "run"), "--data", str(tmp_path / "texts.tsv"), "--json"])
    scores = {score["name"]: score["value"] for score in json.loads(capsys.readouterr().out)["scores"]}
    assert scores["Pearson"] == pytest.approx(100, abs=0.01)


@torch.inference_mode()
def test_a_regression_trained_here_is_one_in_transformers(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("w1 w2 w4\t1.5\nw5 w6\t-2\n" * 8)
    with torch.inference_mode(False):
        tables = {
            "name": "born", "task": "regress", "init_from": str(write_classifier("Bert", tmp_path / "in")),
            "data": {
                "train": str(tmp_path / "texts.tsv"), "valid": str(tmp_path / "texts.tsv"),
                "cache": str(tmp_path / "cache"),
            },
            "train": {"steps": 2, "threads": 1, "batch_size": 8},
        }  # fmt: skip
        run = headwise.load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)
    to_hf(run, tmp_path / "out")
    for one, other in zip(run_headwise(run), run_pipeline(tmp_path / "out"), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5)
    assert run_headwise(from_hf(tmp_path / "out")) == run_headwise(run)


def test_a_classifier_of_one_label_does_not_become_yes_or_no(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("w1 w2 w4\tgood\nw5 w6\tgood\n" * 8)
    tables = {
        "name": "born", "task": "classify", "init_from": str(write_classifier("Bert", tmp_path / "in")),
        "data": {"train": str(tmp_path / "texts.tsv"), "cache": str(tmp_path / "cache")},
        "train": {"steps": 1, "threads": 1, "batch_size": 8},
    }  # fmt: skip
    run = headwise.load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)
    assert "train it with two labels" in to_hf(run, tmp_path / "out")
    assert run_headwise(from_hf(tmp_path / "out")) == run_headwise(run)
