"""The table as a value: layers in order, mistakes named."""

import pytest

from headwise.compare.config import SHIPPED, ComparisonConfig, Suite
from headwise.errors import UserError


def test_layers_are_laid_in_order(config):
    post, pre = (config.build_experiment(arm, seed=2) for arm in config.arm)
    assert (post.model.wiring.kind, pre.model.wiring.kind) == ("post", "pre")
    assert (post.name, post.seed, post.model.dropout) == ("post-norm-2", 2, 0.0)
    assert (post.train.steps, post.train.minutes) == (20, 0.0), "the budget replaces the base's"


def test_changes_of_the_command_line_come_last(table):
    config = ComparisonConfig.read(table, ["model.wiring=pre", "train.steps=3"])
    experiment = config.build_experiment(config.arm[0], seed=1)
    assert (experiment.model.wiring.kind, experiment.train.steps) == ("pre", 3)


def test_the_base_is_a_file_beside_the_table(table, tmp_path):
    (tmp_path / "base.toml").write_text('[data]\ntrain = "x.tsv"\n[model]\nwidth = 64\n')
    (tmp_path / "t.toml").write_text('base = "base.toml"\n[budget]\ntokens = 900\n[[arm]]\nname = "a"\n')
    config = ComparisonConfig.read(tmp_path / "t.toml")
    experiment = config.build_experiment(config.arm[0], seed=1)
    assert (experiment.model.width, experiment.train.tokens, config.name) == (64, 900, "t")


MISTAKES = [
    ("seeds =", "seed =", "small.toml: seed: unknown key; did you mean seeds?"),
    ("steps = 20", "stesp = 20", "small.toml: budget.stesp: unknown key; did you mean steps?"),
    ('"model.dropout"', '"model.droput"', "small: arm 'post norm': model.droput: unknown key; did you mean dropout"),
    ('name = "pre"', 'name = "post  norm"', "arm.1.name: two arms are called 'post-norm'"),
    ("seeds =", 'quick = ["per"]\nseeds =', "small.toml: quick: no arm is called 'per'; did you mean pre"),
    (
        "[budget]",
        '[analysis]\nbaseline = "per"\n[budget]',
        "analysis.baseline: no arm is called 'per'; did you mean pre",
    ),
    ("[budget]", '[analysis]\npublished = ["SRE"]\n[budget]', "no arm has a published 'SRE'; did you mean SER"),
    ('source = "B', 'soruce = "B', "published.0.soruce: unknown key; did you mean source"),
]


@pytest.mark.parametrize(("right", "wrong", "sentence"), MISTAKES)
def test_a_mistake_is_named(table, tmp_path, right, wrong, sentence):
    path = tmp_path / "small.toml"
    path.write_text(table.read_text().replace(right, wrong))
    with pytest.raises(UserError) as caught:
        (config := ComparisonConfig.read(path)).build_experiment(config.arm[0], 1)
    assert sentence in str(caught.value)


def test_an_analysis_needs_to_know_which_direction_is_better(table, tmp_path):
    path = tmp_path / "small.toml"
    text = table.read_text().replace("SER = 20.6", "other = 20.6")
    path.write_text(text.replace("[budget]", '[analysis]\npublished = ["other"]\n[budget]'))
    with pytest.raises(UserError, match="nothing says whether a lower 'other' is better; set lower"):
        ComparisonConfig.read(path)
    path.write_text("lower = false\n" + path.read_text())
    assert ComparisonConfig.read(path).analysis.lower is False


def test_an_unknown_arm_or_table_names_the_near_ones(config):
    with pytest.raises(UserError, match="no arm is called 'per'; did you mean pre"):
        config.select(["per"])
    with pytest.raises(UserError, match="did you mean wirings"):
        ComparisonConfig.read("wiring")


@pytest.mark.parametrize("file", [file for folder in SHIPPED for file in folder.glob("*.toml")], ids=lambda f: f.stem)
def test_shipped_tables_are_valid(file):
    suite = Suite.read(file.stem)
    assert suite.title
    for config in suite.tables.values():
        assert config.title and all(config.build_experiment(arm, seed) for arm in config.arm for seed in config.seeds)
