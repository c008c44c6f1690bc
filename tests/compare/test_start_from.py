"""Tables whose cells start from the runs of another one, and a suite that prints both as one table."""

import json

import pytest

from headwise.cli.main import main
from headwise.compare.cell import build_cells
from headwise.compare.config import ComparisonConfig, Suite
from headwise.compare.records import add_records
from headwise.compare.run import WorkerPool, compare
from headwise.compare.suites import compare_all, draw_suite
from headwise.compare.worker import run_cell
from headwise.errors import UserError
from headwise.experiment.load import load

TEXT = "the cat sat on the mat and the dog sat on the log . "
PRETRAINING = """
name = "base"
title = "Pretraining"
score = "late"
lower = true
checkpoint = "last"
curve = {{ late = 1.0 }}
budget = {{ steps = 4 }}
analysis = {{ published = ["late"] }}
[experiment.task]
kind = "denoise"
context = 16
[experiment.tokeniser]
kind = "characters"
[experiment.data]
train = "{folder}/text.txt"
format = "text"
cache = "{folder}/cache"
[experiment.model]
kind = "t5-narang-tiny"
[experiment.train]
batch_size = 4
validate_every = 2
threads = 1
label_smoothing = 0.0
[[arm]]
name = "vanilla"
published = {{ late = 2.0, std = {{ late = 0.1 }} }}
[[arm]]
name = "adaptive"
set = {{ "model.output_layer" = {{ kind = "adaptive", cutoffs = [8, 20], div_value = 1 }} }}
published = {{ late = 3.0 }}
[[arm]]
name = "positions"
set = {{ "model.mixer" = {{ kind = "attention", score = {{ kind = "dense", max_length = 16 }} }} }}
published = {{ late = 2.5 }}
"""
COLUMN = """
title = "Answers"
start_from = "base.toml"
score = "exact match"
checkpoint = "last"
budget = {{ steps = 2 }}
analysis = {{ published = ["exact match", "perplexity"], against = {{ perplexity = "exact match" }} }}
[experiment.task]
kind = "transduce"
score = "answers"
sample = 0
extra_tokens = 100
[experiment.data]
train = "{folder}/pairs.tsv"
cache = "{folder}/cache"
test_fraction = 0.3
max_length = 15
truncate = true
[experiment.decode]
max_length = 15
[experiment.train]
batch_size = 4
threads = 1
label_smoothing = 0.0
samples = 0
[[arm]]
name = "vanilla"
published = {{ "exact match" = 30.0 }}
[[arm]]
name = "adaptive"
published = {{ "exact match" = 10.0 }}
[[arm]]
name = "positions"
published = {{ "exact match" = 20.0 }}
"""
SUITE = 'title = "Both"\nmain = "first"\n[tables]\nfirst = "base.toml"\nanswers = "answers.toml"\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    (folder / "text.txt").write_text(TEXT * 40)
    words = sorted(set(TEXT.split()) - {"."})
    pairs = [(f"{a} {b} and a longer tail", f"{b} {a}" + " on" * 6 * (a == "cat")) for a in words for b in words]
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    for name, text in (("base", PRETRAINING.format(folder=folder)), ("answers", COLUMN.format(folder=folder))):
        (folder / f"{name}.toml").write_text(text)
    (folder / "both.toml").write_text(SUITE)
    return folder


@pytest.fixture(scope="module")
def trained(place):
    """Both tables, trained in this process, which has torch already."""
    for name in ("base", "answers"):
        for cell in build_cells(ComparisonConfig.read(place / f"{name}.toml"), place / "runs"):
            run_cell(cell, lambda message: None)
    return place


def test_a_cell_has_model_and_tokeniser_of_the_run_it_starts_from(trained):
    vanilla, adaptive, _ = build_cells(ComparisonConfig.read(trained / "answers.toml"), trained / "runs")
    assert vanilla.experiment.init_from == f"{trained / 'runs' / 'base' / 'vanilla-1'}@last"
    assert adaptive.experiment.model.output_layer.cutoffs == (8, 20)
    for cell in (vanilla, adaptive):
        tuned, start = load(cell.find_run().path), load(trained / "runs" / "base" / f"{cell.arm}-1")
        assert tuned.tokenisers.target.vocabulary == start.tokenisers.target.vocabulary
        shapes = [{name: tensor.shape for name, tensor in each.model.state_dict().items()} for each in (tuned, start)]
        assert shapes[0] == shapes[1], "the sentinels have rows, too"


def test_the_first_weights_are_those_of_the_start(trained):
    (cell,) = build_cells(ComparisonConfig.read(trained / "answers.toml").select(["adaptive"]), trained / "runs")
    first = load(cell.find_run().path, which="step-0").model.state_dict()
    start = load(trained / "runs" / "base" / "adaptive-1", which="last").model.state_dict()
    assert all(bool((first[name] == start[name]).all()) for name in start)


def test_a_cell_waits_for_its_start_and_says_how_to_train_it(place, tmp_path, capsys):
    table = ComparisonConfig.read(place / "answers.toml").select(["vanilla"])
    (cell,) = build_cells(table, tmp_path)
    assert cell.describe_state() == "waits for base/vanilla-1"
    failure = compare(table, tmp_path).arms["vanilla"].failures[1]
    assert failure.startswith("it starts from base/vanilla-1, which is not finished; train that first: headwise")
    assert failure.endswith(f"base.toml --arm vanilla --seeds 1 --retrain --runs {tmp_path}") and not list(
        tmp_path.iterdir()
    )
    with pytest.raises(SystemExit) as left:
        main(["compare", str(place / "answers.toml"), "--arm", "vanilla", "--runs", str(tmp_path)])
    assert left.value.code == 1 and "vanilla, seed 1 failed: it starts from" in capsys.readouterr().out


