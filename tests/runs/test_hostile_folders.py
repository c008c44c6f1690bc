"""Run folders that anybody may have made: nothing outside is written, and one bad folder hides no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headwise.compare.config import ComparisonConfig, Suite
from headwise.config.base import validate
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.runs import Run, find_runs, summarize_run
from headwise.runs.checkpoint import Checkpoint, load_latest, load_weights, read_checkpoint, save
from headwise.runs.manifest import Damaged, write_manifest
from headwise.scaling.config import ScalingConfig
from headwise.studio.run_history import get_rows, get_samples, summarize
from headwise.studio.run_registry import RunRegistry
from headwise.utils.files import write

DEEP = "[" * 50_000


def make_run(folder: Path, name: str = "good") -> Run:
    run = Run.create(folder / name, {"task": "transduce", "train": {"steps": 9, "average_checkpoints": 2}})
    best = {"name": "nll", "value": 1.5, "step": 3}
    run.metrics.append({"step": 3, "epoch": 1, "minutes": 0.5, "loss": 2.0, "valid": {"nll": 1.5}})
    save(run, Checkpoint({"step": 3, "epoch": 1, "minutes": 0.5, "best": best}, {"w": torch.ones(2)}))
    return run


def refusal(call: Callable[[], object]) -> str:
    """The sentence with which a call is refused; empty where it is not."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


# --- Links -----------------------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Run], object]] = {
    "lock": lambda run: run.lock().__enter__(),
    "metrics.jsonl": lambda run: run.metrics.append({"step": 4}),
    ".tmp-last": lambda run: run.write_pointer("last", 7),
    ".tmp-metrics.jsonl": lambda run: run.metrics.rewind(1),
    "last": lambda run: run.write_pointer("last", 7),
    "checkpoints/.tmp-step-4": lambda run: save(run, Checkpoint({"step": 4}, {"w": torch.ones(2)})),
    "checkpoints/step-4": lambda run: save(run, Checkpoint({"step": 4}, {"w": torch.ones(2)})),
}


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
@pytest.mark.parametrize("name", WRITES)
def test_no_write_follows_a_link_out_of_the_folder(tmp_path, name, link):
    run, victim = make_run(tmp_path), tmp_path / "victim"
    victim.write_text("precious")
    (run.path / name).unlink(missing_ok=True)
    link(victim, run.path / name)
    message = refusal(lambda: WRITES[name](run))
    assert not message or f"{name}: it is a {'symbolic' if link is os.symlink else 'hard'} link" in message
    assert victim.read_text() == "precious"


def test_checkpoints_in_a_linked_folder_are_not_deleted(tmp_path):
    run, elsewhere = make_run(tmp_path), tmp_path / "elsewhere"
    os.rename(run.checkpoints, elsewhere)
    (elsewhere / ".tmp-work").mkdir()
    run.checkpoints.symlink_to(elsewhere)
    with (
        pytest.raises(UserError, match=r"checkpoints: it is a symbolic link; delete the link, or use a copy"),
        run.lock(),
    ):
        pass
    assert {path.name for path in elsewhere.iterdir()} == {"step-3", ".tmp-work"}


def test_resuming_a_run_with_a_linked_lock_is_one_sentence(tmp_path):
    run, victim = make_run(tmp_path), tmp_path / "victim"
    victim.write_text("precious")
    (run.path / "lock").symlink_to(victim)
    code = f"from headwise.runs import Run\nwith Run.open({str(run.path)!r}).lock(): pass"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "lock: it is a symbolic link" in result.stderr.splitlines()[-1] and victim.read_text() == "precious"


# --- Files that training cannot have written -------------------------------------------------------------------------


