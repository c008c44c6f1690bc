"""What the documents say holds."""

import doctest
import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from headwise.catalog import find
from headwise.config.base import merge, validate
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.tasks.tables import TASKS

ROOT = Path(__file__).parents[1]


def test_the_python_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    outcome = doctest.testfile(str(ROOT / "docs/python.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 15 and outcome.failed == 0


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("file", sorted(ROOT.glob("experiments/*.toml")), ids=lambda path: path.name)
def test_experiments_are_valid(file):
    assert Experiment.read(file).name == file.stem


def experiment_blocks() -> list[tuple[str, dict]]:
    """Tables of experiments in the documents, with the page where they stand."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.S):
            tables = tomllib.loads(block)
            if set(tables) <= set(Experiment.model_fields):  # others are of comparisons and ladders
                found.append((page.name, tables))
    return found


def mistakes(page: str, tables: dict, task: object) -> list[str]:
    """Unknown keys and kinds of an example, which may be a part of an experiment for that task."""
    kind = task if isinstance(task, str) else task.get("kind", "transduce")
    data = {"name": "digits"} if TASKS[kind].reads == "images" else {"train": "pairs.tsv"}
    whole = {"task": task, "data": {} if {"name", "train"} & set(tables.get("data", {})) else data}
    try:
        validate(Experiment, merge({**whole, "train": {"steps": 1}}, tables), page)
    except UserError as error:
        return [line for line in str(error).splitlines() if "unknown key" in line or "is called" in line]
    return []


@pytest.mark.parametrize(("page", "tables"), experiment_blocks())
def test_examples_name_keys_and_kinds_that_exist(page, tables):
    model = tables.get("model", {})
    named = model.get("kind") if isinstance(model, dict) else model
    tasks = [tables["task"]] if "task" in tables else find(named)[0].config.tasks if named else TASKS.names
    assert any(not mistakes(page, tables, task) for task in tasks), mistakes(page, tables, tasks[0])


def test_examples_are_looked_for_where_they_are():
    assert len(experiment_blocks()) >= 15


def imports(page: Path) -> list[tuple[str, str]]:
    """Modules and names that the Python examples of a page import from Headwise."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    lines = [re.sub(r"^(>>>|\.\.\.) ", "", line) for block in blocks for line in block.splitlines()]
    found = [re.fullmatch(r"from (headwise[\w.]*) import ([\w, ]+)", line) for line in lines]
    return [(match[1], name.strip()) for match in found if match for name in match[2].split(",")]


@pytest.mark.parametrize("page", [page for page in PAGES if imports(page)], ids=lambda path: path.name)
def test_examples_import_what_exists(page):
    for module, name in imports(page):
        home = import_module(module)
        assert hasattr(home, name) or find_spec(f"{module}.{name}"), f"{module} has no {name}"
