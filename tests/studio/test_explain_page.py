"""The page that explains: what it shows is what the library computes."""

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

from headwise.blocks.positions.absolute import LearnedPositions
from headwise.blocks.positions.alibi import compute_alibi_slopes
from headwise.blocks.positions.relative import T5Bias, bucket_distances
from headwise.experiment.config import Experiment
from headwise.experiment.load import load
from headwise.explain import AttentionExample, apply_mask, attend, sinusoid
from headwise.explain.attention import softmax
from headwise.explain.source import load_shipped
from headwise.inference.trained_model import TrainedModel
from headwise.studio.position_views import view_kind as places
from headwise.studio.position_views import view_model
from headwise.studio.routes.explain import SENTENCES
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words

TABLES = """[...document.querySelectorAll('table.matrix')].map((table) => [table.caption.textContent,
    [...table.rows].map((row) => [...row.querySelectorAll('td:not(.corner)')].map((cell) =>
        cell.querySelector('input')?.value ?? cell.textContent)).filter((row) => row.length)])"""
EXAMPLE = load_shipped(AttentionExample, "attention.toml")


@pytest.fixture(scope="module")
def reader(runs: Path) -> Iterator[str]:
    """A run with relative positions that knows the words of the first sentence."""
    torch.manual_seed(2)
    given = {"task": "transduce", "model": "t5-tiny", "data": {"train": "none.tsv"}, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    words = Words(sorted(set(SENTENCES[0].split())))
    tokenisers = Tokenisers(words, words)
    model = experiment.create_task(tokenisers).build(experiment.model).eval()
    TrainedModel(model, tokenisers, experiment).save(runs / "reader")
    yield "reader"
    shutil.rmtree(runs / "reader")


def opened(page: Page, studio, topic: str, **state: object) -> Page:
    """The page at this address, within the studio if it is open: its files are loaded once."""
    address = f"{studio.url}#/explain?{urllib.parse.urlencode({'topic': topic, **state})}"
    if page.url.startswith(studio.url):
        page.evaluate(
            "address => { history.replaceState(null, '', address); dispatchEvent(new Event('hashchange')); }", address
        )
    else:
        page.goto(address)
    return ready(page, topic)


def ready(page: Page, topic: str) -> Page:
    expect(page.locator("main")).to_have_attribute("data-ready", topic, timeout=60_000)
    return page


def numbers(page: Page) -> dict[str, np.ndarray]:
    """All tables of the page by the first word of their names."""
    found = page.evaluate(TABLES)
    read = {"−∞": "-inf", "": "nan"}
    return {
        name.split()[0].rstrip(","): np.array([[float(read.get(x, x.replace("−", "-"))) for x in row] for row in rows])
        for name, rows in found
    }


def asked(studio, path: str, body: object = None):
    """What the server answers: JSON, or a header with its arrays in place."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{studio.url}api/{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        content = answer.read()
        if answer.headers["content-type"] == "application/json":
            return json.loads(content)
    length = int.from_bytes(content[:4], "little")
    header, rest = json.loads(content[4 : 4 + length]), np.frombuffer(content[4 + length :], "<u2")

    def array(where: dict) -> np.ndarray:
        start, count = where["at"] // 2, int(np.prod(where["shape"]))
        steps = rest[start : start + count].reshape(where["shape"]) / 65_535
        return where["low"] + steps * (where["high"] - where["low"])

    return {key: array(value) if isinstance(value, dict) and "at" in value else value for key, value in header.items()}


def refused(studio, path: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as found:
        asked(studio, path)
    with found.value as answer:
        return answer.code, json.load(answer)["error"]


def shows(page: Page, example: AttentionExample, scaled: bool, causal: bool) -> None:
    found, wanted = numbers(page), attend(example, scaled)
    seen = np.tri(len(wanted.scores), dtype=bool) if causal else np.ones(wanted.scores.shape, dtype=bool)
    hidden = apply_mask(wanted.scores, seen)
    assert np.allclose(found["Q"], wanted.queries, atol=0.0051) and np.allclose(found["K"], wanted.keys, atol=0.0051)
    assert np.allclose(found["V"], wanted.values, atol=0.0051) and np.allclose(found["S"], hidden.scores, atol=0.0051)
    shown = [rows for name, rows in page.evaluate(TABLES) if name.startswith("softmax")]
    weights, outputs = (np.array(rows, dtype=float) for rows in shown)
    assert np.allclose(weights, hidden.weights, atol=5.1e-5)
    assert np.allclose(outputs, hidden.weights @ wanted.values, atol=5.1e-5)


def test_the_worked_example_equals_the_library_after_every_edit(page, studio):
    opened(page, studio, "attention")
    shows(page, EXAMPLE, scaled=True, causal=False)
    page.get_by_role("button", name="not scaled").click()
    shows(page, EXAMPLE, scaled=False, causal=False)
    page.get_by_role("button", name="causal mask").click()
    shows(page, EXAMPLE, scaled=False, causal=True)
    page.get_by_label("W_Q, row 1, column 3").fill("-2.5")
    query = ((1, 0, -2.5), *EXAMPLE.query[1:])
    changed = AttentionExample(**{**dict(EXAMPLE), "query": query})
    shows(page, changed, scaled=False, causal=True)
    page.get_by_label("W_Q, row 1, column 3").fill("")  # no number: nothing follows from it
    shows(page, changed, scaled=False, causal=True)
    page.reload()
    shows(ready(page, "attention"), changed, scaled=False, causal=True)


def test_every_number_shows_its_computation(page, studio):
    opened(page, studio, "attention")
    page.locator("table", has_text="S = Q Kᵀ").locator("td:not(.corner)").nth(2).hover()
    told = page.locator(".status")
    expect(told).to_contain_text("1·2 + 0·3 + 2·1 = 4, and 4 / √3 = 2.3094")
    page.keyboard.press("Tab")
    page.locator("table", has_text="softmax(S), each").locator("td:not(.corner)").first.focus()
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text(f"= {attend(EXAMPLE).weights[0, 1]:.4f}")


def test_masks_combine_and_a_masked_row_gives_zeros(page, studio):
    opened(page, studio, "masks", side="left", on="causal,padding,window")
    at = np.arange(8)
    distance = at - at[:, None]
    seen = (distance <= 0) & (distance >= -2) & (at >= 2)
    assert np.allclose(numbers(page)["softmax(0"], apply_mask(np.zeros((8, 8)), seen).weights, atol=5.1e-4)
    expect(page.get_by_label("Together")).to_contain_text("Rows 1, 2 have no visible key")
    page.get_by_label("Active masks").get_by_role("button", name="Padding").click()
    seen = (distance <= 0) & (distance >= -2)
    assert np.allclose(numbers(page)["softmax(0"], apply_mask(np.zeros((8, 8)), seen).weights, atol=5.1e-4)


def test_positions_are_drawn_with_shift_invariance_and_decay(page, studio):
    opened(page, studio, "positions", length=16, width=8)
    expect(page.get_by_text("Shift invariance: yes.")).to_be_visible()
    box = page.get_by_label("Table").locator("image").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 16 * 3.5)
    expect(page.locator(".status")).to_contain_text(f"PE(3, 0) = {sinusoid([3], 8)[0, 0]:.4f}")
    page.get_by_role("button", name="ALiBi").click()
    expect(page.locator("h2", has_text="ALiBi")).to_be_visible()
    expect(page.locator(".curve")).to_have_count(8)


def test_curves_over_distance_equal_those_of_the_models(studio, reader, runs):
    found = asked(studio, "explain/positions?kind=sinusoid&length=12&width=16")
    table = sinusoid(np.arange(12), 16)
    assert np.abs(found["table"] - table).max() < 1e-4
    assert abs(found["mean"][0, 11 + 4] - table[0] @ table[4]) < 1e-3
    assert np.abs(found["high"] - found["low"]).max() < 1e-3
    found = asked(studio, "explain/positions?kind=alibi&length=6&heads=4&head=1")
    assert np.allclose(found["mean"][:, 5 - 3], -3 * np.array(compute_alibi_slopes(4)), atol=1e-4)
    assert found["properties"][1]["holds"] and "every step" in found["properties"][1]["description"]
    found = asked(studio, "explain/positions?kind=buckets&length=40")
    assert np.allclose(found["mean"][0], bucket_distances(torch.arange(-39, 40)).numpy(), atol=1e-3)
    found = asked(studio, f"explain/positions/run?run={reader}&length=9&head=1")
    bias = next(part for part in load(runs / reader).model.modules() if isinstance(part, T5Bias))
    assert np.allclose(found["mean"][1], bias.table(bucket_distances(torch.arange(-8, 9)))[:, 1].detach(), atol=1e-3)


def test_learned_positions_claim_no_shift_invariance(runs):
    model = load(runs / "<b>x").model
    choices, found = view_model(model, 0, 500, 0)
    table = next(part for part in model.modules() if isinstance(part, LearnedPositions)).table
    assert choices == ["decoder: LearnedPositions"] and np.allclose(found.table, table.detach())
    assert not found.check_properties()[0]["holds"]
    assert places("rotary", 30, 16, 1, 0).check_properties()[0]["holds"]


def test_outputs_are_permuted_with_their_words_unless_positions_are_added(page, studio):
    opened(page, studio, "order", text="dog bites man", order="2,0,1")
    expect(page.get_by_text("Equivariant.")).to_be_visible()
    given = asked(studio, "explain/order?text=dog+bites+man")
    example = AttentionExample(**{key: given[key] for key in ("inputs", "query", "key", "value")})
    written = attend(example).outputs
    shown = [float(each.replace("−", "-")) for each in page.locator("svg .amount").all_text_contents()]
    assert np.allclose(np.reshape(shown, (6, 3)), [*written, *written[[2, 0, 1]]], atol=0.0051)
    page.get_by_role("button", name="with positions", exact=True).click()
    expect(page.get_by_text("Order matters.")).to_be_visible()
    assert "positions=1" in page.url


def test_heads_are_drawn_side_by_side(page, studio, runs):
    opened(page, studio, "heads", run="reverse", text="abc", target="cba", kind="encoder", layer=1)
    expect(page.locator("figure")).to_have_count(4)
    page.locator("figure image").nth(2).hover(position={"x": 2, "y": 2})
    maps = load(runs / "reverse").inspect("abc", "cba")
    for head in range(4):
        weight = maps.matrix("encoder", 1, head)[0, 0]
        expect(page.locator(".status")).to_contain_text(f"head {head + 1}: {weight:.3f}")


def test_a_weight_is_computed_from_its_elements(page, studio, runs):
    where = {"kind": "cross", "layer": 1, "head": 2, "query": 1, "key": 0}
    opened(page, studio, "neuron", run="reverse", text="abc", target="cba", **where)
    weights = load(runs / "reverse").inspect("abc", "cba").matrix("cross", 1, 2)[1]
    expect(page.get_by_label("One weight")).to_contain_text(f"attends to “a” with weight {weights[0]:.4f}")
    q, k, products = numbers(page)["Element"]
    assert np.allclose(q * k, products, atol=0.02)
    expect(page.get_by_label("One weight")).to_contain_text(f"1/√{len(q)}")
    page.get_by_role("button", name="key c").press("Enter")
    expect(page.get_by_label("One weight")).to_contain_text(f"attends to “c” with weight {weights[2]:.4f}")
    expect(page.get_by_role("button", name="key c")).to_be_focused()
    assert "key=2" in page.url


@pytest.mark.parametrize(("run", "text", "kind"), [("<b>x", "abc<", "decoder"), ("reader", SENTENCES[0], "encoder")])
def test_scores_biases_and_masks_give_the_weights(studio, reader, run, text, kind):
    look = asked(studio, "neuron", {"run": run, "text": text})["name"]
    found = asked(studio, f"neuron/{look}/{kind}/1/0/2/1")
    assert np.isclose(np.dot(found["q"], found["k"]), found["dots"][1], atol=1e-5)
    scores = np.array(found["dots"]) * found["scale"] + found["added"]
    hidden = np.array(found["masked"] or [False] * len(scores))
    assert np.allclose(softmax(np.where(hidden, -np.inf, scores)), found["weights"], atol=1e-5)
    assert np.abs(found["keys"][1] - found["k"]).max() < 1e-3
    assert hidden.any() == (kind == "decoder") and np.any(found["added"]) == (run == "reader")


def test_example_sentences_are_offered_to_runs_that_know_their_tokens(page, studio, reader):
    assert asked(studio, "explain/sentences?run=reverse") == []
    page.goto("about:blank")
    page.goto(f"{studio.url}#/look?run={reader}")
    links = page.get_by_label("Example sentences").get_by_role("link")
    expect(links).to_have_count(1)
    links.click()
    expect(page.locator("main")).to_have_attribute("data-ready", "look")
    expect(page.locator("text.token", has_text="river").first).to_be_visible()


@pytest.mark.parametrize(
    "path",
    [
        "explain/order?text=one",
        "explain/order",
        "explain/masks?length=1",
        "explain/masks?side=up",
        "explain/positions?kind=none",
        "explain/positions?width=7",
        "explain/positions?kind=alibi&heads=2&head=2",
        "explain/positions/run?run=nobody",
        "explain/positions/run?run=reverse&which=9",
        "explain/sentences?run=nobody",
        "neuron/x/encoder/0/0/0/0",
        "neuron/x/encoder/0/0/a/0",
    ],
)
def test_invalid_requests_are_refused_in_one_sentence(studio, path):
    status, sentence = refused(studio, path)
    assert 400 <= status < 500 and sentence


def test_missing_queries_and_keys_are_refused(studio):
    look = asked(studio, "neuron", {"run": "reverse", "text": "abc", "target": "cba"})["name"]
    for place in ("encoder/9/0/0/0", "encoder/0/9/0/0", "encoder/0/0/9/0", "encoder/0/0/0/9", "other/0/0/0/0"):
        assert refused(studio, f"neuron/{look}/{place}")[0] == 400