def to_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def to_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def to_zeros(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


FILES = ("info.json", "config.toml", "metrics.jsonl", "checkpoints/step-3/state.json", "best", "lock")
STATE = "checkpoints/step-3/state.json"
CONTENTS: dict[tuple[str, str], str] = {
    ("info.json", "number for text"): '{"created": 12345}',
    ("info.json", "list"): "[1, 2]",
    ("info.json", "deep"): DEEP,
    ("info.json", "bytes"): "\ud800",
    ("config.toml", "deep"): f"a = {DEEP}",
    ("config.toml", "text for table"): 'train = "fast"\ntask = 5\nmodel = [1]\ntuning = 3',
    ("metrics.jsonl", "deep"): DEEP + "\n",
    ("metrics.jsonl", "types"): '{"loss": [1]}\n{"valid": 3}\n{"samples": "a"}\n{"valid": {"nll": "x"}}\n',
    (STATE, "deep"): DEEP,
    (STATE, "text for number"): '{"step": "abc", "minutes": "soon"}',
    (STATE, "best"): '{"step": 3, "best": {"name": 7, "value": "low"}}',
    (STATE, "best list"): '{"step": 3, "best": [1]}',
    (STATE, "digits"): '{"step": ' + "9" * 5000 + "}",
    ("best", "digits"): "step-" + "9" * 5000,
    ("lock", "bytes"): "\ud800",
}  # fmt: skip
SPECIAL = {"fifo": to_fifo, "folder": to_folder, "zeros": to_zeros}


def spoil(run: Run, name: str, how: str) -> None:
    path = run.path / name
    if how in SPECIAL:
        SPECIAL[how](path)
    else:
        path.write_bytes(CONTENTS[name, how].encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("name", "how"), [*CONTENTS, *((name, how) for name in FILES for how in SPECIAL)], ids=lambda value: str(value)
)
def test_one_bad_folder_leaves_the_others_listed(tmp_path, name, how):
    make_run(tmp_path, "good"), make_run(tmp_path, "bad")
    spoil(Run(tmp_path / "bad"), name, how)
    listed = {run.name: summarize_run(run) for run in find_runs(tmp_path)}
    assert (listed["good"].steps, listed["good"].best, listed["good"].problem) == (3, 1.5, "")
    registry = RunRegistry([tmp_path])
    summaries = {item.name: summarize(item) for item in registry.items().values()}
    assert summaries["good"]["steps"] == 3 and summaries["good"]["state"] == "interrupted"
    json.dumps(summaries)
    for item in registry.items().values():
        problem = refusal(lambda item=item: (get_rows(item, 0, 0), get_samples(item), item.to_dict()))
        assert not problem or (item.name == "bad" and str(tmp_path / "bad") in problem)
    if "bad" in summaries and summaries["bad"]["state"] == "damaged":
        assert "bad" in summaries["bad"]["problem"] and "\n" not in summaries["bad"]["problem"]


@pytest.mark.parametrize(
    ("name", "how"), [("info.json", "fifo"), ("config.toml", "deep"), ("info.json", "number for text")]
)
def test_the_command_lists_good_runs_and_says_what_is_bad(tmp_path, name, how):
    make_run(tmp_path, "good"), make_run(tmp_path, "bad")
    spoil(Run(tmp_path / "bad"), name, how)
    call = [sys.executable, "-m", "headwise", "runs", str(tmp_path)]
    shown = subprocess.run([*call, "--compare"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and "good" in shown.stdout and "damaged" in shown.stdout, shown.stderr
    assert str(tmp_path / "bad" / name) in shown.stderr and "Traceback" not in shown.stderr
    listed = json.loads(subprocess.run([*call, "--json"], capture_output=True, text=True, timeout=60).stdout)
    assert {each["name"]: bool(each["problem"]) for each in listed} == {"good": False, "bad": True}


@pytest.mark.parametrize("name", ["[/bold]", "a\x1b[2Jb", b"\xff\xfe", "[red]x"])
def test_a_folder_may_have_any_name(tmp_path, name):
    make_run(tmp_path, "good"), make_run(tmp_path, os.fsdecode(name))
    shown = subprocess.run([sys.executable, "-m", "headwise", "runs", str(tmp_path)], capture_output=True, timeout=60)
    assert shown.returncode == 0 and b"good" in shown.stdout and b"\x1b[2J" not in shown.stdout, shown.stderr
    json.dumps([summarize(item) for item in RunRegistry([tmp_path]).items().values()], ensure_ascii=False).encode()


def test_a_state_that_is_sealed_but_wrong_is_damage(tmp_path):
    run = make_run(tmp_path)
    for content in ('{"step": "abc"}', '{"epoch": 1}', DEEP):
        (run.checkpoint_path(3) / "state.json").write_text(content)
        write_manifest(run.checkpoint_path(3))
        with pytest.raises(Damaged, match="step-3 is damaged"):
            read_checkpoint(run.checkpoint_path(3))


def test_weights_are_found_whatever_the_config_says_of_training(tmp_path):
    run = make_run(tmp_path)
    write(run.path / "config.toml", 'train = "fast"\n')
    assert load_weights(run, "average").keys() == {"w"}


# --- Weights that are lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("part", ["model", "ema"])
def test_weights_that_are_not_finite_are_not_saved_and_nothing_is_pruned(tmp_path, part, value):
    run = make_run(tmp_path)
    bad = {"model": {"w": torch.ones(2)}, part: {"w": torch.tensor([1.0, value])}}
    with pytest.raises(UserError, match=r"the weights are not finite \(w\), so they are not saved"):
        save(run, Checkpoint({"step": 4}, **bad), keep=1)
    assert run.steps() == [3] and load_latest(run).step == 3
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-3"]


def test_a_stored_checkpoint_that_is_not_finite_is_passed_over(tmp_path, caplog):
    run = make_run(tmp_path)
    save(run, Checkpoint({"step": 4}, {"w": torch.ones(2)}))
    from safetensors.torch import save_file

    save_file({"w": torch.tensor([1.0, torch.nan])}, run.checkpoint_path(4) / "model.safetensors")
    write_manifest(run.checkpoint_path(4))
    assert load_latest(run).step == 3 and "step-4 is damaged: w is not finite" in caplog.text


# --- Names -----------------------------------------------------------------------------------------------------------

OUTSIDE = ["../x", "/tmp/x", "a/b", "..", ".", ".tmp-x", "a\\b", "a\nb", "a\0b", "x" * 300]
DATA = {"experiment": {"data": {"train": "a.txt"}}}
NAMED = {
    Experiment: {"data": {"train": "a.tsv"}, "train": {"steps": 1}},
    ComparisonConfig: {**DATA, "budget": {"steps": 9}, "arm": [{"name": "a"}]},
    Suite: {"tables": {"t": {**DATA, "budget": {"steps": 9}, "arm": [{"name": "a"}]}}},
    ScalingConfig: {
        **DATA,
        "tokens": (1000, 4000),
        "size": [{"name": f"w{width}", "set": {"model.width": width}} for width in (16, 32, 64)],
    },
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("config", NAMED)
def test_a_name_stays_in_the_folder_of_runs(config, name):
    validate(config, {**NAMED[config], "name": "a name-1.2"}, "file")
    with pytest.raises(UserError, match=r"^file: name: a folder's name .*; choose "):
        validate(config, {**NAMED[config], "name": name}, "file")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_run_is_made_nowhere_else(tmp_path, name):
    with pytest.raises(UserError, match="a folder's name"):
        Run.create_unique(tmp_path / "runs", name, {})
    assert not list(tmp_path.iterdir())
