"""The command line before torch is needed."""

import json
import subprocess
import sys

import pytest

from headwise import __version__
from headwise.catalog import read_index
from headwise.cli.main import COMMANDS

LATE = (
    "import sys; sys.argv=['headwise', {arguments}]; from headwise.cli.main import main\n"
    "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules, 'torch was imported'"
)


@pytest.mark.parametrize(
    "arguments",
    [
        "'--help'",
        "'train', '--help'",
        "'train', 'no.toml'",
        "'--version'",
        "'list'",
        "'runs'",
        "'show', 'bret'",
        "'show', 'gpt2'",
        "'show', 'resnet', '--json'",
        "'show', 'ngram'",
    ],
)
def test_torch_is_not_imported_for_help_and_names(arguments):
    subprocess.run([sys.executable, "-c", LATE.format(arguments=arguments)], check=True, capture_output=True)


WHOLE = 'data = {train = "pairs.tsv"}\ntrain = {steps = 1}\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[model\nwidth = 1", "own.toml: not valid TOML"),
        (WHOLE + "[modle]", "modle: unknown key; did you mean model?"),
        (WHOLE + 'task = "transdoose"', "task.kind: no task is called 'transdoose'; did you mean transduce?"),
        (WHOLE + 'model = "transformr"', "model.kind: no model is called 'transformr'; did you mean transformer"),
        (WHOLE + 'tokeniser = {kind = "bep"}', "tokeniser.kind: no tokeniser is called 'bep'; did you mean bpe?"),
        (WHOLE + '[model]\nmixer = "preformer"', "model.mixer.kind: no part is called 'preformer'"),
        (WHOLE + '[model]\npositions = {kind = "rotry"}', "model.positions.kind: no position is called 'rotry'"),
        (
            WHOLE + 'train.optimizer = "adamm"',
            "train.optimizer.kind: no optimizer is called 'adamm'; did you mean adam",
        ),
    ],
)
def test_a_mistake_in_a_file_is_reported_without_torch(tmp_path, text, sentence):
    (tmp_path / "own.toml").write_text(text.replace("train = {steps = 1}\ntrain.opt", "train.steps = 1\ntrain.opt"))
    done = subprocess.run(
        [sys.executable, "-c", LATE.format(arguments="'train', 'own.toml'")],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert sentence in done.stderr


def test_every_command_has_help_with_an_example(headwise):
    for name in (name for group in COMMANDS.values() for name in group):
        shown = headwise(name, "--help")
        assert shown.status == 0 and (
            "For example:" in shown.out or "Usage: headwise " + name + " COMMAND" in shown.out
        )


@pytest.mark.parametrize("command", ["explain attention", "explain positions", "explain mask", "bench train"])
def test_commands_of_a_group_have_examples_too(headwise, command):
    assert f"headwise {command}" in headwise(*command.split(), "--help").out.split("For example:")[1]


def test_list_counts_what_is_built(headwise):
    rows = {row["name"]: row for row in json.loads(headwise("list", "--json").out)}
    assert rows["transformer-base"]["parameters"] == 63_082_496
    assert rows["transformer-big"]["parameters"] == 214_245_376
    shown = headwise("list", "transformer", "vit").out
    assert "transformer-base" in shown and "86,567,656" in shown and "bert" not in shown
    assert headwise("list", "vitt").status == 2


def test_show_prints_tree_and_costs(headwise):
    report = json.loads(headwise("show", "transformer-base", "--json").out)
    cost = report["cost"]
    assert cost["parameters"] == report["tree"]["parameters"] == 63_082_496
    # two operations for each weight that a token meets: 6 encoder and 6 decoder layers and the head, attention beside
    weights = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048) + 37_000 * 512
    assert 2 * weights < cost["flops_per_token"] < 2.1 * weights
    assert cost["training_bytes"] == 16 * 63_082_496
    assert cost["cache_bytes_per_token"] == 6 * 2 * 512 * 4
    shown = headwise("show", "transformer-base").out
    assert "6 x" in shown and "63,082,496" in shown


def test_show_prints_stored_models_as_counted_ones(headwise):
    """With a vocabulary the model is counted, also where it is the published one."""
    words = str(read_index()["gpt2"].sizes["tiny"].vocab)
    for options in ((), ("--json",)):
        stored, counted = (
            headwise("show", "gpt2-tiny", *options),
            headwise("show", "gpt2-tiny", "--vocab", words, *options),
        )
        assert stored.status == 0 and stored.out == counted.out


def test_show_prints_settings_of_models_fitted_by_counting(headwise):
    assert "order = 3" in headwise("show", "ngram-trigram").out
    assert json.loads(headwise("show", "ngram-trigram", "--json", "--set", "order=4").out)["settings"]["order"] == 4


def test_the_package_is_the_command_line_too():
    done = subprocess.run([sys.executable, "-m", "headwise", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == __version__
