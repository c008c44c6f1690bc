"""The page that writes token by token, in a real browser."""

import json
import urllib.error
import urllib.request

import pytest
import torch
from playwright.sync_api import expect

from headwise.decode.sample import draw
from headwise.experiment.load import load
from headwise.studio.decoding import TOP_LOGITS, decode_step, next_token_logits, search_beams

HOSTILE = "<b>x"


def ask(studio, path, body):
    request = urllib.request.Request(
        f"{studio.url}api/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def probabilities(loaded, text, tokens):
    """By the model itself, called on all tokens at once."""
    source = torch.tensor([[*loaded.tokenisers.source.encode(text), 2]])
    with torch.no_grad():
        return loaded.model(source, torch.tensor([[1, *tokens]]))[0, -1].softmax(-1)


def test_bars_equal_the_models_probabilities(page, visit, runs):
    visit("step", "run=reverse&text=abc&tokens=5,6")
    loaded = load(runs / "reverse")
    wanted = probabilities(loaded, "abc", [5, 6])
    wanted[[0, 1]] = 0
    wanted /= wanted.sum()
    best = int(wanted.argmax())
    first = page.locator(".odds").first
    expect(first.locator(".token")).to_have_text(loaded.tokenisers.target.tokens([best])[0])
    share = float(first.get_attribute("aria-label").rpartition(" ")[2])
    assert abs(share - float(wanted[best])) < 1e-4


def test_a_forced_token_is_appended_and_removed(page, visit):
    visit("step", "run=reverse&text=abc")
    third = page.locator(".odds").nth(2)
    label = third.locator(".token").text_content()
    third.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".chip")).to_have_text([label])
    assert "tokens=" in page.url
    page.get_by_role("button", name="Back").click()
    expect(page.locator(".chip")).to_have_count(0)


def test_sliders_change_the_sampling_distribution(page, visit, runs):
    """As the library draws: temperature, then top-k, then top-p, whose crossing token stays."""
    visit("step", "run=reverse&text=abc&temperature=0.5&k=5&p=0.6")
    logits = probabilities(load(runs / "reverse"), "abc", []).log()
    logits[[0, 1]] = -torch.inf
    numbers = torch.linspace(0, 0.9999, 4000).double()
    found = draw(logits.expand(4000, -1), numbers, 0.5, 5, 0.6)[:, 0].bincount(minlength=len(logits)) / 4000
    wanted = sorted(found[found > 0].tolist(), reverse=True)
    shares = [float(bar.get_attribute("aria-label").rpartition(" ")[2]) for bar in page.locator(".odds").all()]
    assert shares[: len(wanted)] == pytest.approx(wanted, abs=2e-3) and not any(shares[len(wanted) :])
    page.get_by_label("Top k").fill("1")
    expect(page.locator(".odds.out")).to_have_count(len(shares) - 1)


def test_attention_belongs_to_the_step(page, visit, runs):
    visit("step", "run=reverse&text=abc&tokens=5&kind=cross&layer=0")
    maps = load(runs / "reverse").inspect("abc", "ba")
    box = page.locator("[aria-label='Attention of this step'] svg image").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 30)  # the first head, below the mean
    wanted = maps.weights["cross"][0, 0, 1, 0]  # the second row had read b, which is 5
    expect(page.locator("[aria-label='Attention of this step'] .note")).to_contain_text(f"{wanted:.4f}")


@pytest.mark.parametrize("name", ["reverse", "align", HOSTILE])
def test_steps_of_any_generative_model_equal_its_decoding(runs, name):
    """Greedily, bar by bar: what the library's own search writes, with its log P."""
    loaded = load(runs / name)
    prompt = "abc"
    if name == HOSTILE:
        wanted = loaded.continue_prompts([prompt], max_length=5)[0][0]
    else:
        wanted = loaded.translate_nbest([prompt], max_length=5)[0][0]
    written = []
    for _ in range(5):
        _, found = decode_step(loaded, prompt, written)
        written.append(found["next"]["ids"][0])
        if written[-1] == found["end"]:
            break
    else:
        written.append(found["end"])  # it is due at the limit
    _, found = decode_step(loaded, prompt, written)
    assert found["finished"] and found["text"] == wanted.text
    assert sum(each["log_prob"] for each in found["written"]) == pytest.approx(wanted.log_prob, abs=1e-4)
    assert {each["kind"] for each in found["attention"]} == {"reverse": {"decoder", "cross"}, "align": {"cross"}}.get(
        name, {"decoder"}
    )


