"""What the command prints."""

import json

import pytest

from headwise.cli.main import main
from headwise.compare.plot import plot_comparison
from headwise.compare.values import Comparison


@pytest.fixture
def shown(result, table, runs, capsys):
    """Print the finished comparison."""

    def show(*options):
        main(["compare", str(table), "--runs", str(runs), "--seeds", "1", *options])
        return capsys.readouterr().out

    return show


def test_json_holds_outcomes_estimates_and_differences(shown):
    data = json.loads(shown("--format", "json"))
    assert (data["title"], data["score"], data["lower"]) == ("Wirings", "SER", True)
    post, pre = data["arms"]
    assert (post["name"], post["published"]["scores"], post["differences"]) == ("post norm", {"SER": 20.6}, {})
    outcome = pre["seeds"]["1"]
    figures = {"scores", "parameters", "flops_per_token", "tokens_per_second", "unit", "minutes", "run", "items"} | {
        "steps", "tokens", "validation", "recorded",
    }  # fmt: skip
    assert figures == set(outcome) and outcome["unit"] == "token"
    assert pre["estimates"]["SER"]["mean"] == outcome["scores"]["SER"]["value"]
    assert pre["differences"]["perplexity"].keys() == {"mean", "low", "high", "count", "over"}
    assert sum(arm["best"] for arm in data["arms"]) == 1
    figure = {"name": "n-gram", "source": "B 2008", "scores": {"SER": 24.4}, "std": {}, "runs": 1}
    assert data["published"] == [figure] and data["analysis"] == {}


def test_text_and_markdown_hold_the_same_cells(shown):
    text, page = shown(), shown("--format", "markdown")
    for part in ("post norm", "FLOPs/token", "SER - post norm", "20.6 (A 2019)", "n-gram", "24.4 (B 2008)", "±"):
        assert part in text and part in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1


def test_dry_run_says_what_would_be_done(shown, runs):
    before = sorted(runs.rglob("*"))
    out = shown("--dry-run", "--set", "train.steps=21")
    assert out == "post-norm-1  21 steps  to train\npre-1        21 steps  to train\n2 runs, 2 of them to do\n"
    assert shown("--dry-run").endswith("pre-1        20 steps  done\n2 runs, 0 of them to do\n")
    assert sorted(runs.rglob("*")) == before


def test_quick_trains_the_listed_arms_with_the_first_seed(result, table, runs, tmp_path, capsys):
    quick = tmp_path / "small.toml"
    quick.write_text('quick = ["pre"]\n' + table.read_text())
    options = ["--runs", str(runs), "--dry-run"]
    main(["compare", str(quick), "--quick", *options])
    assert capsys.readouterr().out == "pre-1  20 steps  done\n1 runs, 0 of them to do\n"
    main(["compare", str(quick), "--quick", "--seeds", "4", "5", *options])
    assert "pre-4  20 steps  to train\npre-5" in capsys.readouterr().out
    for arguments, sentence in (
        ([str(table), "--quick"], "small: the table has no quick selection; choose arms by --arm, or set quick in it"),
        ([str(quick), "--quick", "--arm", "pre"], "--quick and --arm both select arms; give one of them"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["compare", *arguments, *options])
        assert left.value.code == 2 and sentence in capsys.readouterr().err


def test_the_plot_names_arms_and_published_figures(result, tmp_path):
    svg = plot_comparison(result, tmp_path / "scores.svg").read_text()
    assert all(f"<!-- {part} -->" in svg for part in ("post norm", "pre", "n-gram", "20.6 A 2019", "24.4 B 2008"))
    assert plot_comparison(result, tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_drawn_is_refused_before_anything_runs(table, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["compare", str(table), "--runs", str(tmp_path / "r"), "--plot", "scores.gif"])
    assert left.value.code == 2 and "'.gif'" in capsys.readouterr().err and not (tmp_path / "r").exists()


def test_nothing_scored_is_still_a_table(capsys):
    from headwise.compare.render import print_text

    print_text(Comparison("empty", {}))
    assert "empty" in capsys.readouterr().out