def test_a_recorded_cell_is_trained_where_another_starts_from_its_run(trained, tmp_path, monkeypatch):
    def run_here(pool, todo):
        started.extend(cell.name for cell in todo)
        return {cell.name: message for cell in todo if (message := run_cell(cell, lambda message: None))}

    started = list[str]()
    monkeypatch.setattr(WorkerPool, "run", run_here)  # the work of its processes, in this one
    suite = Suite.read(trained / "both.toml").select(["vanilla", "adaptive"], [])
    both = suite.replace(tables={**suite.tables, "answers": suite.tables["answers"].select(["vanilla"])})
    add_records(suite, trained / "runs", tmp_path / "all.json")
    compare_all(both.replace_records(str(tmp_path / "all.json")), tmp_path / "new")
    assert not started, "all are recorded"
    add_records(suite.replace(tables={"first": suite.tables["first"]}), trained / "runs", tmp_path / "first.json")
    results = compare_all(both.replace_records(str(tmp_path / "first.json")), tmp_path / "new")
    assert started == ["vanilla-1", "vanilla-1"], "of both tables; adaptive is recorded and nothing starts from it"
    assert not any(arm.failures for comparison in results.values() for arm in comparison.arms.values())


def test_finished_cells_stay_so_when_all_runs_are_moved(trained, tmp_path):
    (tmp_path / "moved").symlink_to(trained / "runs")
    cells = list(build_cells(ComparisonConfig.read(trained / "answers.toml"), tmp_path / "moved"))
    assert [cell.describe_state() for cell in cells] == ["done"] * 3


def test_changes_of_a_suite_are_those_of_the_start_too(trained):
    changes = ["train.steps=3"]
    alone = next(build_cells(ComparisonConfig.read(trained / "answers.toml", changes), trained / "runs"))
    assert alone.start.experiment.train.steps == 4 and alone.experiment.train.steps == 3
    suite = Suite.read(trained / "both.toml", changes)
    joint = next(build_cells(suite.tables["answers"], trained / "runs"))
    assert joint.start.experiment.train.steps == 3 and joint.describe_state() == "waits for base/vanilla-1"


def test_a_main_table_has_the_scores_of_others_as_columns(trained, capsys):
    main(["compare", str(trained / "both.toml"), "--runs", str(trained / "runs"), "--format", "markdown"])
    out = capsys.readouterr().out
    grid = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")]
    header, vanilla = grid[0], dict(zip(grid[0], grid[2], strict=True))
    assert header[-5:] == ["late", "published", "answers: exact match", "published", "answers: perplexity"]
    assert {"parameters", "FLOPs/token", "steps/s"} <= set(header) and vanilla["answers: perplexity"]
    assert grid[2][-4] == "2 ± 0.1" and grid[2][-2] == "30"
    assert "answers: Spearman of perplexity with the published exact match (negated): " in out
    main(["compare", str(trained / "both.toml"), "--runs", str(trained / "runs"), "--format", "json"])
    tables = json.loads(capsys.readouterr().out)["tables"]
    perplexities = [arm["estimates"]["perplexity"]["mean"] for arm in tables["answers"]["arms"]]
    order = sorted(range(3), key=lambda arm: perplexities[arm])
    rank = tables["answers"]["analysis"]["perplexity"]["correlation"]["value"]
    assert (rank == pytest.approx(1.0)) == (order == [0, 2, 1]), "lower perplexity with higher published scores is 1"


def test_ours_against_published_scores_of_all_tables_in_one_picture(trained, tmp_path):
    suite = Suite.read(trained / "both.toml")
    results = {name: compare(config, trained / "runs") for name, config in suite.tables.items()}
    svg = draw_suite("Both", results, tmp_path / "both.svg").read_text()
    assert all(f"<!-- {text} -->" in svg for text in ("published late", "published exact match (negated)", "adaptive"))


def test_a_quick_selection_leaves_out_tables_without_one(place):
    (place / "quick.toml").write_text('quick = ["vanilla"]\n' + (place / "base.toml").read_text())
    (place / "few.toml").write_text(SUITE.replace("base.toml", "quick.toml"))
    quick = Suite.read(place / "few.toml").select_quick()
    assert list(quick.tables) == ["first"] and quick.main == "first"
    with pytest.raises(UserError, match="no quick selection"):
        Suite.read(place / "both.toml").select_quick()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("answers", 'start_from = "base.toml"', 'start_from = "bas"', "no such file, nor a table of that name"),
        ("answers", 'start_from = "base.toml"', 'start_from = "answers.toml"', "start from others; name a table"),
        ("answers", 'name = "vanilla"', 'name = "vanila"', "has no arm 'vanila'; did you mean vanilla"),
        ("answers", 'perplexity = "exact match"', 'perplexity = "BLEU"', "no arm has a published 'BLEU'"),
        ("answers", '"perplexity"], against', '], against', "'perplexity' is not in analysis.published"),
        ("answers", "extra_tokens = 100", "extra_tokens = 100\nprefix_lm = true", "extra_tokens: a prefix language"),
        ("both", 'main = "first"', 'main = "frist"', "main: there is no table 'frist'; did you mean first"),
        ("both", "[tables]", 'average = { first = ["late"] }\n[tables]', "a suite with a main table has none"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_a_sentence(place, tmp_path, file, old, new, message):
    for source in place.glob("*.toml"):
        (tmp_path / source.name).write_text(source.read_text())
    text = (tmp_path / f"{file}.toml").read_text()
    assert old in text
    (tmp_path / f"{file}.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        compare_all(Suite.read(tmp_path / f"{file}.toml"), tmp_path / "runs")
