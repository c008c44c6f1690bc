"""Several tables as one."""

import json

import pytest

from headwise.cli.main import main
from headwise.compare.config import Suite
from headwise.compare.suites import compare_all, draw_suite, relative_cost
from headwise.compare.values import Comparison
from headwise.errors import UserError


@pytest.fixture
def suite(table, tmp_path):
    """The small table twice, the second time without its first arm."""
    text = table.read_text()
    (tmp_path / "small.toml").write_text(text)
    first, second = text.index("[[arm]]"), text.index('[[arm]]\nname = "pre"')
    (tmp_path / "less.toml").write_text('name = "small"\n' + text[:first] + text[second:])
    path = tmp_path / "both.toml"
    path.write_text('title = "Both"\n[tables]\nwhole = "small.toml"\nless = "less.toml"\n')
    return path


@pytest.fixture
def shown(result, suite, runs, capsys):
    def show(*options):
        main(["compare", str(suite), "--runs", str(runs), "--seeds", "1", *options])
        return capsys.readouterr().out

    return show


def test_arms_are_rows_and_tables_columns(shown, result):
    grid = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown("--format", "markdown").splitlines()]
    header, _, post, pre = [row for row in grid if row]
    assert header == ["arm", "whole: SER", "cost", "less: SER", "cost", "published"]
    assert post[0] == "post norm" and pre[0] == "pre"
    assert post[2] == "1.00" and post[3:5] == ["", ""], "an arm that a table has not is left out there"
    speeds = {name: arm.outcomes[1].tokens_per_second for name, arm in result.arms.items()}
    assert pre[2] == f"{speeds['post norm'] / speeds['pre']:.2f}" and pre[4] == "1.00"
    assert post[5] == "whole 20.6 (A 2019)"
    assert sum("\\*" in row[1] for row in (post, pre)) == 1, "the best of a table is marked"


def test_the_notes_say_what_the_columns_are(shown):
    text = shown()
    for part in ("Both", "cost: time for a token in training, post norm = 1", "whole: Wirings", "n-gram 24.4 (B 2008)"):
        assert part in text


def test_json_holds_every_table_whole(shown):
    data = json.loads(shown("--format", "json"))
    assert data["title"] == "Both" and [len(each["arms"]) for each in data["tables"].values()] == [2, 1]


@pytest.mark.usefixtures("result")
def test_the_average_is_of_the_means_of_each_table(suite, runs, capsys):
    suite.write_text(suite.read_text() + '[average]\nwhole = ["SER", "CER"]\nless = ["SER"]\n')
    main(["compare", str(suite), "--runs", str(runs), "--seeds", "1", "--format", "json"])
    data = json.loads(capsys.readouterr().out)
    (pre,) = (arm for arm in data["tables"]["whole"]["arms"] if arm["name"] == "pre")
    ser, cer = (pre["seeds"]["1"]["scores"][name]["value"] for name in ("SER", "CER"))
    assert data["average"] == {"post norm": None, "pre": pytest.approx(((ser + cer) / 2 + ser) / 2)}
    main(["compare", str(suite), "--runs", str(runs), "--seeds", "1"])
    assert "average: of whole (SER and CER), less (SER)" in " ".join(capsys.readouterr().out.split())
    assert not Suite.read(suite).select(["post norm"]).average, "of some tables it would be another figure"


@pytest.mark.parametrize(
    ("average", "message"),
    [('wole = ["SER"]', "average: there is no table 'wole'; did you mean whole"), ("less = []", "at least one score")],
)
def test_an_average_names_tables_and_scores(suite, average, message):
    suite.write_text(suite.read_text() + f"[average]\n{average}\n")
    with pytest.raises(UserError, match=message):
        Suite.read(suite)


def test_only_some_arms_and_only_the_tables_that_have_them(suite):
    chosen = Suite.read(suite).select(["post norm"], [3])
    assert list(chosen.tables) == ["whole"] and chosen.tables["whole"].seeds == (3,)
    assert [arm.name for arm in chosen.tables["whole"].arm] == ["post norm"]
    with pytest.raises(UserError, match="both: no arm is called 'per'; did you mean pre"):
        Suite.read(suite).select(["per"])


def test_a_dry_run_names_tables(shown):
    out = shown("--dry-run")
    assert out.startswith("small/post-norm-1  20 steps  done\n") and out.endswith("3 runs, 0 of them to do\n")


def test_a_table_alone_is_a_suite_of_itself(table):
    alone = Suite.read(table)
    assert list(alone.tables) == ["small"] and alone.title == "Wirings"


def test_quality_is_drawn_against_cost(result, suite, runs, tmp_path):
    both = compare_all(Suite.read(suite).select(seeds=[1]), runs)
    svg = draw_suite("Both", both, tmp_path / "both.svg").read_text()
    assert all(f"<!-- {part} -->" in svg for part in ("Both", "whole", "less", "post norm", "pre"))
    assert relative_cost(both["whole"], "post norm") == 1.0
    with pytest.raises(UserError, match=r"both.svg: nothing is drawn"):
        draw_suite("Both", {"one": Comparison("one", {}), "two": Comparison("two", {})}, tmp_path / "both.svg")


def test_mistakes_in_a_suite_are_told_before_anything_runs(suite, tmp_path, capsys):
    suite.write_text(suite.read_text().replace("less.toml", "lost.toml"))
    with pytest.raises(UserError, match=r"lost.toml: there is no such file"):
        Suite.read(suite)
    suite.write_text('tables = ["small.toml"]\n')
    with pytest.raises(UserError, match="tables: write names and files"):
        Suite.read(suite)
    suite.write_text('tilte = "x"\n[tables]\nwhole = "small.toml"\n')
    with pytest.raises(UserError, match="tilte: unknown key; did you mean title"):
        Suite.read(suite)
    suite.write_text('[tables]\nwhole = "small.toml"\nbad = "bad.toml"\n')
    wrong = (tmp_path / "small.toml").read_text().replace('"model.wiring" = "pre"', '"model.wirring" = "pre"')
    (tmp_path / "bad.toml").write_text(wrong)
    with pytest.raises(SystemExit) as left:
        main(["compare", str(suite), "--runs", str(tmp_path / "r")])
    assert left.value.code == 2 and "wirring" in capsys.readouterr().err and not (tmp_path / "r").exists()
