"""Gradients by layer and amplified noise: known laws are told apart, wirings behave as in the paper, the command."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from headwise.cli.explain import app
from headwise.errors import UserError
from headwise.explain.depth import WIRINGS, DepthMeasurements, DepthSettings, fit_growth, measure, to_json
from headwise.explain.depth_story import build_story
from headwise.explain.story import render_text

GIVEN = DepthSettings((2, 6, 18), width=32, seeds=2)


@pytest.fixture(scope="module")
def result() -> DepthMeasurements:
    return measure(GIVEN)


@pytest.mark.parametrize(("law", "better"), [(lambda n: 3 + 2 * n, "N"), (lambda n: 1 + 2 * np.log(n), "log N")])
def test_growth_laws_are_recognised(law, better: str) -> None:
    layers = np.array((2, 4, 8, 16, 32))
    growth = fit_growth((2, 4, 8, 16, 32), law(layers)[:, None] * np.array([0.9, 1.1]))
    assert growth.better_fit == better and growth.fits[better] == pytest.approx(1)
    assert growth.mean == pytest.approx(law(layers))


def test_the_exponent_of_a_power_law_is_recovered() -> None:
    assert fit_growth((2, 4, 8), np.array([[2.0], [4.0], [8.0]]) ** 0.7).exponent == pytest.approx(0.7)


def uneven(result: DepthMeasurements, wiring: str, stack: str, depth: int = GIVEN.depths[-1]) -> float:
    norms = result.gradients[wiring, stack, depth]
    assert norms.shape == (depth,)
    return norms.max() / norms.min()


def test_gradients_vanish_in_the_post_norm_decoder_alone(result: DepthMeasurements) -> None:
    norms = result.gradients["post", "decoder", GIVEN.depths[-1]]
    assert norms.argmin() < 3 and uneven(result, "post", "decoder") > 30
    assert uneven(result, "post", "decoder") > 5 * uneven(result, "post", "decoder", 6)
    assert uneven(result, "post", "encoder") < 3
    assert all(uneven(result, wiring, stack) < 8 for wiring in ("pre", "admin") for stack in ("encoder", "decoder"))


def test_noise_is_amplified_most_by_post_norm(result: DepthMeasurements) -> None:
    post, pre, admin = (result.growth[wiring] for wiring in WIRINGS)
    assert post.exponent > 0.8 > max(pre.exponent, admin.exponent) and post.better_fit == "N"
    assert post.mean[-1] > 2.5 * max(pre.mean[-1], admin.mean[-1])


def test_scales_grow_down_the_stack(result: DepthMeasurements) -> None:
    assert result.scales[0] == 1 and result.scales.shape == (2 * GIVEN.depths[-1],)
    assert (np.diff(result.scales) > 0).all()


def test_measuring_restores_the_random_state() -> None:
    before = torch.random.get_rng_state()
    small = DepthSettings((2, 3, 4), width=8, seeds=1)
    one, two = to_json(small, measure(small)), to_json(small, measure(small))
    assert one == two and torch.equal(torch.random.get_rng_state(), before)


def test_the_story_has_the_measured_numbers(result: DepthMeasurements) -> None:
    text = render_text(build_story(GIVEN, result)).plain
    assert "Post-LN: N fits better" in text and "ω by residual sum" in text
    for wiring, growth in result.growth.items():
        assert f"{WIRINGS[wiring]}: {growth.better_fit} fits" in text and f"N^{growth.exponent:.2f}" in text


def test_the_command_writes_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["depth", "--depths", "2", "3", "4", "--width", "8", "--seeds", "1", "--json"]
    app([*arguments, "--out", str(tmp_path / "x.svg")], result_action="return_value")
    data = json.loads(capsys.readouterr().out)
    assert data["depths"] == [2, 3, 4] and len(data["gradients"]) == 18 and len(data["scales"]) == 8
    assert [row["wiring"] for row in data["amplification"]] == ["post", "pre", "admin"]
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    words = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Post-LN", "Pre-LN", "Admin", "layers N"} <= words


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"depths": (2, 4)}, "--depths: give three to ten"),
        ({"depths": (8, 4, 2)}, "each larger than the one before"),
        ({"depths": (2, 4, 500)}, "between 2 and 128"),
        ({"width": 30}, "--width 30: must be a multiple of 4"),
        ({"seeds": 0}, "--seeds 0: must be between 1 and 20"),
    ],
)
def test_errors_are_one_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        DepthSettings(**changes)  # type: ignore[arg-type]
