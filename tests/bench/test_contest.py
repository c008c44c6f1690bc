"""A contest on the smallest shape, with real processes; those of other libraries' engines run in this one."""

import gc
import io
import json
import os
import sys
import warnings
from typing import Any

import pytest

from headwise.bench.contest import Result, run_contest, select_engines
from headwise.bench.jobs import SHAPES, STACKS, DecodeJob, EncodeJob, GenerateJob, GptJob, TrainJob, get_shape
from headwise.bench.worker import main as run_worker
from headwise.cli.bench import app
from headwise.errors import UserError


def test_the_command_times_every_engine_and_prints_json(capsys):
    command = "decode --shape tiny --length 5 --repeats 2 --engines headwise-int8 --peer headwise --json"
    app(command.split(), result_action="return_value")
    found = json.loads(capsys.readouterr().out)
    assert found["shape"]["width"] == 32 and found["threads"] == 1 and found["peer"] == "headwise"
    first, second = found["results"]
    assert first["engine"] == "headwise" and first["ratio"] == 1.0
    assert first["tokens"] == second["tokens"] == 5  # never fewer: no engine may end early
    assert len(first["seconds"]) == len(second["seconds"]) == 2 and min(first["seconds"]) > 0
    assert second["agreement"] == 1


def test_a_failing_engine_is_named():
    with pytest.raises(UserError, match=r"headwise: its process failed \(KeyError.*leave it out"):
        run_contest([DecodeJob(engine="headwise", shape=SHAPES["tiny"])], "nothing known", repeats=1)


def test_a_missing_peer_is_reported(monkeypatch, tmp_path):
    (tmp_path / "x_transformers.py").write_text("raise ModuleNotFoundError('no', name='x_transformers')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (result,) = run_contest([TrainJob(engine="x-transformers", shape=SHAPES["tiny"], rows=2, length=4)], "train", 1)
    assert result.missing.startswith("the package x_transformers is not installed") and not result.seconds


def test_ratios_compare_neighbours_in_time():
    peer = Result("peer", tokens=10, seconds=[2.0, 4.0, 2.0], cpu=[1.0, 1.0, 1.0])
    fast = Result("fast", tokens=10, seconds=[1.0, 2.0, 2.0], cpu=[0.5, 0.25, 0.25])
    assert fast.ratio(peer) == 2.0 and fast.ratio(peer, "cpu") == 4.0
    assert fast.rate == 5.0
    assert Result("gone", missing="x is not installed").ratio(peer) == 0.0


def test_agreement_counts_what_one_side_lacks():
    long, short = Result("a", 4, outputs=[[5, 6], [7, 8]]), Result("b", 3, outputs=[[5, 6], [9]])
    assert short.agreement(long) == long.agreement(short) == 0.5


def test_mistakes_are_one_sentence():
    with pytest.raises(UserError, match="did you mean small"):
        get_shape("smal", SHAPES)
    with pytest.raises(UserError, match="did you mean marian"):
        select_engines(["marien"], ["headwise", "marian"], "marian")
    with pytest.raises(UserError, match="rows: input should be greater"):
        app(["decode", "--rows", "0", "--shape", "tiny"], result_action="return_value")
    with pytest.raises(UserError, match="at least once"):
        run_contest([], "decode", repeats=0)
    assert select_engines(["headwise"], ["x", "headwise", "marian"], "marian") == ["headwise", "marian"]


@pytest.mark.parametrize(
    ("kind", "what", "engines", "settings"),
    [
        (GptJob, "gpt", ("headwise", "transformers"), {"rows": 2, "length": 8}),
        (EncodeJob, "encode", ("headwise", "headwise-int8", "transformers"), {"rows": 2, "length": 8}),
        (GenerateJob, "generate", ("headwise", "transformers"), {"prompt": 3, "length": 6}),
    ],
)
def test_one_stack_in_every_engine(
    kind: Any, what: str, engines: tuple[str, ...], settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [kind(engine=engine, shape=STACKS["tiny"], **settings) for engine in engines]
    results = [time_once(job, what, monkeypatch) for job in jobs]
    assert not any(result.missing for result in results)
    assert len({result.tokens for result in results}) == 1 and all(result.seconds for result in results)
    if what == "generate":
        assert results[0].agreement(results[1]) == 1.0


def time_once(job: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """One repeat by the worker in this process: importing torch and transformers anew takes seconds for each engine."""
    responses = io.StringIO()
    with monkeypatch.context() as patch, warnings.catch_warnings():
        patch.setattr(sys, "stdin", io.StringIO("{}\n"))
        patch.setattr(sys, "stdout", responses)
        try:
            run_worker(what, job.model_dump_json())
        finally:
            gc.enable()
    first, *repeats = map(json.loads, responses.getvalue().splitlines())
    return Result(job.engine, **first, seconds=[times["seconds"] for times in repeats])
