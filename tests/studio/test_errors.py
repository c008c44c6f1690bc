"""Whatever goes wrong is told on the page, which then goes on working."""

import json
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

from headwise.studio.limits import MAX_TOKENS
from headwise.studio.map_cache import MAX_BYTES, MapCache


def refusal(studio, path: str, body: dict) -> str:
    """What is said of a request that is none."""
    content = json.dumps(body).encode()
    request = urllib.request.Request(f"{studio.url}api/{path}", content, {"content-type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.code == 400
        return json.load(answer)["error"]


@pytest.mark.parametrize("path", ["look", "neuron", "step", "intervene"])
def test_texts_of_many_tokens_are_refused_before_maps_fill_the_memory(studio, path):
    said = refusal(studio, path, {"run": "reverse", "text": "a" * (MAX_TOKENS + 1)})
    assert "1,025 tokens" in said and "1,024" in said


def test_outputs_of_many_tokens_are_refused_too(studio):
    assert "1,025 tokens" in refusal(studio, "look", {"run": "reverse", "text": "a", "target": "a" * 1025})


@pytest.mark.parametrize(
    ("path", "text"),
    [("look", ""), ("look", " \n"), ("neuron", ""), ("neuron", " \n"), ("step", ""), ("intervene", "")],
)
def test_an_empty_text_is_refused_in_one_sentence(studio, path, text):
    assert "there is no text" in refusal(studio, path, {"run": "reverse", "text": text})


@pytest.mark.parametrize(("view", "ready"), [("look", "look"), ("step", "step"), ("intervene", "intervene")])
def test_unknown_tokens_are_reported(page, visit, view, ready):
    visit(view, "run=reverse&text=aZ😀&target=a", ready)
    expect(page.locator("form .note")).to_have_text("2 of these 3 tokens are not in the vocabulary: <unk>.")


def test_a_deleted_run_is_reported_and_another_can_be_selected(page, visit):
    visit("look", "run=deleted&text=abc", "form")
    expect(page.get_by_role("alert")).to_contain_text("There is no run “deleted” here")
    page.get_by_label("Run").select_option("reverse")
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.locator("main")).to_have_attribute("data-ready", "look")
    expect(page.locator("form [role=alert]")).to_be_empty()


def test_a_page_survives_a_restart_of_the_server(page, runs, serve):
    with serve(runs) as address:
        page.goto(f"{address.url}#/look?run=reverse&text=abc")
        expect(page.locator("main")).to_have_attribute("data-ready", "look", timeout=60_000)
    for button in ("encoder", "Look"):
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator("form [role=alert]")).to_contain_text("the studio does not respond")
    with serve(runs, address.port):
        page.get_by_role("button", name="Look", exact=True).click()
        expect(page.locator("main")).to_have_attribute("data-ready", "look", timeout=60_000)
        expect(page.locator("form [role=alert]")).to_be_empty()


def test_the_map_cache_evicts_large_entries():
    looks: MapCache[str] = MapCache()
    small, large, larger = looks.add("small", 1), looks.add("large", MAX_BYTES), looks.add("larger", 2 * MAX_BYTES)
    assert looks[larger] == "larger" and list(looks.values) == [larger]
    assert small != large
