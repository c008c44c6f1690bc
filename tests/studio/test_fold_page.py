"""Folding a chain, in a real browser."""

import json
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
from headwise.inspect.fold_inspection import FoldInspection, take_test_chain
from headwise.proteins.readers.pdb import read_pdb
from headwise.proteins.residues import CA, RESIDUE_TYPES
from headwise.testing import perturb_parameters
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

CHAINS = {"min_length": 12, "max_length": 12, "rows": 6, "families": 1, "valid_families": 1, "test_families": 2}
RUNS = {
    "folded": {"task": {"kind": "fold", "clusters": 4, "extra": 2, "weights": {"aligned_error": 0.1}}},
    "distances": {"task": {"kind": "distogram", "restarts": 1, "minimise_steps": 2}},
}
PIXELS = "(canvas) => canvas.toDataURL()"


@pytest.fixture(scope="module")
def folding_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folding") / "runs"
    for (name, settings), model in zip(RUNS.items(), ("alphafold2-tiny", "alphafold1-tiny"), strict=True):
        torch.manual_seed(1)
        experiment = Experiment.model_validate({**settings, "model": model, "data": CHAINS, "train": {"steps": 1}})
        tokenisers = Tokenisers(*[Characters(RESIDUE_TYPES)] * 2)
        built = perturb_parameters(experiment.create_task(tokenisers).build(experiment.model)).float().eval()
        TrainedModel(built, tokenisers, experiment).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def folding_studio(serve, folding_runs):
    with serve(folding_runs) as address:
        yield address


def go(page: Page, studio, state: str, ready: str = "fold") -> None:
    page.goto("about:blank")
    page.goto(f"{studio.url}#/fold?{state}")
    expect(page.locator("main")).to_have_attribute("data-ready", ready, timeout=30_000)


def ask(studio, path: str, body: dict | None = None) -> tuple[int, bytes]:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{studio.url}api/fold{path}", content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def header(answer: bytes) -> dict:
    return json.loads(answer[4 : 4 + int.from_bytes(answer[:4], "little")])


def test_the_trace_turns_by_mouse_touch_and_keys(page: Page, folding_studio):
    go(page, folding_studio, "run=folded&chain=2")
    trace = page.locator("canvas.trace")
    views = [trace.evaluate(PIXELS)]
    box = trace.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] + 25)
    page.mouse.up()
    views.append(trace.evaluate(PIXELS))
    for key in ("ArrowLeft", "ArrowUp", "+"):
        trace.press(key)
        views.append(trace.evaluate(PIXELS))
    trace.evaluate(
        """(canvas) => {
            canvas.setPointerCapture = () => {};
            const finger = { pointerId: 9, pointerType: "touch", clientY: 200 };
            const send = (name, x) => canvas.dispatchEvent(new PointerEvent(name, { ...finger, clientX: x }));
            send("pointerdown", 100); send("pointermove", 160); send("pointerup", 160);
        }"""
    )
    views.append(trace.evaluate(PIXELS))
    assert len(set(views)) == len(views)
    page.mouse.move(0, 0)
    trace.press("Home")
    assert trace.evaluate(PIXELS) == views[0]
    page.get_by_role("button", name="position").click()
    page.get_by_role("button", name="without").click()
    assert "colour=position" in page.url and "true=0" in page.url
    assert trace.evaluate(PIXELS) != views[0]


