"""The page that changes a model and sees what becomes of its output, in a real browser."""

import json
import urllib.error
import urllib.request

import pytest
import torch
from playwright.sync_api import expect

from headwise.blocks.intervene import intervene
from headwise.blocks.record import collect
from headwise.experiment.load import load
from headwise.studio.ablation import AblationCase, Ablations, ablate, logit_lens, measure_heads, measure_tokens

HOSTILE = "<b>x"


def ask(studio, path, body):
    request = urllib.request.Request(
        f"{studio.url}api/intervene{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def change_of(case: AblationCase, changes: Ablations) -> float:
    output = ablate(case, changes)["output"]
    return sum(each["after"] - each["before"] for each in output)


@torch.no_grad()
def test_log_p_equals_that_of_the_ablated_model(runs):
    loaded = load(runs / "reverse")
    found = ablate(AblationCase(loaded, "abc", "cba"), Ablations(hidden=[1], heads=[("cross", 0, 2)]))
    read, wrote = torch.tensor([[4, 5, 6, 2]]), [6, 5, 4, 2]
    hide, heads = torch.eye(4, dtype=torch.bool)[1:2], torch.eye(4, dtype=torch.bool)[2:3]
    given = torch.tensor([[1, *wrote[:-1]]])
    with intervene(hide={"encoder": hide}, heads={("decoder", 0, 1): heads}):
        changed = loaded.model(read, given)[0].log_softmax(-1)
    plain = loaded.model(read, given)[0].log_softmax(-1)
    for place, (each, token) in enumerate(zip(found["output"], wrote, strict=True)):
        assert each["before"] == pytest.approx(float(plain[place, token]), abs=1e-5)
        assert each["after"] == pytest.approx(float(changed[place, token]), abs=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("reverse", "encoder"), ("reverse", "cross"), (HOSTILE, "decoder")])
def test_head_effects_of_one_batch_equal_single_ablations(runs, name, kind):
    case = AblationCase(load(runs / name), "abcd", "dcb")
    found = measure_heads(case, kind, 1)
    assert found["heads"] == pytest.approx(
        [change_of(case, Ablations(heads=[(kind, 1, head)])) for head in range(len(found["heads"]))], abs=1e-4
    )
    assert found["layer"] == pytest.approx(change_of(case, Ablations(layers=[(kind, 1)])), abs=1e-4)
    tokens = measure_tokens(case)["tokens"]
    assert tokens == pytest.approx(
        [change_of(case, Ablations(hidden=[place])) for place in range(len(tokens))], abs=1e-4
    )


def test_a_recurrent_decoder_has_one_head_that_can_be_ablated(runs):
    case = AblationCase(load(runs / "align"), "abc")
    found = ablate(case, Ablations(heads=[("cross", 0, 0)]))
    assert found["kinds"] == [{"name": "cross", "layers": [{"heads": 1, "can_ablate": False}]}] and found["hideable"]
    assert measure_heads(case, "cross", 0)["layer"] is None
    assert found["output"][0]["after"] != found["output"][0]["before"]


@torch.no_grad()
@pytest.mark.parametrize("name", ["reverse", HOSTILE])
def test_the_logit_lens_ends_with_the_models_probabilities(runs, name):
    loaded = load(runs / name)
    case = AblationCase(loaded, "abcd", "dc")
    found = logit_lens(case)
    own = [each["before"] for each in ablate(case, Ablations())["output"]]
    assert found["layers"][-1]["log_probs"] == pytest.approx(own, abs=1e-5)
    with collect("layer") as side:
        case.compute_logits(1)
    decoder = loaded.model.decoder
    first = decoder.head(decoder.stack.final(side.values["layer"]["decoder", 0][0].x))[0, -1].softmax(-1)
    assert found["layers"][0]["probs"][-1][0] == pytest.approx(float(first.max()), abs=1e-5)


def test_a_hidden_token_and_an_ablated_head_change_the_output(page, visit, runs):
    visit("intervene", "run=reverse&text=abc&target=cba")
    case = AblationCase(load(runs / "reverse"), "abc", "cba")
    page.get_by_role("button", name="hide b, token 2").click()
    wanted = change_of(case, Ablations(hidden=[1]))
    expect(page.locator(".figures")).to_contain_text(f"{abs(wanted):.3f}")
    cell = page.locator(".cell[data-key='cross.0.2']")
    number = f"{measure_heads(case, 'cross', 0)['heads'][2]:.1f}".replace("-0.0", "0.0").replace("-", "−")
    expect(cell.locator("text")).to_have_text(number)
    cell.focus()
    page.keyboard.press("Enter")
    wanted = change_of(case, Ablations(hidden=[1], heads=[("cross", 0, 2)]))
    expect(page.locator(".figures")).to_contain_text(f"{abs(wanted):.3f}")
    expect(page.locator(".figures")).to_contain_text("now generates")
    page.reload()
    expect(page.locator("main")).to_have_attribute("data-ready", "intervene", timeout=60_000)
    expect(cell).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".chip[aria-pressed=true]")).to_have_count(1)
    page.get_by_role("button", name="Undo all").click()
    expect(page.locator("[aria-pressed=true]")).to_have_count(0)


def test_a_language_models_text_and_lens_are_shown(page, visit, runs):
    visit("intervene", "run=%3Cb%3Ex&text=abc")
    found = logit_lens(AblationCase(load(runs / HOSTILE), "abc"))
    expect(page.locator(".guess")).to_have_count(len(found["layers"]) * len(found["tokens"]))
    expect(page.locator(".chip")).to_have_count(4)  # the start, a, b and c
    page.locator(".guess").last.hover()
    last = found["layers"][-1]
    expect(page.locator("[aria-label='Logit lens'] .note")).to_contain_text(f"has rank {last['ranks'][-1]}")
    shade = page.locator(".guess rect").first.get_attribute("fill")
    page.get_by_role("button", name="Dark or light").click()
    expect(page.locator(".guess rect").first).not_to_have_attribute("fill", shade)
    page.get_by_role("button", name="Dark or light").click()


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("", {"hidden": [4]}),
        ("", {"hidden": [-1]}),
        ("", {"heads": [["cross", 0, 4]]}),
        ("", {"heads": [["cross", 7, 0]]}),
        ("", {"heads": [["nothing", 0, 0]]}),
        ("", {"layers": [["encoder", 2]]}),
        ("", {"layers": [["encoder"]]}),
        ("", {"run": "align", "layers": [["cross", 0]]}),
        ("", {"ids": [99]}),
        ("", {"ids": [5] * 500}),
        ("", {"target": "a" * 500}),
        ("", {"text": ""}),
        ("/heads", {"kind": "cross", "layer": 2}),
        ("/heads", {}),
        ("/tokens", {"run": "seen"}),
        ("/lens", {"run": "none"}),
        ("/lens", {"run": HOSTILE, "text": "a" * 1000}),
    ],
)
def test_invalid_requests_are_refused_in_one_sentence(studio, path, change):
    status, found = ask(studio, path, {"run": "reverse", "text": "abc", **change})
    assert 400 <= status < 500 and found["error"]
