"""`headwise fit` from files to a run with a model card."""

import csv
import json
import random
import shlex
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from headwise.autofit.fit import fit_files, summarise
from headwise.autofit.model_card import list_commands
from headwise.cli.main import main
from headwise.data.corpora import load_corpus
from headwise.experiment.load import load
from headwise.serve.naming import parse_specs

WORDS = ["red", "green", "blue", "yellow", "small", "large"]


def write_labelled(folder):
    chance = random.Random(1)
    rows = [
        (f"{chance.choice(WORDS)} {chance.choice(WORDS)} number {n} is {word}", label)
        for n in range(60)
        for word, label in (("good", "+"), ("bad", "-"))
    ]
    with open(folder / "my data.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return folder / "my data.csv"


def write_numbers(folder):
    rows = "".join(f"a text of {n} words or {n % 7} or so\t{n / 7:.2f}\n" for n in range(120))
    (folder / "numbers.tsv").write_text("text\tscore\n" + rows)
    return folder / "numbers.tsv"


def write_tagged(folder):
    (folder / "words.conll").write_text(
        "".join(f"the D\n{'dog' if n % 2 else 'cat'}{n % 9} N\nruns V\n\n" for n in range(80))
    )
    return folder / "words.conll"


def write_texts(folder):
    (folder / "book.txt").write_text("The sea was grey, and so was the sky\nabove it; nobody spoke.\n\n" * 150)
    return folder / "book.txt"


def write_images(folder):
    for number in range(60):
        path = folder / "shades" / ("dark", "light")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 20 + number + 120 * (number % 2), np.uint8)).save(path)
    return folder / "shades"


def write_pairs(folder):
    rows = [(f"{a} {b} {n % 9}'s", f"{n % 9} {b} {a}") for n, (a, b) in enumerate((a, b) for a in WORDS for b in WORDS)]
    (folder / "my pairs.csv").write_text("".join(f"{source};{target}\n" for source, target in rows * 2))
    return folder / "my pairs.csv"


def write_questions(folder):
    people = [
        (f"{name}{n}", city) for n in range(20) for name, city in zip("ABC", ("Rome", "Oslo", "Bern"), strict=True)
    ]
    paragraphs = []
    for name, city in people:
        context = f"{name} isn't here and lives in {city}."
        answer = {"text": city, "answer_start": context.index(city)}
        question = {"id": name, "question": f"Where's {name}?", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [question]})
    path = folder / "questions & answers.json"
    path.write_text(json.dumps({"version": "1", "data": [{"title": "people", "paragraphs": paragraphs}]}))
    return path


WRITERS = [write_labelled, write_numbers, write_tagged, write_texts, write_images]


@pytest.mark.parametrize("write", WRITERS)
def test_fit_leaves_a_run_with_a_model_card(write, tmp_path):
    path = write(tmp_path)
    lines = list[str]()
    fitted = fit_files([path], minutes=0.02, runs=tmp_path / "runs", announce=lines.append)
    assert fitted.evaluation.scores and fitted.baselines
    assert all(
        [score.name for score in baseline.scores][:1] == [fitted.evaluation.scores[0].name]
        for baseline in fitted.baselines
    )
    card = (fitted.run.path / "README.md").read_text()
    for section in ("## Data", "## Scores", "## Limits", "## Use", fitted.baselines[0].name):
        assert section in card
    assert any(path.name in line for line in lines)
    if not fitted.plan.experiment.task.unpaired and fitted.plan.experiment.task.reads == "texts":
        trained = load(fitted.run.path)
        known = {source for source, _ in load_corpus(trained.task.adapt_data(trained.data)).train}
        assert known and not known & set(fitted.evaluation.sources)  # baselines learn from what the model learns from
    assert any("baseline" in line for line in summarise(fitted))
    commands = list_commands(fitted.run, load(fitted.run.path), fitted.evaluation)
    assert shlex.split(commands["evaluate"]) == ["headwise", "evaluate", str(fitted.run.path)]


def split_by_shell(command):
    """The words of a command as the shell reads them that it is pasted into."""
    script = f"printf '%s\\0' {command.replace('&&', chr(39) + '&&' + chr(39))}"
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


@pytest.mark.parametrize("write", [*WRITERS, write_pairs, write_questions])
def test_commands_of_the_card_work_when_they_are_pasted(write, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fitted = fit_files([write(tmp_path)], minutes=0.01, runs=tmp_path / "runs", announce=lambda line: None)
    commands = list_commands(fitted.run, load(fitted.run.path), fitted.evaluation)
    for purpose, command in commands.items():
        words = split_by_shell(command)
        if purpose == "serve":  # the server starts with it
            assert parse_specs(words[2:], (), "native", "best", "cpu", 1, None)
            continue
        if purpose == "refine":
            assert [words[0], *words[3:5]] == ["cp", "&&", "headwise"]
            shutil.copy(*words[1:3])
            words = [*words[4:], "--set", "train.minutes=0.001"]
        assert words[0] == "headwise"
        main(words[1:])  # a refusal ends the process
        assert purpose != "use" or capsys.readouterr().out  # a line, empty where so little was learnt
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {fitted.run.name, f"{fitted.run.name}-2"}


def test_warnings_of_few_rows_and_the_other_reading(tmp_path):
    with open(tmp_path / "stars.csv", "w", newline="") as file:
        csv.writer(file).writerows([("review", "stars"), *((f"film {n} was seen twice", n % 3) for n in range(30))])
    lines = list[str]()
    fit_files([tmp_path / "stars.csv"], minutes=0.01, runs=tmp_path / "runs", announce=lines.append)
    text = "\n".join(lines)
    assert "30 rows are few" in text
    assert "--task regress --columns review stars" in text
