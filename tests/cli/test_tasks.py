"""Language models, taggers and classifiers from the command line. The models are counted, or hardly trained."""

import json
from io import BytesIO, TextIOWrapper
from xml.etree import ElementTree

import pytest

from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment

COUNTED = {"epochs": 1, "threads": 1}
BRIEF = {"steps": 40, "batch_size": 16, "threads": 1, "schedule": {"lr": 0.02, "warmup": 5}}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A run of each of the new tasks, by the task's name."""
    folder = tmp_path_factory.mktemp("tasks")
    files = {
        "language-model": "the present is present. the president is here.\n" * 20,
        "tag": "the cat sat\tDET NOUN VERB\nthe dog ran\tDET NOUN VERB\ncats ran\tNOUN VERB\n" * 4,
        "classify": "a good film\tpos\na bad film\tneg\ngood\tpos\nbad\tneg\n" * 8,
    }
    settings = {
        "language-model": {
            "data": {"format": "text", "valid_fraction": 0.2}, "tokeniser": "characters", "train": COUNTED,
            "model": {"kind": "ngram", "order": 4},
        },
        "tag": {"tokeniser": "words", "model": {"kind": "hmm", "suffix": 2, "endings": 64}, "train": COUNTED},
        "classify": {"tokeniser": "words", "model": {"kind": "lstm-tiny", "depth": 1, "dropout": 0.0}, "train": BRIEF},
    }  # fmt: skip
    found = {}
    for task, text in files.items():
        (folder / task).write_text(text)
        own = {"data": {}} | settings[task]
        valid = {} if task == "language-model" else {"valid": str(folder / task)}
        data = {"train": str(folder / task), "cache": str(folder / "cache"), **valid, **own["data"]}
        experiment = parse_experiment({"name": task, "task": task, **own, "data": data})
        found[task] = train_experiment(experiment, folder / "runs")[0].path
    return found


def test_tag(headwise, runs):
    assert headwise("tag", runs["tag"], "the dog sat", "").out == "the/DET dog/NOUN sat/VERB\n\n"
    (line,) = headwise("tag", runs["tag"], "cats sat", "--json").out.splitlines()
    assert json.loads(line) == {"text": "cats sat", "words": ["cats", "sat"], "tags": ["NOUN", "VERB"]}


def test_classify(headwise, runs):
    first, second = headwise("classify", runs["classify"], "a good film", "bad").out.splitlines()
    (label, probability), (other, _) = first.split("\t"), second.split("\t")
    assert (label, other) == ("pos", "neg") and 0.5 < float(probability) <= 1
    found = json.loads(headwise("classify", runs["classify"], "good", "--json").out)
    assert found["label"] == "pos" and sum(found["probabilities"].values()) == pytest.approx(1)


def test_complete(headwise, runs, tmp_path):
    lines = [line.split("\t") for line in headwise("complete", runs["language-model"], "the pre").out.splitlines()]
    assert {word for _, word in lines[:2]} == {"present", "president"}
    assert float(lines[0][0]) >= float(lines[1][0]) > 0.2
    (tmp_path / "texts").write_text("the \nhe\n")
    found = headwise("complete", runs["language-model"], "--file", "texts", "--json", "--count", 1).out.splitlines()
    assert [len(json.loads(line)["completions"]) for line in found] == [1, 1]
    unknown = headwise("complete", runs["language-model"], "Ж")
    assert unknown.status == 0 and unknown.out == "" and "no word of the vocabulary" in unknown.err


