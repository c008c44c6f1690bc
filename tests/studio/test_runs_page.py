"""The page of training runs, in a real browser: curves as they are written, and comparisons."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headwise.compare.values import Outcome
from headwise.evaluate.score import Score
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, save
from headwise.studio.comparing import describe_table, find_tables
from headwise.studio.run_history import get_rows, get_state, summarize
from headwise.studio.run_registry import RunFolder

LOSSES = (4.0, 3.0, 2.5)


@pytest.fixture(scope="module", autouse=True)
def trained(runs: Path) -> Run:
    """One of the runs has been trained for a while, with a validation."""
    run = Run(runs / "reverse")
    for number, loss in enumerate(LOSSES, 1):
        run.metrics.append({"step": 10 * number, "epoch": 0, "minutes": number / 2, "loss": loss, "rate": 0.1})
    run.metrics.append({"step": 30, "epoch": 1, "minutes": 1.5, "valid": {"nll": 1.25}})
    return run


@pytest.fixture(scope="module", autouse=True)
def compared(runs: Path) -> Path:
    folder = runs / "compare" / "sizes"
    for arm, values in {"small": (30.0, 32.0), "large": (20.0, 23.0)}.items():
        for seed, value in enumerate(values, 1):
            run = Run.create(folder / f"{arm}-{seed}", {"name": f"{arm}-{seed}", "seed": seed})
            score = Score("SER", value, value - 1, value + 1)
            Outcome({"SER": score}, 1000, None, 10.0, 1.0, run.path, run.path / "items.json").save(
                run.path / "outcome.json", "key"
            )
    return folder


def opened(page: Page, studio, query: str = "") -> Page:
    page.goto("about:blank")
    page.goto(f"{studio.url}#/runs?{query}")
    expect(page.locator("main")).to_have_attribute("data-ready", "runs", timeout=60_000)
    return page


def test_curves_show_the_metrics_and_are_exported(page, studio):
    opened(page, studio, "runs=reverse&show=loss")
    curve, note = page.locator("path.curve"), page.locator("section[aria-label=Curves] .note")
    expect(curve).to_have_count(1)
    assert curve.get_attribute("d").count("L") == len(LOSSES) - 1
    page.locator("svg.plot").first.focus()
    for _ in LOSSES:
        page.keyboard.press("ArrowRight")
    expect(note).to_contain_text("reverse loss at step 30: 2.5")
    expect(page.locator("section[aria-label=Scores] tbody tr")).to_contain_text(["1.25"])

    text = taken(page, "HTML")
    assert "<svg" in text and "<script" not in text and "http://127" not in text and '"loss": 2.5' in text
    assert json.loads(taken(page, "JSON"))[0]["run"] == "reverse"

    page.get_by_role("button", name="minutes").click()
    page.get_by_role("button", name="rate").click()
    expect(page.locator("svg.plot[aria-label*=minutes]")).to_have_count(2)
    assert "over=minutes" in page.url


def taken(page: Page, kind: str) -> str:
    with page.expect_download() as waiting:
        page.locator("section[aria-label=Curves]").get_by_role("button", name=kind).click()
    return Path(waiting.value.path()).read_text()


def test_smoothing_settings_and_comparisons(page, studio, runs):
    opened(page, studio, "runs=reverse/%3Cb%3Ex&show=loss&smooth=0.5&table=sizes")
    expect(page.locator("path.curve")).to_have_count(2)
    page.locator("svg.plot").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    second = (0.5 * 4 * 0.5 + 0.5 * 3) / (1 - 0.5**2)
    expect(page.locator("section[aria-label=Curves] .note")).to_contain_text(f"step 20: {second:.6f}")

    cells = page.locator("section[aria-label='Settings that differ'] tr", has_text="task.kind")
    expect(cells.locator("td")).to_have_count(2)
    assert set(cells.locator("td").all_inner_texts()) == {"transduce", "language-model"}
    expect(page.locator(".check", has_text="<b>x")).to_have_count(1)

    panel = page.locator("section[aria-label=Comparisons]")
    expect(panel.locator("circle.seed")).to_have_count(4)
    found = describe_table([runs], "sizes")
    expect(panel.locator("tbody tr").nth(1)).to_contain_text(found["rows"][1][0])
    lane = {lane["name"]: lane for lane in found["arms"]}["large"]
    assert (lane["estimate"]["mean"], lane["estimate"]["over"]) == (21.5, "seeds")
    panel.locator("g[aria-label=large]").hover()
    expect(panel.locator(".note").first).to_contain_text("mean 21.50")


def test_curves_of_a_running_training_are_updated(page, studio, trained):
    live = page.context.browser.new_page()
    live.clock.install()
    with trained.lock():
        opened(live, studio, "runs=reverse&show=loss")
        expect(live.locator(".state.running")).to_have_count(1)
        trained.metrics.append({"step": 40, "epoch": 1, "minutes": 2.0, "loss": 2.25})
        live.clock.fast_forward(3_100)
        expect(live.locator("path.curve")).to_have_attribute("d", live_path(4), timeout=5_000)
    live.close()
    trained.metrics.rewind(30)


def test_samples_are_listed_by_validation_and_escaped(page, studio, trained):
    for step, output in ((40, "<b>a</b>"), (50, "<b>a</b>"), (60, "b a")):
        sample = {"source": "a b", "output": output, "reference": "b a"}
        trained.metrics.append({"step": step, "epoch": 1, "minutes": 2.0, "valid": {"nll": 1.0}, "samples": [sample]})
    opened(page, studio, "runs=reverse")
    panel = page.locator("section[aria-label=Samples]")
    expect(panel.locator("tr")).to_have_text(["sourcea b", "referenceb a", "step 60b a", "step 40<b>a</b>"])
    expect(panel.locator("tr.right")).to_have_text(["step 60b a"])
    trained.metrics.rewind(30)
    opened(page, studio, "runs=reverse")
    expect(panel).to_contain_text("has no samples")


def live_path(points: int) -> re.Pattern[str]:
    return re.compile(r"^M[^L]*" + r"L[^L]*" * (points - 1) + "$")


def test_only_new_rows_are_sent_and_all_rows_after_a_rewind(trained):
    item = RunFolder("reverse", trained.path)
    every = get_rows(item, 0, 0)
    assert [row["step"] for row in every["rows"]] == [10, 20, 30, 30] and every["rows"][-1]["valid nll"] == 1.25
    assert get_rows(item, 3, 30) == {**every, "since": 3, "rows": every["rows"][3:]}
    assert get_rows(item, 3, 20) == get_rows(item, 99, 30) == every


def test_run_states_are_distinguished(tmp_path):
    run = Run.create(tmp_path / "run", {"train": {"steps": 10, "patience": 2}})
    assert get_state(run) == "untrained"
    run.metrics.append({"step": 5, "loss": 1.0})
    save(run, Checkpoint({"step": 5}, {}))
    assert get_state(run) == "interrupted"
    with run.lock():
        assert get_state(run) == "running"
    save(run, Checkpoint({"step": 6, "stale": 2}, {}))
    assert get_state(run) == "done"
    save(run, Checkpoint({"step": 10}, {}))
    assert get_state(run) == "done"


def test_a_damaged_run_is_reported_and_hides_no_other(tmp_path):
    run = Run.create(tmp_path / "run", {"task": "transduce", "train": {"steps": 10}})
    save(run, Checkpoint({"step": 5, "best": {"value": 1.0, "step": 5}}, {}))
    (run.checkpoint_path(5) / "state.json").write_text('{"step": "many", "best": 3}')
    told = summarize(RunFolder("run", run.path))
    assert (
        told["state"] == "damaged" and told["task"] == "transduce" and "state.json: step is 'many'" in told["problem"]
    )


def test_the_later_of_two_runs_of_a_cell_counts_and_damaged_ones_are_skipped(compared, runs, tmp_path):
    copy = Run.create(tmp_path / "sizes" / "a-1-2", {"name": "a-1", "seed": 1})
    outcome = Outcome.load(compared / "small-1" / "outcome.json", "key")
    replace(outcome, run=copy.path).save(copy.path / "outcome.json", "other")
    for name, written in {"b-1": "{", "c-1": (copy.path / "outcome.json").read_text()}.items():
        (tmp_path / "sizes" / name).mkdir()  # and no config is there
        (tmp_path / "sizes" / name / "outcome.json").write_text(written)
    assert [lane["name"] for lane in describe_table([tmp_path], "sizes")["arms"]] == ["a"]
    assert set(find_tables([runs, tmp_path])) == {"sizes", f"{tmp_path.name}-sizes"}
