"""`headwise generate`: stop strings, streams, few-shot prompts, and texts longer than the context."""

import json

import pytest

from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import train_experiment

PAIRS = {"sea": "mer", "sky": "ciel", "sun": "soleil", "ice": "glace"}
SHOWN = "".join(f"input: {word}\noutput: {meaning}\n\n" for word, meaning in PAIRS.items())
TINY = {"kind": "transformer-tiny", "positions": {"kind": "learned", "max_length": 16}, "decoder": {"depth": 1}}


@pytest.fixture(scope="session")
def writers(tmp_path_factory):
    """A counted model that knows a few pairs by heart, and a small one with few positions."""
    folder = tmp_path_factory.mktemp("writers")
    (folder / "text").write_text(SHOWN * 4)
    models = {
        "counted": ({"kind": "ngram", "order": 16}, {"epochs": 1}),
        "short": (TINY, {"steps": 1, "batch_size": 2}),
    }
    runs = {}
    for name, (model, train) in models.items():
        experiment = parse_experiment({
            "name": name, "task": {"kind": "language-model", "context": 8}, "tokeniser": "bytes", "model": model,
            "data": {"train": str(folder / "text"), "format": "text", "cache": str(folder / "cache")},
            "train": {"threads": 1, **train},
        })  # fmt: skip
        runs[name] = train_experiment(experiment, folder / "runs")[0].path
    return runs


@pytest.fixture
def shots(tmp_path):
    (tmp_path / "shots.tsv").write_text("".join(f"{word}\t{meaning}\n" for word, meaning in PAIRS.items()))
    return "shots.tsv"


def test_a_text_ends_before_a_stop_string(headwise, writers):
    ask = ("generate", writers["counted"], "input: sea\n", "--temperature", 0)
    assert headwise(*ask, "--stop", r"\n").out == "input: sea\noutput: mer\n"
    assert headwise(*ask, "--stop", "zzz", "--stop", "r\n\ninp").out == "input: sea\noutput: me\n"
    found = json.loads(headwise(*ask, "--stop", "mer", "--json").out)
    assert found["samples"][0]["text"] == "output: "
    assert len(headwise(*ask, "--length", 5, "--min-length", 5).out) == len("input: sea\n") + 5 + 1


@pytest.mark.parametrize("stop", [[], ["--stop", r"\n\n"], ["--stop", "output", "--stop", "u"], ["--stop", "q"]])
def test_a_terminal_sees_what_a_file_would_hold(headwise, writers, monkeypatch, stop):
    ask = ("generate", writers["counted"], "input: s", "input: ic", "", "--length", 60, "--temperature", 1, *stop)
    written = headwise(*ask).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert headwise(*ask).out == written and written.count("---\n") == 2


def test_examples_are_shown_and_answers_printed(headwise, writers, shots):
    ask = ("generate", writers["counted"], "--shots", shots)
    assert headwise(*ask, "sea", "ice").out == "mer\nglace\n"
    found = json.loads(headwise(*ask, "sun", "--count", 1, "--json").out)
    assert found["prompt"] == "input: sea\noutput: mer\n\ninput: sun\noutput:"
    assert found["samples"][0]["text"] == " soleil"
    zero = json.loads(
        headwise(*ask, "sky", "--count", 0, "--template", r"input: {input}\noutput:{output}", "--json").out
    )
    assert zero["prompt"] == "input: sky\noutput:"


def test_few_shot_from_python(writers):
    run = load(writers["counted"])
    assert run.few_shot(list(PAIRS.items()), ["sky", "sea"], count=2) == ["ciel", "mer"]
    [[way]] = run.continue_prompts(["input: sun\n"], stop=["eil"])
    assert way.text == "output: sol"
    assert run.generate(["input: sun\n"], stop=["eil"])[0][0].text == "input: sun\noutput: sol"


def test_texts_go_on_beyond_the_context_and_the_positions(headwise, writers, monkeypatch):
    ask = ("generate", writers["short"], "abcab", "--length", 40, "--min-length", 40)
    written = headwise(*ask).out
    assert len(load(writers["short"]).tokenisers.target.encode(written.rstrip("\n"))) >= 40
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert headwise(*ask).out == written


def test_a_prompt_beyond_the_context_is_read_from_its_end_and_said_to_be(headwise, writers, caplog):
    short, long = (
        headwise("generate", writers["short"], "z" * more + "abcabcd", "--temperature", 0) for more in (1, 9)
    )
    assert short.status == long.status == 0
    assert long.out == "z" * 8 + short.out
    assert "a prompt has 16 tokens and the context 8: only the end of the prompt is read" in caplog.text


MISTAKES = [
    (["--shots", "nowhere.tsv"], "--shots nowhere.tsv: there is no such file"),
    (["--shots", "shots.tsv", "--count", 9], "count: 9 of 4 examples"),
    (["--shots", "shots.tsv", "--template", "{input}"], "must hold {input} and, after it, {output}"),
    (["--count", 1], "name their file with --shots"),
    (["--stop", ""], "decode: stop.0: string should have at least 1 character"),
    (["--repetition-penalty", 0], "decode: repetition_penalty: input should be greater than 0"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(headwise, writers, shots, arguments, sentence):
    outcome = headwise("generate", writers["counted"], "sea", *arguments)
    assert outcome.status == 2 and sentence in outcome.err and outcome.out == ""
