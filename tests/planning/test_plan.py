"""Strategies have the memory and traffic of their closed forms; plans choose what fits, and published runs are near."""

import json
import re
from dataclasses import replace

import pytest

from headwise.cli.main import main
from headwise.errors import UserError
from headwise.planning.devices import Device, get_device, read_devices
from headwise.planning.plan import make_plan
from headwise.planning.strategies import count_memory, count_sent, estimate_step, time_operations
from headwise.planning.trace import Operation, StepTrace

GB = 10**9
TRACE = StepTrace(
    parameters=GB, largest_layer=GB // 10, rows=2, length=100, weights=4 * GB, casts=0, activations=6 * GB,
    peak=7 * GB, operations=[Operation(10**12, 10**6, False), Operation(0, 10**9, False), Operation(10, 10, True)],
)  # fmt: skip
DEVICE = Device("test", 40 * GB, {"float32": 1e12}, 0.5, 1e9, 1e-3, 1e9, 0.5e9, 8)


def test_times_are_those_of_the_slower_of_arithmetic_and_memory():
    assert time_operations(TRACE, DEVICE, "float32") == pytest.approx(1 + 1 + 1e-3)


def test_memory_of_strategies():
    moments = 8 * GB
    alone = count_memory(TRACE, "none", 1, 1, moments)
    assert alone == {"weights": 4 * GB, "optimiser": moments, "activations and gradients": 7 * GB}
    assert sum(count_memory(TRACE, "none", 1, 2, moments).values()) == 4 * GB + 4 * GB + moments + 6 * GB
    assert sum(count_memory(TRACE, "ddp", 4, 1, moments).values()) == 4 * GB + 4 * GB + moments + 6 * GB
    sharded = count_memory(TRACE, "fsdp", 4, 1, moments)
    assert sum(sharded.values()) == (4 * GB + 4 * GB + moments) / 4 + 6 * GB + 1.2 * GB


def test_bytes_sent_by_ring_algorithms():
    size = 4 * GB
    assert count_sent(TRACE, "ddp", 4, 3) == 2 * 3 / 4 * size
    assert count_sent(TRACE, "fsdp", 4, 1) == 3 * 3 / 4 * size
    assert count_sent(TRACE, "fsdp", 4, 2) == 5 * 3 / 4 * size
    assert count_sent(TRACE, "none", 1, 1) == 0


def test_communication_is_hidden_behind_computation_as_far_as_it_goes():
    step = estimate_step(TRACE, DEVICE, strategy="ddp", devices=4, accumulate=1, precision="float32",
                         checkpointing=False)  # fmt: skip
    assert step.exposed == pytest.approx(6 - 2.001 * 2 / 3)
    far = estimate_step(TRACE, DEVICE, strategy="ddp", devices=16, accumulate=1, precision="float32",
                        checkpointing=False)  # fmt: skip
    assert far.exposed > 2 * step.exposed  # over the network
    assert step.tokens == 4 * 200


def test_a_plan_takes_the_fastest_that_fits():
    plan = make_plan("gpt2-tiny", get_device("a100-40gb"), devices=2, length=64, batch_tokens=1024, tokens=1e9)
    assert plan.best is not None and plan.best.strategy == "ddp" and plan.steps[0].fits
    assert plan.best.tokens_per_second == max(s.tokens_per_second for s in plan.steps if s.strategy == "ddp")
    assert all(step.tokens == 1024 for step in plan.steps)
    assert plan.count_days(plan.best) == pytest.approx(1e9 / plan.best.tokens_per_second / 86400)
    assert {step.strategy for step in plan.steps} == {"ddp", "fsdp"}


def test_sharding_is_suggested_where_nothing_else_fits():
    rows = {"devices": 8, "length": 64, "batch_tokens": 8 * 64}  # one a device
    steps = make_plan("gpt2-tiny", DEVICE, **rows).steps
    least = {kind: min(step.total_memory for step in steps if step.strategy == kind) for kind in ("ddp", "fsdp")}
    assert least["fsdp"] < least["ddp"]
    memory = (least["fsdp"] + least["ddp"]) / 2 / 0.92
    plan = make_plan("gpt2-tiny", replace(DEVICE, memory=memory), **rows)
    assert plan.best is not None and plan.best.strategy == "fsdp"
    assert not any(step.fits for step in plan.steps if step.strategy == "ddp")


def test_batches_are_split_where_they_do_not_fit():
    wide = make_plan("gpt2-tiny", DEVICE, devices=1, length=64, batch_tokens=64 * 64)
    least = min(step.total_memory for step in wide.steps)
    small = replace(DEVICE, memory=0.8 * least)
    plan = make_plan("gpt2-tiny", small, devices=1, length=64, batch_tokens=64 * 64)
    assert plan.best is not None and plan.best.accumulate > 1
    assert plan.best.rows * plan.best.accumulate >= 64


def test_published_training_times_are_within_a_factor_of_three():
    """Vaswani et al. 2017: 100,000 steps of 25,000 source and target tokens on eight P100 took 12 hours."""
    plan = make_plan(
        "transformer-base", get_device("p100-16gb"), devices=8, length=32, batch_tokens=25_000, tokens=2.5e9
    )
    assert plan.best is not None
    assert 1 / 3 < plan.count_days(plan.best) / 0.5 < 3


def test_every_data_sheet_is_complete():
    for kind in read_devices():
        device = get_device(kind)
        assert device.memory > 8e9 and device.get_flops("bfloat16") > 1e13 and device.get_link(10**6) <= device.link


def test_the_command_prints_a_plan(capsys, tmp_path):
    picture = tmp_path / "plan.svg"
    main(["plan", "gpt2-tiny", "--devices", "16", "--kind", "v100-32gb", "--tokens", "1e9", "--plot", str(picture)])
    shown = capsys.readouterr().out
    assert "* suggested: " in shown and "days for 1G tokens" in shown and re.search(r"fsdp \+ checkpointing", shown)
    assert picture.read_text().count("tokens/s") == 4
    main(["plan", "gpt2-tiny", "--devices", "2", "--length", "64", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["precision"] == "bfloat16" and len(report["steps"]) == 4


def test_nothing_fits_and_what_would(capsys):
    small = ["--kind", "rtx4090-24gb", "--devices", "2", "--length", "128", "--set", "depth=2"]
    main(["plan", "gpt3-175b", *small])
    assert re.search(r"nothing fits 24 GB; (fsdp fits on \d+ devices|one row is too large)", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpt2-tiny", "--kind", "h100"], "no data on devices of the kind 'h100'; did you mean h100-80gb"),
        (["gpt2-tiny", "--batch-tokens", "100"], "--batch-tokens 8192 is the least"),
        (["gpt2-tiny", "--tokens", "nan"], "--tokens: nan is no number of tokens"),
        (["gpt2-tinyy"], "there is no model 'gpt2-tinyy'; did you mean gpt2-tiny"),
        (["gpt2-tiny", "--plot", "plan.gif"], "plan.gif: the file ends in '.gif'"),
        (["gpt2-tiny", "--devices", "12", "--job", "slurm"], "12 devices do not fill nodes of 8; give 8 or 16"),
        (["resnet-tiny"], "models of texts that give a loss can be"),
    ],
)
def test_wrong_words_are_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UserError, SystemExit)) as error:
        main(["plan", *words])
    assert message in str(error.value) or error.value.code == 2
    assert not list(tmp_path.iterdir())
