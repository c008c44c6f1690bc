"""An episode of an agent frame by frame, in a real browser."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

from headwise.experiment.config import Experiment
from headwise.experiment.load import load
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.worlds.environments import Environment
from headwise.worlds.rollout import film
from headwise.worlds.spaces import EpisodeEncoder, Spaces

AGENT = {"kind": "attention-agent-tiny", "side": 64}
RUNS = {
    "looker": ({"task": "evolve", "data": {"name": "catch"}, "model": AGENT}, {"falls": 2}),
    "planner": ({"task": "act", "data": {"train": "none"}, "model": "decision-transformer-tiny"}, {"max_steps": 9}),
}

OBSERVE = {"looker": "pixels", "planner": "state"}
PLACES = "(all) => all.map((each) => [each.y, each.x].map((at) => at.baseVal.value))"


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents") / "runs"
    for name, (settings, world) in RUNS.items():
        torch.manual_seed(1)
        experiment = Experiment.model_validate({**settings, "train": {"steps": 1}})
        place = Environment.of("catch" if name == "looker" else "grid", world | {"observe": OBSERVE[name]})
        encoder = EpisodeEncoder.without_logs(place.id, place.settings, Spaces.of(place.make(1)))
        task = experiment.create_task(Tokenisers(encoder, encoder))
        built = task.build(experiment.model).eval()
        TrainedModel(built, Tokenisers(encoder, encoder), experiment).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def playing_studio(serve, agents):
    with serve(agents) as address:
        yield address


def go(page: Page, studio, state: str, ready: str = "play") -> None:
    page.goto("about:blank")
    page.goto(f"{studio.url}#/play?{state}")
    expect(page.locator("main")).to_have_attribute("data-ready", ready, timeout=30_000)


def ask(studio, path: str, body: dict | None = None) -> tuple[int, bytes]:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{studio.url}api/play{path}", content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_patches_actions_and_returns_are_those_of_the_agent(page: Page, playing_studio, agents):
    loaded = load(agents / "looker")
    place = Environment.of("catch", {"falls": 2, "distractors": 2})
    watched = film(place, loaded.task.build_policy(loaded.model), 3)
    go(page, playing_studio, "run=looker&seed=3&distractors=2&step=5")
    scene = page.get_by_role("region", name="Episode")
    expect(scene.locator("p.note")).to_contain_text(
        f"step 5 of {len(watched.episode)} action {watched.episode.actions[4]}, reward"
    )
    side = float(scene.locator("svg.scene").get_attribute("width"))
    drawn = scene.locator("rect.patch").evaluate_all(PLACES)
    expected = side * watched.views[4].patches[::-1, :2]
    assert np.allclose(drawn, expected, atol=side / 60_000)
    expect(scene.locator("svg.scene > image")).to_have_attribute("href", re.compile("^data:image/png"))
    before = scene.locator("svg.scene > image").get_attribute("href")
    step = page.get_by_role("slider", name="Step")
    step.press("ArrowRight")
    expect(scene.locator("p.note")).to_contain_text("step 6 of")
    assert "step=6" in page.url
    expect(scene.locator("svg.scene > image")).not_to_have_attribute("href", before)
    scene.get_by_role("button", name="no patches").click()
    scene.get_by_role("button", name="attention", exact=True).click()
    expect(scene.locator("rect.patch")).to_have_count(0)
    expect(scene.locator("image.heat")).to_have_count(1)
    assert "patches=0" in page.url and "heat=1" in page.url
    expect(page.get_by_role("region", name="Attention to past steps")).to_be_hidden()
    returns = page.get_by_role("region", name="Returns")
    returns.locator("svg.plot").press("ArrowRight")
    expect(scene.locator("p.note")).to_contain_text("step 1 of")


def test_an_episode_plays_and_pauses(page: Page, playing_studio):
    go(page, playing_studio, "run=looker&seed=1")
    scene = page.get_by_role("region", name="Episode")
    runs = scene.locator("button[data-key=runs]")
    runs.click()
    expect(scene.locator("p.note")).to_contain_text(re.compile(r"step (\d+) of \1 "), timeout=30_000)
    expect(runs).to_have_text("▶ Play")
    runs.click()  # from the beginning
    expect(scene.locator("p.note")).not_to_contain_text(re.compile(r"step (\d+) of \1 "))
    runs.click()
    expect(runs).to_have_text("▶ Play")


def test_a_decision_transformer_shows_what_it_is_asked_for_and_its_past(page: Page, playing_studio):
    go(page, playing_studio, "run=planner&seed=2&target=5&step=4")
    expect(page.get_by_role("region", name="Episode").locator("p.note")).to_contain_text("still asked for 5.06")
    bars = page.get_by_role("region", name="Attention to past steps").locator("svg rect")
    expect(bars).to_have_count(2 * 4)  # layers, steps so far
    expect(page.get_by_role("region", name="Probabilities of actions")).to_have_count(0)
    expect(page.get_by_role("region", name="Actions")).to_contain_text("p(action 3)")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"run": "planner", "colours": "shifted"}, "colours"),
        ({"run": "looker", "target": 3}, "is asked for none"),
        ({"run": "nobody"}, "there is no run 'nobody'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(playing_studio, body, says):
    status, told = ask(playing_studio, "", body)
    assert status == 400 and says in json.loads(told)["error"]


def test_missing_steps_and_episodes_are_refused(playing_studio):
    status, answer = ask(playing_studio, "", {"run": "looker"})
    header = json.loads(answer[4 : 4 + int.from_bytes(answer[:4], "little")])
    assert status == 200 and header["steps"] == len(header["rewards"])
    assert ask(playing_studio, f"/{header['name']}/0.png")[1].startswith(b"\x89PNG")
    for path in (f"/{header['name']}/{header['steps']}.png", "/forgotten/0.png"):
        assert ask(playing_studio, path)[0] == 400, path
