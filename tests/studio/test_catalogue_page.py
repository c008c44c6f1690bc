"""The catalogue in a real browser: what it shows is what is built."""

import json
import re
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import Page, expect

from headwise.blocks.stack import count_parameters
from headwise.catalog import CATALOG
from headwise.cli.new import render_template
from headwise.compare.render import format_si
from headwise.config.plugins import forget_parts, list_parts_files, use_parts
from headwise.models.build import build
from headwise.models.cost import count_cost


def ask(studio, path):
    with urllib.request.urlopen(f"{studio.url}api/catalogue{path}") as answer:
        return json.load(answer)


def opened(page: Page, studio, state: str, ready: str) -> Page:
    page.goto("about:blank")
    page.goto(f"{studio.url}#/catalogue?{state}")
    expect(page.locator("main")).to_have_attribute("data-ready", ready, timeout=60_000)
    return page


def test_every_architecture_is_listed_and_can_be_found(page, studio):
    opened(page, studio, "", "list")
    expect(page.locator(".entry")).to_have_count(len(CATALOG))
    page.get_by_label("Find").fill("vaswani")
    expect(page.locator(".entry h2")).to_contain_text(["transformer"])
    page.get_by_label("Find").fill("")
    page.get_by_label("Family").select_option("vision")
    vision = sum(entry.family == "vision" for entry in CATALOG.values())
    expect(page.locator(".entry")).to_have_count(vision)
    page.get_by_role("button", name="by year").click()
    first = min((entry.year, -1) for entry in CATALOG.values() if entry.family == "vision")[0]
    expect(page.locator(".entry h2").first).to_contain_text(str(first))
    assert "family=vision" in page.url and "sort=year" in page.url


def test_blocks_and_costs_equal_those_of_the_model(page, studio):
    opened(page, studio, "model=transformer-tiny", "model")
    model = build("transformer-tiny", device="meta")
    blocks = page.locator(".block-head")
    expect(blocks.first).to_have_attribute(
        "aria-label", f"transformer-tiny, EncoderDecoder, {count_parameters(model):,} parameters"
    )
    encoder = page.locator('[data-path="transformer-tiny.encoder"]')
    before = blocks.count()
    encoder.click()
    expect(page.locator('[data-path="transformer-tiny.encoder"]')).to_have_attribute("aria-expanded", "false")
    assert blocks.count() < before
    table = page.locator('[data-path="transformer-tiny.decoder.embed.table"]')
    table.click()
    expect(page.locator(".block-shape", has_text="weight 37000 × 32")).to_be_visible()
    expect(page.locator("section[aria-label=Model] .note").last).to_contain_text("37000 × 32 = 1,184,000")
    blocks.first.focus()
    expect(page.locator("section[aria-label=Model] .note").last).to_contain_text(
        f"shared = {count_parameters(model):,}"
    )

    found = count_cost(model)
    expect(page.locator(".figures")).to_contain_text(f"{found.parameters:,} with")
    expect(page.locator(".figures")).to_contain_text(f"16 bytes × {found.parameters:,}")
    expect(page.locator(".figures")).to_contain_text(f"{format_si(found.flops_per_token)} FLOPs")
    expect(page.locator("section[aria-label=Cost] svg.plot circle").first).to_be_visible()


def test_costs_are_counted_for_the_requested_length(studio):
    told, longer = ask(studio, "/gpt-tiny/cost?at=32"), count_cost(build("gpt-tiny", device="meta"), 32)
    assert (told["flops_per_token"], told["activation_bytes"]) == (longer.flops_per_token, longer.activation_bytes)


def test_parameters_are_exact_for_every_size(studio):
    counted = ask(studio, "/vit/counts")
    names = [f"vit-{size}" for size in CATALOG["vit"].sizes]
    assert counted == {name: count_parameters(build(name, device="meta")) for name in names}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nobody/counts", 400),
        ("/nobody/structure", 400),
        ("/ngram-tiny/cost", 400),
        ("/gpt-tiny/cost?at=-1", 422),
        ("/gpt-tiny/cost?at=99999", 422),
        ("/vit-tiny/cost?at=17", 400),
        ("/gpt-tiny/cost?at=4000", 400),
    ],
)
def test_models_that_cannot_be_counted_are_reported(studio, path, status):
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(studio, path)
    with refused.value as answer:
        assert answer.code == status and json.load(answer)["error"]


def test_models_and_parts_of_ones_own_are_listed(page, studio, serve, tmp_path):
    (tmp_path / "mine.py").write_text(render_template("mixer", "mine"))
    (tmp_path / "mymodel.py").write_text(render_template("model", "my_model"))
    assert ask(studio, "/parts") == []
    use_parts(tmp_path / "mine.py", tmp_path / "mymodel.py")
    try:
        with serve(tmp_path / "runs") as own:  # its workers have the parts
            (part,) = ask(own, "/parts")
            assert (part["kind"], part["what"], part["file"]) == ("mine", "part", "mine.py")
            opened(page, own, "find=my_model", "list")
            expect(page.locator(".entry h2")).to_have_text(["my_model your own"])
            expect(page.locator("section[aria-label=Architectures] li")).to_contain_text(["mine part, mine.py"])
            page.locator('[data-model="my_model-base"]').click()
            expect(page.locator("main")).to_have_attribute("data-ready", "model", timeout=60_000)
            expect(page.locator(".block-head").first).to_have_attribute(
                "aria-label", re.compile("^my_model-base, Language")
            )
            assert ask(own, "/my_model/counts")["my_model-base"] > 1e6
    finally:
        for parts in list_parts_files():
            forget_parts(parts)
