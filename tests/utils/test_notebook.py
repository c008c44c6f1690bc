"""HTML for notebooks: names are escaped, and nothing leaks from one output into another."""

import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from torch import nn

import headwise
from headwise.compare.progress import Lines, make_progress
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.evaluate.score import Score
from headwise.experiment.config import Experiment
from headwise.inference.maps import Maps
from headwise.inference.trained_model import TrainedModel
from headwise.models.notebook import render_model
from headwise.runs import Run
from headwise.runs.notebook import draw_curve
from headwise.utils.notebook import in_notebook

EVIL = "<script>alert(1)</script>"


class Elements(HTMLParser):
    """The elements of a page and their attributes; every end tag closes the last open element."""

    def __init__(self, html: str):
        super().__init__()
        self.names, self.attributes, self.open = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        self.attributes += [name for name, _ in attributes]
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.names.append(tag)
        self.attributes += [name for name, _ in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_alone(html: str) -> Elements:
    """Check that HTML brings no script, style sheet, id or event handler into the notebook."""
    elements = Elements(html)
    assert not {"script", "style", "link"} & set(elements.names)
    assert not [name for name in elements.attributes if name == "id" or name.startswith("on")]
    return elements


def test_maps_are_one_sandboxed_frame_with_the_whole_page():
    maps = Maps({"cross": np.full((1, 2, 1, 2), 0.5)}, (EVIL, '"i'), ("HH",))
    html = maps._repr_html_()
    assert check_alone(html).names == ["iframe"]
    page = unescape(re.search('srcdoc="([^"]*)"', html)[1])
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>") and EVIL not in page
    assert 'sandbox="allow-scripts"' in html  # without the notebook's origin


def test_a_model_shows_shapes_and_counts():
    model = headwise.build("transformer-tiny", vocab=100)
    html = model._repr_html_()
    check_alone(html)
    assert f"{sum(weight.numel() for weight in model.parameters()):,} parameters" in html
    assert " × 2 " in html  # two equal layers


def test_names_of_modules_are_escaped():
    model = nn.Module()
    model.add_module(EVIL, nn.Linear(2, 3))
    assert EVIL not in render_model(model) and "3 × 2" in render_model(model)


@pytest.mark.parametrize("name", ["ngram", "hmm", "skipgram", "gpt2", "bert", "vit", "detr", "t5"])
def test_models_of_every_kind_show_themselves(name):
    assert type(headwise.build(name, device="meta")).__name__ in headwise.build(name, device="meta")._repr_html_()


def test_a_run_shows_its_curves_and_best_score(tmp_path):
    run = Run.create(tmp_path / "a&b", {})
    assert "<svg" not in run._repr_html_()  # nothing yet
    for step in (1, 2, 3):
        run.metrics.append({"step": step, "loss": 1 / step, "valid": {"nll": 0.5}})
    html = run._repr_html_()
    check_alone(html)
    assert html.count("<svg") == 1 and "a&amp;b" in html  # no checkpoint names a score yet
    (run.path / "config.toml").write_text("= broken")
    assert "cannot be read" in run._repr_html_()


def test_a_trained_model_shows_its_tree_and_a_short_text():
    settings = {"task": "classify-images", "model": "vit", "train": {"steps": 1}}
    experiment = Experiment.model_validate({**settings, "data": {"kind": "images", "name": "digits"}})
    model = nn.Linear(2, 2)
    trained = TrainedModel(model, None, experiment)
    assert repr(trained) == "TrainedModel(task='classify-images', model=Linear)" and trained._repr_html_() is None
    model._repr_html_ = lambda: "<div>a tree</div>"
    assert trained._repr_html_() == "<div>a tree</div>"


def test_a_curve_spans_its_axes_and_skips_what_is_not_finite():
    points = re.search('points="([^"]*)"', draw_curve("loss", [(0, 2.0), (5, float("nan")), (10, 1.0)]))[1].split()
    (left, top), (right, bottom) = (map(float, point.split(",")) for point in points)
    assert left < right and top < bottom  # a loss that falls goes down
    assert "nan" not in draw_curve("loss", [(1, 1.0)])  # one point
    assert draw_curve("loss", [(1, float("inf"))]) == ""


def test_a_comparison_is_a_table(tmp_path):
    outcome = Outcome({"SER": Score("SER", 20.0, 19.0, 21.0)}, 10, 5, 3.0, 1.0, tmp_path, tmp_path)
    arms = {name: Arm(name, {1: outcome}, {2: EVIL}) for name in ("a<b", "c")}
    html = Comparison("Wirings & more", arms).rank_by("SER")._repr_html_()
    check_alone(html)
    assert "Wirings &amp; more" in html and "a&lt;b" in html and EVIL not in html and "20.0 ± 1.0" in html


def test_outside_of_a_notebook_progress_is_lines():
    assert not in_notebook() and isinstance(make_progress(), Lines)