def test_maps_and_attention_are_those_of_the_model(page: Page, folding_studio, folding_runs):
    inspection = FoldInspection(loaded := load(folding_runs / "folded"), take_test_chain(loaded, 1))
    go(page, folding_studio, "run=folded&chain=2&kind=rows&layer=0&head=1&line=2")
    sequence, attention = inspection.sequence, inspection.pictures.attention["rows"].layers[0][2, 1]
    panel = page.get_by_role("region", name="Attention", exact=True)
    for _ in range(2):
        panel.locator("svg.matrix-figure").press("ArrowDown")  # first into the map, then down
    expect(panel.locator(".note")).to_have_text(
        f"{sequence[1]}2 attends to {sequence[0]}1 with weight {attention[1, 0]:.4f}"
    )
    pairs = page.get_by_role("region", name="Pairs of residues")
    pairs.locator("svg.matrix-figure").press("ArrowRight")
    pairs.locator("svg.matrix-figure").press("ArrowRight")
    expect(pairs.locator(".note")).to_have_text(
        f"{sequence[0]}1, {sequence[1]}2 {inspection.pictures.distances[0, 1]:.2f} Å"
    )
    pairs.get_by_label("Map").select_option("predicted aligned error")
    pairs.locator("svg.matrix-figure").press("ArrowRight")
    expect(pairs.locator(".note")).to_contain_text(f"{inspection.pictures.aligned_error[0, 0]:.2f} Å")
    confidence = page.get_by_role("region", name="Confidence")
    confidence.locator("svg.plot").press("ArrowRight")
    expect(confidence.locator("p.note")).to_contain_text(f"pLDDT {inspection.confidence[0]:.1f}, lDDT-Cα")
    panel.get_by_label("Kind").select_option(label="triangle attention around the starting node")
    expect(panel.locator(".note")).to_contain_text("edge i–j attends to the edges i–k")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="PDB").click()
    (written,) = read_pdb(Path(waiting.value.path()).rename(Path(waiting.value.path()).with_suffix(".pdb")))
    assert np.allclose(written.atoms[:, CA], inspection.structure.atoms[:, CA], atol=2e-3)
    with page.expect_download() as waiting:
        page.get_by_role("region", name="Structure").get_by_role("button", name="HTML").click()
    assert "createTrace" in Path(waiting.value.path()).read_text()


def test_a_sequence_of_ones_own_has_no_truth(page: Page, folding_studio):
    go(page, folding_studio, "run=distances&sequence=MKVLAW")
    expect(page.get_by_role("region", name="Structure")).to_contain_text(
        "The true structure of this chain is not known"
    )
    expect(page.get_by_label("Secondary structure")).to_contain_text("MKVLAW")
    expect(page.get_by_role("region", name="Attention", exact=True)).to_contain_text("it has no attention")
    go(page, folding_studio, "run=folded&sequence=MK1", "problem")
    expect(page.locator("form .problem")).to_contain_text("'1' is no amino acid")
    go(page, folding_studio, "run=folded&chain=2&kind=sideways&layer=9&true=yes")
    for problem in ("kind must be", "There is no layer 10", "true must be 0 or 1"):
        expect(page.locator("#address")).to_contain_text(problem)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"run": "folded", "alignment": ">a\nMKV\n>b\nMK\n"}, "row 2 (b) has 2 columns and the query 3"),
        ({"run": "folded", "alignment": ">\n"}, "the alignment is empty"),
        ({"run": "folded", "alignment": "M" * 300}, "at most 256 are allowed here"),
        ({"run": "folded", "chain": 5}, "there is no test chain 6; this run has 2"),
        ({"run": "nobody"}, "there is no run 'nobody'"),
    ],
)
def test_wrong_chains_are_refused_in_one_sentence(folding_studio, body, says):
    status, told = ask(folding_studio, "", body)
    assert status == 400 and says in json.loads(told)["error"]


def test_missing_layers_and_lines_are_refused(folding_studio):
    status, answer = ask(folding_studio, "", {"run": "folded"})
    name = header(answer)["name"]
    assert status == 200 and header(answer)["attention"][0]["heads"] == 2
    for path in (f"/{name}/rows/9", f"/{name}/sideways/0", f"/{name}/rows/0?line=99", "/forgotten/rows/0"):
        assert ask(folding_studio, path)[0] == 400, path


def test_text_pages_do_not_offer_chains(page: Page, folding_studio):
    page.goto("about:blank")
    page.goto(f"{folding_studio.url}#/look")
    expect(page.locator("form .problem")).to_contain_text("which the page Fold shows")