def test_alignments_of_a_recurrent_decoder_are_shown_for_all_steps(page, visit):
    visit("step", "run=align&text=abc&tokens=5,6&all=1")
    figure = page.locator("[aria-label='Attention of this step']")
    expect(figure.locator("text.token")).to_have_count(3 + 4)  # two tokens and the next; a, b, c and the end
    expect(figure.get_by_role("button", name="All steps")).to_have_attribute("aria-pressed", "true")


def test_the_tree_equals_the_librarys_beam_search(runs):
    loaded = load(runs / "reverse")
    tree = search_beams(loaded, "abcd", 3, 12)
    best = loaded.translate_nbest(["abcd"], beams=3, max_length=12)[0][0]
    assert tree["text"] == best.text and tree["score"] == pytest.approx(best.score)
    for node in tree["nodes"]:
        before = (
            tree["nodes"][node["parent"]] if node["parent"] >= 0 else {"step": -1, "log_prob": 0.0, "fate": "extended"}
        )
        assert before["step"] == node["step"] - 1 and before["fate"] == "extended"
        assert node["log_prob"] <= before["log_prob"]
    assert max(node["score"] for node in tree["nodes"] if node["fate"] == "ended") == pytest.approx(best.score)


def test_a_hypothesis_opens_its_step(page, visit):
    visit("step", "run=reverse&text=abcd&beams=3")
    expect(page.locator(".leaf.best").first).to_be_visible()
    leaf = page.locator(".leaf[aria-label^='step 2']").first
    label = leaf.locator(".token").text_content()
    leaf.click()
    expect(page.locator(".chip")).to_have_count(2)
    expect(page.locator(".chip").last).to_have_text(label)
    assert "beams=3" in page.url and "tokens=" in page.url


def test_log_sums_replace_logits_that_are_not_sent(runs):
    loaded = load(runs / "reverse")
    logits = torch.randn(2 * TOP_LOGITS, generator=torch.Generator().manual_seed(0)) * 3
    tokens = type("Many", (), {"tokens": staticmethod(lambda ids: [str(each) for each in ids])})
    found = next_token_logits(loaded.model, tokens, logits)
    allowed = logits.clone()
    allowed[[0, 1]] = -torch.inf
    for temperature, rest in zip(found["temperatures"], found["others_logsumexp"], strict=True):
        sent = (torch.tensor(found["logits"]) / temperature).logsumexp(0)
        whole = torch.logaddexp(sent, torch.tensor(rest))
        torch.testing.assert_close(whole, (allowed / temperature).logsumexp(0))


@pytest.mark.parametrize(
    "body",
    [
        {"run": "reverse", "text": "abc", "tokens": [99]},
        {"run": "reverse", "text": "abc", "tokens": [-1]},
        {"run": "reverse", "text": "abc", "tokens": [2, 5]},
        {"run": "reverse", "text": "abc", "tokens": [5] * 2000},
        {"run": "reverse", "text": "", "tokens": []},
        {"run": "reverse", "text": "a" * 1500},
        {"run": HOSTILE, "text": "a" * 1000},
        {"run": "none", "text": "abc"},
        {"run": "reverse", "text": "abc", "tokens": "5"},
    ],
)
def test_invalid_requests_are_refused_in_one_sentence(studio, body):
    status, content = ask(studio, "step", body)
    assert 400 <= status < 500 and json.loads(content)["error"]


@pytest.mark.parametrize(
    "change", [{"beams": 1}, {"beams": 10_000}, {"longest": 0}, {"text": ""}, {"run": HOSTILE, "text": "a" * 1000}]
)
def test_a_beam_search_is_limited(studio, change):
    status, content = ask(studio, "step/beams", {"run": "reverse", "text": "abc", **change})
    assert 400 <= status < 500 and json.loads(content)["error"]
