"""Exports to ONNX and `torch.export`: the commands give the same answers with onnxruntime as with torch."""

import json

import onnx
import pytest
import torch

from headwise.experiment.config import Experiment
from headwise.experiment.graph_folder import read_graph_folder, write_graph_folder
from headwise.inference.trained_model import TrainedModel
from headwise.tasks.tables import task_config
from headwise.testing import perturb_parameters
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels
from headwise.vision.pixels import Pixels

LETTERS = Characters("abcdefgh ")
IMAGES = ("classify-images", "detect", "caption")
DATA = {"texts": {"train": "none.tsv"}, "images": {"name": "digits"}}
TEXTS = ["abc", "dad fed a bee", "hag", "a"]


def build(name: str, task: str, **settings) -> TrainedModel:
    """A model whose weights are random enough that answers differ."""
    torch.manual_seed(0)
    source = Pixels(32, 32, 3, (0.5,) * 3, (0.2,) * 3) if task in IMAGES else LETTERS
    labelled = task in ("classify", "tag", "classify-images", "detect")
    tokenisers = Tokenisers(source, Labels(["x", "y", "z"]) if labelled else LETTERS)
    model = {"kind": f"{name}-tiny", **settings}
    experiment = Experiment.model_validate(
        {"task": task, "model": model, "data": DATA[task_config(task).reads], "train": {"steps": 1}}
    )
    return TrainedModel(
        perturb_parameters(experiment.create_task(tokenisers).build(experiment.model)).float().eval(),
        tokenisers,
        experiment,
    )


def test_a_classifier_without_its_run(headwise, tmp_path) -> None:
    loaded = build("bert", "classify")
    loaded.save(tmp_path / "run")
    outcome = headwise("export", "run", "out", "--to", "onnx", "--check")
    assert outcome.status == 0, outcome.err
    assert outcome.out == "most probable outputs: 32 of 32 are equal\nout\n"
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "config.json", "headwise-tokenisers.json", "model.onnx", "weights.bin",
    }  # fmt: skip
    model = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False)
    assert str(tmp_path).encode() not in model.SerializeToString()  # nor stack traces with files of this machine
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)
    for probabilities, expected in zip(
        read_graph_folder(tmp_path / "out").classify(TEXTS), loaded.classify(TEXTS), strict=True
    ):
        assert probabilities == pytest.approx(expected, abs=1e-5)
    assert len({json.dumps(row) for row in loaded.classify(TEXTS)}) == len(TEXTS)
    native, exported = (headwise("classify", name, *TEXTS, "--json") for name in ("run", "out"))
    assert [json.loads(line)["label"] for line in exported.out.splitlines()] == [
        json.loads(line)["label"] for line in native.out.splitlines()
    ]
    (tmp_path / "out" / "model.onnx").write_bytes(b"none")
    assert headwise("classify", "out", "abc").err.startswith("headwise: out/model.onnx: onnxruntime cannot load it")
    (tmp_path / "out" / "model.onnx").unlink()
    assert headwise("classify", "out", "abc").err == "headwise: out: must have model.onnx; export the run again\n"


def test_models_that_are_no_graphs_say_why(headwise, tmp_path) -> None:
    build("rnn", "classify").save(tmp_path / "run")
    outcome = headwise("export", "run", "out", "--to", "onnx")
    assert outcome.status == 2 and not (tmp_path / "out").exists()
    assert outcome.err == (
        "headwise: --to onnx: Recurrent cannot be exported, as its computation depends on the number of rows or "
        "tokens, and a graph has one for all of them; choose another model, or use the run as it is\n"
    )


def test_programs_of_torch_export_hold_no_pickles(tmp_path) -> None:
    loaded = build("gpt2", "classify")
    write_graph_folder(loaded, tmp_path / "out", "torch-export")
    ids = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0], [4, 4, 4, 2]])
    program = torch.export.load(tmp_path / "out" / "model.pt2").module()
    with torch.no_grad():
        torch.testing.assert_close(program(ids)[0], loaded.model(ids), atol=1e-5, rtol=1e-5)


def test_an_encoder_decoder_on_onnxruntime(headwise, tmp_path) -> None:
    loaded = build("transformer", "transduce")
    loaded.save(tmp_path / "run")
    outcome = headwise("export", "run", "out", "--to", "onnx", "--check")
    assert outcome.status == 0, outcome.err
    assert outcome.out == "greedy outputs: 32 of 32 are equal\nout\n"
    weights = sum(weight.numel() for weight in loaded.model.parameters())
    assert 4 * weights <= (tmp_path / "out" / "weights.bin").stat().st_size < 5 * weights  # those of both steps once
    exported = read_graph_folder(tmp_path / "out")
    for settings in ({"beams": 3, "nbest": 2}, {"temperature": 1.0, "seed": 3}, {"no_repeat_ngram_size": 1}):
        natives, others = (model.translate_nbest(TEXTS, max_length=9, **settings) for model in (loaded, exported))
        assert [[each.text for each in nbest] for nbest in natives] == [
            [each.text for each in nbest] for nbest in others
        ]
        assert others[1][0].log_prob == pytest.approx(natives[1][0].log_prob, abs=1e-4)
    native, onnx_engine = (headwise("translate", name, *TEXTS, "--beams", 2) for name in ("run", "out"))
    assert native.out == onnx_engine.out and native.out.count("\n") == len(TEXTS)
    refused = headwise("translate", "out", "ab", "--beams", 2, "--coverage-penalty", 0.2)
    assert refused.status == 2 and "it does not return attention" in refused.err
    assert "this folder has ONNX models alone" in headwise("translate", "out", "ab", "--engine", "native").err


def test_a_language_model_continues_prompts_of_any_length(headwise, tmp_path) -> None:
    loaded = build("gpt2", "language-model")
    loaded.save(tmp_path / "run")
    options = ("a bad cab", "", "fed", "--length", 30, "--temperature", 0)
    native, exported = (headwise("generate", "run", *options, "--engine", engine) for engine in ("native", "onnx"))
    assert exported.status == 0, exported.err
    assert exported.out == native.out and len(native.out) > 40
