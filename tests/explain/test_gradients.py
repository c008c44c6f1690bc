"""Gradients over distance: the closed form, bounds, overflow and its cure, truncation, and the command."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from headwise.blocks.mixers.recurrent import Elman, Lstm
from headwise.cli.explain import app
from headwise.errors import UserError
from headwise.explain.chart import Chart, Line, spread_labels
from headwise.explain.gradients import (
    CLIP,
    WIDTH,
    GradientMeasurements,
    GradientSettings,
    Linear,
    jacobian_norms,
    measure,
    scale_recurrence,
    unroll,
)
from headwise.explain.gradients_story import build_story
from headwise.explain.story import render_text
from headwise.inspect.svg import Path as Polyline
from headwise.inspect.svg import Text

GIVEN = GradientSettings(length=60, rho=(0.9, 1.0, 1.1), truncate=7)


@pytest.fixture(scope="module")
def result() -> GradientMeasurements:
    return measure(GIVEN)


def curve(result: GradientMeasurements, path: str, setting: float | None = None) -> np.ndarray:
    (one,) = [each for each in result.curves if (each.path, each.setting) == (path, setting)]
    assert one.norms.shape == (GIVEN.length + 1,)
    return one.norms


def test_linear_networks_follow_the_closed_form(result: GradientMeasurements) -> None:
    for rho in GIVEN.rho:
        expected = rho ** np.arange(GIVEN.length + 1)
        assert curve(result, "linear", rho) == pytest.approx(expected, rel=1e-9)


def test_tanh_stays_below_the_closed_form(result: GradientMeasurements) -> None:
    for rho in GIVEN.rho:
        bound = rho ** np.arange(GIVEN.length + 1)
        assert (curve(result, "tanh", rho) <= bound * (1 + 1e-12)).all()
        assert curve(result, "tanh", rho)[-1] < 1e-6


def test_gates_residuals_and_attention_preserve_gradients(result: GradientMeasurements) -> None:
    tanh = curve(result, "tanh", 1.0)[-1]
    assert curve(result, "LSTM", 1.0)[-1] > 1000 * tanh
    assert curve(result, "LSTM", 3.0)[-1] > 0.1
    assert curve(result, "residual").min() > 0.5 and curve(result, "residual").max() < 100
    attention = curve(result, "attention")[1:]
    assert attention.max() / attention.min() < 5  # no decay: near and far alike
    assert abs(np.log(attention[:20].mean() / attention[-20:].mean())) < 0.5


@pytest.mark.parametrize("make", [Linear, Elman, Lstm])
def test_norms_are_those_of_the_jacobian(make: type) -> None:
    torch.manual_seed(0)
    network = make(WIDTH, WIDTH).double()
    x = torch.randn(4, WIDTH, dtype=torch.float64)

    def onward(state: torch.Tensor) -> torch.Tensor:
        return network(x[None, 1:], state[None])[1][0]

    state = unroll(network, x)[1][0].detach()
    jacobian = torch.autograd.functional.jacobian(onward, state)
    assert jacobian_norms(unroll(network, x))[3] == pytest.approx(
        float(torch.linalg.matrix_norm(jacobian, 2)), rel=1e-9
    )


def test_float32_overflows_where_the_closed_form_says(result: GradientMeasurements) -> None:
    assert result.exploding_rho == 1.1
    finite = {length: math.isfinite(value) for length, value in result.overflow.items()}
    assert finite == {10: True, 100: True, 300: True, 1000: False}  # 1.1^931 is more than float32 holds


def test_clipping_makes_an_exploding_network_converge(result: GradientMeasurements) -> None:
    wild, tamed = result.losses[0.0], result.losses[CLIP]
    assert wild[0] == tamed[0] > 1e4
    assert not any(math.isfinite(loss) for loss in wild[1:])
    assert all(math.isfinite(loss) for loss in tamed) and tamed[-1] < 1e-2 * tamed[0]


def test_clipping_also_helps_with_a_large_recurrent_matrix() -> None:
    steep = measure(GradientSettings(length=10, rho=(1.9,), truncate=3))
    assert steep.train_length == 15 and steep.losses[CLIP][-1] < 1e-2 * steep.losses[CLIP][0]
    assert not math.isfinite(steep.losses[0.0][1])


def test_truncation_is_exactly_zero_beyond_and_changes_nothing_within(result: GradientMeasurements) -> None:
    cut = result.truncated.norms
    assert cut[: GIVEN.truncate + 1] == pytest.approx(1.1 ** np.arange(GIVEN.truncate + 1), rel=1e-9)
    assert (cut[GIVEN.truncate + 1 :] == 0).all()
    x = torch.randn(9, WIDTH, dtype=torch.float64)
    network = scale_recurrence(Linear(WIDTH, WIDTH), 0.8)
    assert torch.equal(unroll(network, x, truncate=2)[-1], unroll(network, x)[-1])


def test_measuring_restores_the_random_state() -> None:
    before = torch.random.get_rng_state()
    measure(GradientSettings(length=10, rho=(1.0,), truncate=3))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_story_has_the_measured_numbers(result: GradientMeasurements) -> None:
    text = render_text(build_story(GIVEN, result)).plain
    for shown in ("linear, ρ 0.9", "Truncated after 7 steps", "n = 931", "NaN", "clip 1", f"{0.9**60:.1e}"[:3]):
        assert shown in text


def test_the_command_writes_strict_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gradients", "--length", "12", "--rho", "0.5", "1.2", "--truncate", "4", "--json"]
    app([*arguments, "--out", str(tmp_path / "x.svg")], result_action="return_value")

    def refuse(constant: str) -> None:
        raise AssertionError(f"not JSON: {constant}")

    data = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert data["rho"] == [0.5, 1.2] and data["float32"]["largest"][-1] is None
    assert data["norms"][0]["norms"] == pytest.approx([0.5**k for k in range(13)])
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    words = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"linear, ρ 1.2", "tanh, ρ 0.5", "attention", "distance T − t"} <= words
    assert all(0 <= float(node.attrib.get("x", 0)) <= float(root.attrib["width"]) for node in root.iter())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"length": 5}, "--length 5: must be between 10 and 1000"),
        ({"rho": ()}, "--rho: give one to four numbers"),
        ({"rho": (2.5,)}, r"--rho 2.5: must be between 0.1 and 1.9"),
        ({"rho": (float("nan"),)}, "--rho nan"),
        ({"truncate": 100}, "--truncate 100: must be between 1 and 99"),
    ],
)
def test_errors_are_one_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        GradientSettings(**changes)  # type: ignore[arg-type]


def test_a_chart_skips_values_without_a_logarithm() -> None:
    chart = Chart(
        "c", "x", "y", (Line("a", [0, 1, 2], [1, 100, 0]), Line("b", [0, 1, 2], [10, math.inf, 1e-9])), floor=1
    )
    shapes = chart.draw_at(0, 0)
    first, second = [shape for shape in shapes if isinstance(shape, Polyline)][-2:]
    assert len(first.points) == 2 and len(second.points) == 1
    assert first.points[0][1] > first.points[1][1]  # larger is higher
    assert {"1", "10²", "a", "b"} <= {shape.text for shape in shapes if isinstance(shape, Text)}


def test_labels_do_not_overlap_and_keep_their_order() -> None:
    heights = spread_labels([99.0, 98.0, 100.0, 5.0], 10, 100.0)
    assert heights == [90.0, 80.0, 100.0, 5.0]
