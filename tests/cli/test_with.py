"""`--with FILE` and `--trust` in every command, before it or after it."""

import json
import subprocess
import sys

import pytest

from headwise.cli.new import render_template
from headwise.config.plugins import forget_parts, list_parts_files


@pytest.fixture
def files(tmp_path):
    """A mixer and a model of the user's own."""
    (tmp_path / "mine.py").write_text(render_template("mixer", "mine"))
    (tmp_path / "mymodel.py").write_text(render_template("model", "my_model"))


def test_show_and_list_know_parts_and_models(headwise, files):
    shown = headwise("show", "gpt2-tiny", "--set", "mixer=mine", "--with", "mine.py")
    assert shown.status == 0 and "Mine" in shown.out
    assert headwise("--with", "mymodel.py", "show", "my_model").out.startswith("my_model-base LanguageModel")
    (row,) = json.loads(headwise("list", "my_model", "--json", "--with=mymodel.py").out)
    assert row["name"] == "my_model-base" and row["parameters"] > 1e6
    listed = headwise("list", "--with", "mymodel.py")
    assert "my_model  A decoder in which layers with sliding window attention" in listed.out
    refused = headwise("list", "--with", "no.py")
    assert (refused.status, refused.err) == (2, "headwise: no.py: there is no such file\n")


def test_bench_gives_the_file_to_its_processes(headwise, files):
    words = ("--mixers", "mine", "--lengths", "16", "--repeats", "1", "--json", "--heads", "2", "--head-width", "8")
    done = headwise("bench", "attention", *words, "--with", "mine.py")
    rows = {row["mixer"]: row for row in json.loads(done.out)["results"]}
    assert done.status == 0 and not rows["mine"].get("missing"), done.out


def test_a_run_works_with_the_file_with_trust_and_not_alone(headwise, files, experiment_file, tmp_path):
    experiment = experiment_file(steps=2)
    trained = headwise("train", experiment, "--set", "model.mixer=mine", "--with", "mine.py")
    assert trained.status == 0, trained.err
    forget()
    (tmp_path / "mine.py").rename(tmp_path / "moved.py")
    assert headwise("runs").status == 0
    for command in ("translate", "evaluate", "inspect"):
        words = (command, "runs/reverse", *(("abc",) if command != "evaluate" else ()))
        refused = headwise(*words)
        assert refused.status == 2 and "add --trust (in Python trust=True)" in refused.err, refused.err
    assert not list_parts_files()
    assert headwise("translate", "runs/reverse", "abc", "--trust").status == 0
    forget()
    assert headwise("translate", "runs/reverse", "abc").status == 2  # it was for that command alone
    assert headwise("evaluate", "runs/reverse", "--with", "moved.py").status == 0
    assert headwise("train", "--resume", "runs/reverse").status == 0


def forget():
    for parts in list_parts_files():
        forget_parts(parts)


def test_a_comparison_gives_the_file_to_its_processes(headwise, files, experiment_file, tmp_path):
    experiment_file(steps=2)
    (tmp_path / "table.toml").write_text(
        'seeds = [1]\nscore = "SER"\n[experiment.data]\ntrain = "pairs.tsv"\ncache = "cache"\n'
        '[experiment.model]\nkind = "transformer-tiny"\n[experiment.train]\nsteps = 2\nbatch_size = 32\nthreads = 1\n'
        '[[arm]]\nname = "mine"\nset = { "model.mixer" = "mine" }\n'
    )
    compared = headwise("compare", "table.toml", "--with", "mine.py", "--format", "json", "--jobs", "1")
    assert compared.status == 0, compared.err
    assert "done" in headwise("compare", "table.toml", "--with", "mine.py", "--dry-run").out
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text() + "\n# changed\n")
    assert "to train" in headwise("compare", "table.toml", "--with", "mine.py", "--dry-run").out


def test_help_names_the_options_of_all_commands(headwise):
    for words in (("--help",), ("train", "--help"), ("bench", "--help"), ("bench", "train", "--help")):
        assert "--with FILE" in headwise(*words).out, words


def test_the_studio_opens_a_trusted_run_alone(headwise, files, experiment_file, tmp_path):
    """In a process of its own, as the command starts it."""
    headwise("train", experiment_file(steps=2), "--set", "model.mixer=mine", "--with", "mine.py")
    code = (
        "from pathlib import Path; from headwise.config.plugins import take_options; import sys\n"
        "from headwise.studio.workspace import load_model; from headwise.studio.run_registry import RunRegistry\n"
        "take_options(sys.argv[1:]); load_model(RunRegistry([Path('runs')])['reverse'])"
    )
    for options, works in (((), False), (("--trust",), True), (("--with", "mine.py"), True)):
        done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode == 0) == works, done.stderr
        assert works or "not executed unless you trust it" in done.stderr
