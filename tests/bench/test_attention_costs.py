"""Costs of mixers over length: the fits, the errors against a direct computation, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.bench import memory
from headwise.bench.attention import Costs, Limits, MixerCosts, build_jobs, run_repeat
from headwise.bench.attention_report import build_tables, to_json
from headwise.bench.cost_fit import crossover, extrapolate, fit_exponent
from headwise.bench.jobs import MixerJob
from headwise.bench.mixers import LayerBenchmark, build_ours, observe_layer, relative_error
from headwise.cli.bench import app
from headwise.errors import UserError

LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]


@pytest.mark.parametrize("power", [0.5, 1.0, 1.1, 2.0])
def test_the_fit_recovers_a_known_exponent(power: float) -> None:
    noise = [1.02, 0.97, 1.01, 1.0, 0.99, 1.01]
    costs = [3e-4 * n**power * factor for n, factor in zip(LENGTHS, noise, strict=True)]
    result = fit_exponent(LENGTHS, costs)
    assert result is not None and abs(result - power) < 0.03


def test_what_is_paid_once_does_not_count_at_long_lengths() -> None:
    result = fit_exponent(LENGTHS, [50.0 + n for n in LENGTHS])
    assert result is not None and result > 0.98
    assert fit_exponent([512], [1.0]) is None


def test_curves_cross_where_they_do() -> None:
    linear, square = [100.0 * n for n in LENGTHS], [n**2 / 30 for n in LENGTHS]
    assert crossover(LENGTHS, linear, square) == pytest.approx(3000, rel=1e-6)
    assert crossover(LENGTHS, square, linear) is None  # ahead at first, behind in the end
    assert crossover(LENGTHS, [1.0] * 6, [2.0] * 6) == 512
    dip = [2.0, 0.5, 2.0, 0.5, 0.5, 0.5]  # ahead once by chance
    assert crossover(LENGTHS, dip, [1.0] * 6) == pytest.approx(math.sqrt(2048 * 4096))


def test_costs_that_would_go_too_far_are_left_out() -> None:
    assert extrapolate([1024, 2048], [1.0, 2.0], 8192) == pytest.approx(8.0)
    assert extrapolate([1024], [1.0], 4096) == 16.0 and extrapolate([], [], 512) == 0.0
    costs = Costs({1024: [1.0, 1.0], 2048: [9.0, 4.0]}, {1024: 10**9, 2048: 4 * 10**9})
    assert costs.times == {1024: 1.0, 2048: 4.0}
    assert costs.skip_reason(4096, Limits(20, 1e12)) == ""
    assert costs.skip_reason(4096, Limits(10, 1e12)) == "> 10 s"
    assert costs.skip_reason(4096, Limits(20, 8e9)) == "> 8 GB"
    costs.skipped[4096] = "> 8 GB"
    assert costs.skip_reason(8192, Limits(math.inf, math.inf)) == "> 8 GB"


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mixer", ["performer", "linear", "attention", "window"])
@torch.no_grad()
def test_errors_are_those_of_a_direct_computation(mixer: str, causal: bool) -> None:
    torch.manual_seed(0)
    job = MixerJob(engine=mixer, mixer=mixer, heads=2, head_width=8, causal=causal)
    part, x = build_ours(job, 300).eval(), torch.randn(1, 300, 16)
    mixed, look = observe_layer(part, x)
    q, k, v = part.qkv.split(part.qkv.project(x))  # type: ignore[attr-defined]
    exact = attention(q, k, v, causal)
    expected = ((part(x) - part.out(exact.transpose(1, 2).flatten(2))).norm()) / exact.norm()  # type: ignore[operator]
    result = relative_error(mixed, look, causal, rows=64, blocks=100)
    assert result is not None and mixed is not None
    assert result == pytest.approx(float((mixed - exact).norm() / exact.norm()), rel=1e-4, abs=1e-6)
    assert (result < 1e-5) == (mixer == "attention")
    torch.testing.assert_close(part.out(mixed.transpose(1, 2).flatten(2)), part(x))  # type: ignore[operator]
    assert expected > 0 or mixer == "attention"
    sampled = relative_error(mixed, look, causal, rows=32, blocks=4)
    assert sampled is not None and 0.5 * result <= sampled + 1e-6 and sampled <= 2 * result + 1e-6


def test_a_window_is_compared_with_attention_to_all_keys() -> None:
    mixer = {"kind": "attention", "score_mods": [{"kind": "window", "left": 2, "right": 2}]}
    job = MixerJob(engine="near", mixer=mixer, heads=2, head_width=8)
    result = LayerBenchmark(job)(40, first=True)
    assert result["error"] > 0.1


def test_who_has_no_queries_has_no_error() -> None:
    for mixer in ("fourier", "tokens", {"kind": "attention", "score": "random"}):
        result = LayerBenchmark(MixerJob(engine="x", mixer=mixer, heads=2, head_width=8))(40, first=True)
        assert result["error"] is None and result["seconds"] > 0


def test_memory_is_the_growth_at_the_peak() -> None:
    before = memory.reset_peak()
    block = torch.ones(2**25 // 4)  # 32 MiB, touched
    del block
    result = memory.peak_growth(before)
    assert result is not None and 2**25 * 0.9 < result < 2**25 * 1.6


def test_each_mixer_brings_its_package_and_exact_attention() -> None:
    assert [job.engine for job in build_jobs(["performer", "linear"])] == [
        "sdpa",
        "performer",
        "performer-pytorch",
        "linear",
    ]
    (_, job) = build_jobs(['{kind="performer", features=8}'], causal=True)
    assert job.mixer.features == 8 and job.causal
    with pytest.raises(UserError, match="--mixers: there is no 'performr'; did you mean performer"):
        build_jobs(["performr"])
    with pytest.raises(UserError, match=r"--mixers: mixer\.feature: unknown key; did you mean features"):
        build_jobs(['{kind="performer", feature=8}'])


def test_tables_say_what_was_left_out() -> None:
    base, other = MixerCosts("sdpa"), MixerCosts("plain")
    for row, scale in ((base, 1.0), (other, 4.0)):
        for costs in row.costs.values():
            costs.seconds = {512: [9.0, scale], 1024: [9.0, 3 * scale]}
            costs.bytes = {512: 10**6, 1024: 4 * 10**6}
    other.costs["forward and backward"].skipped = {2048: "> 8 GB"}
    result = {title: cells for title, _, cells in build_tables([base, other], [512, 1024, 2048])}
    assert result["milliseconds, forward"][1][:3] == ["plain", "4,000", "12,000"]
    assert result["milliseconds, forward"][1][-1] == "never" and result["milliseconds, forward"][0][-1] == "-"
    assert result["milliseconds, forward and backward"][1][3] == "> 8 GB"
    assert result["peak megabytes, forward and backward"][0][1:3] == ["1", "4"]


class Here(LayerBenchmark):
    """A mixer in this process, asked like one in its own."""

    def run_repeat(self, **request: Any) -> dict[str, Any]:
        return self(**request)


def test_repeats_become_figures() -> None:
    rows = []
    for name in ("sdpa", "linformer", "linformer (PyPI)"):
        (job,) = (job for job in build_jobs(["linformer"], heads=2, head_width=8) if job.engine == name)
        rows.append(MixerCosts(name))
        for length, number in [(64, 0), (64, 1), (128, 0), (128, 1)]:
            run_repeat(Here(job), rows[-1], length, number, Limits())  # type: ignore[arg-type]
    base, own, package = to_json(rows)
    assert base["errors"][64] < 1e-5 < own["errors"][64] and not package["errors"]
    forward = own["passes"]["forward"]
    assert len(forward["seconds"][128]) == 2 and forward["times_package"][128] > 0 and forward["exponent"] is not None
    assert not base["passes"]["forward"]["times_package"] and json.dumps([base, own, package])


def test_the_command_measures_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "attention --mixers sdpa --causal --heads 2 --head-width 8 --repeats 1 --lengths 64 128"
    app([*small.split(), "--out", str(tmp_path / "x.svg")], result_action="return_value")
    shown = capsys.readouterr().out
    assert "milliseconds, forward; 2 heads of 8, causal, threads 1, medians of 1" in shown
    assert shown.count("sdpa") == 5 and "exponent" in shown
    assert {"sdpa", "length"} <= set((tmp_path / "x.svg").read_text().replace("<", ">").split(">"))


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    for words, problem in [
        (["--lengths", "0"], "lengths of 2 tokens or more"),
        (["--repeats", "0"], "at least one repeat"),
        (["--out", str(tmp_path / "x.gif")], "ends in '.gif'"),
        (["--heads", "0"], "heads: input should be greater"),
    ]:
        with pytest.raises(UserError, match=problem):
            app(["attention", *words], result_action="return_value")