def test_generate_is_seeded_and_begins_with_its_prompt(headwise, runs):
    draw = ("generate", runs["language-model"], "the pre", "--length", 40, "--temperature", 1)
    first, again, other = (headwise(*draw, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again != other
    assert first.startswith("the pres") and len(first) <= len("the pre") + 40 + 1


def test_samples_differ_and_json_holds_what_follows_the_prompt(headwise, runs):
    shown = headwise("generate", runs["language-model"], "the ", "--samples", 3, "--temperature", 2, "--length", 9)
    assert shown.out.count("---\n") == 2
    found = json.loads(headwise("generate", runs["language-model"], "the pr", "--temperature", 0, "--json").out)
    assert found["prompt"] == "the pr" and found["samples"][0]["text"].startswith("es")
    assert found["samples"][0]["log_prob"] < 0


def test_a_terminal_sees_the_tokens_of_a_decoding_as_they_come(headwise, runs, monkeypatch):
    draw = ("generate", runs["language-model"], "the pre", "--length", 30)
    written = headwise(*draw).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert headwise(*draw).out == written


@pytest.mark.parametrize(
    ("command", "task", "names"),
    [
        ("generate", "language-model", ["perplexity", "nats"]),
        ("tag", "tag", ["accuracy", "F1"]),
        ("classify", "classify", ["accuracy", "F1"]),
    ],
)
def test_each_task_is_read_from_standard_input_and_evaluated(headwise, runs, monkeypatch, command, task, names):
    report = json.loads(headwise("evaluate", runs[task], "--json").out)
    assert report["task"] == task and [score["name"] for score in report["scores"]] == names
    stdin = TextIOWrapper(BytesIO(b"good\nbad\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert len(headwise(command, runs[task], "--json").out.splitlines()) == 2


def test_evaluate_reads_tags_by_the_ending_of_their_file(headwise, runs, tmp_path):
    rows = [("the", "DET"), ("dog", "NOUN"), ("sat", "NOUN"), ("zzz", "NOUN")]
    columns = [f"{place}\t{word}\t_\t{tag}" + "\t_" * 6 for place, (word, tag) in enumerate(rows, 1)]
    (tmp_path / "own.conllu").write_text("\n".join(columns) + "\n\n")
    (tmp_path / "own.tsv").write_text("the dog sat zzz\tDET NOUN NOUN NOUN\n")
    reports = [
        json.loads(headwise("evaluate", runs["tag"], "--data", f"own.{e}", "--json").out) for e in ("conllu", "tsv")
    ]
    assert reports[0]["scores"] == reports[1]["scores"] and reports[0]["items"] == 1
    assert [score["name"] for score in reports[0]["scores"]][-1] == "accuracy on unknown words"
    counts = dict(zip(reports[0]["confusion"]["labels"], reports[0]["confusion"]["counts"], strict=True))
    assert sum(counts["NOUN"]) == 3
    (tmp_path / "bad.tsv").write_text("the dog\tDET\n")
    refused = headwise("evaluate", runs["tag"], "--data", "bad.tsv")
    assert refused.status == 2 and "bad.tsv, line 1: 2 words but 1 tags" in refused.err


def test_a_language_model_is_scored_on_a_text_of_ones_own(headwise, runs, tmp_path):
    (tmp_path / "own.txt").write_text("the president is present.\n")
    (tmp_path / "odd.txt").write_text("qqqq zz q zzz.\n")
    known, odd = (
        json.loads(headwise("evaluate", runs["language-model"], "--data", file, "--json").out)["scores"][1]["value"]
        for file in ("own.txt", "odd.txt")
    )
    assert known < 1 < odd


def test_the_confusion_picture_holds_labels_and_counts(headwise, runs, tmp_path):
    outcome = headwise("evaluate", runs["tag"], "--confusion", "tags.svg")
    assert "accuracy 100.0 %" in outcome.out and "tags.svg" in outcome.err
    drawn = list(ElementTree.parse(tmp_path / "tags.svg").getroot().itertext())
    assert {"DET", "NOUN", "VERB", "8", "12"} <= {text.strip() for text in drawn}
    assert headwise("evaluate", runs["classify"], "--confusion", "labels.png").status == 0
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")


MISTAKES = [
    ("tag", "classify", ["good"], "this run was trained to classify, not to tag"),
    ("classify", "tag", ["good"], "this run was trained to tag, not to classify"),
    ("generate", "tag", ["good"], "not to language-model"),
    ("complete", "classify", ["good"], "not to language-model"),
    ("translate", "tag", ["good"], "not to transduce"),
    (
        "evaluate",
        "language-model",
        ["--confusion", "c.svg"],
        "name one that was trained to tag or classify or classify-images",
    ),
    ("evaluate", "language-model", ["--show", 3], "use `headwise generate`"),
    ("evaluate", "tag", ["--confusion", "c.jpg"], "c.jpg: the file ends in '.jpg'"),
    ("evaluate", "tag", ["--data", "a", "--data", "b", "--data", "c"], "one file, or two"),
    ("tag", "tag", ["--file", "nowhere"], "--file nowhere: cannot be read"),
    ("generate", "language-model", ["a", "--temperature", 0, "--top-k", 3], "set temperature above 0"),
    ("generate", "language-model", ["a", "--temperature", 0, "--samples", 3], "nbest = 3 needs"),
]


@pytest.mark.parametrize(("command", "task", "arguments", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(headwise, runs, command, task, arguments, sentence):
    outcome = headwise(command, runs[task], *arguments)
    assert outcome.status == 2 and sentence in outcome.err and outcome.out == ""
    assert "Traceback" not in outcome.err
