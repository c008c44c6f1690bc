"""What the catalogue says that models are checked against: the tests exist and use what they name."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from headwise.catalog import CATALOG
from headwise.models.entry import Check

ROOT = Path(__file__).parents[1]
CHECKS = [(name, check) for name, entry in CATALOG.items() for check in entry.checks]
BY_HAND = "by hand, outside the test suite"


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def imported(tree: ast.AST) -> set[str]:
    """The packages that a file imports, at its head or in its functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func) and node.args:
            found |= {str(each.value).partition(".")[0] for each in node.args if isinstance(each, ast.Constant)}
    return found


def test_every_model_is_checked_against_something() -> None:
    assert [name for name, entry in CATALOG.items() if not entry.checks] == []


@pytest.mark.parametrize(("name", "check"), CHECKS, ids=[f"{name}-{check.oracle}" for name, check in CHECKS])
def test_the_named_test_exists_and_imports_its_oracle(name: str, check: Check) -> None:
    file, _, function = check.test.partition("::")
    functions = {node.name for node in parsed(file).body if isinstance(node, ast.FunctionDef)}
    if BY_HAND in check.oracle:
        assert file.startswith("benchmarks/") and not function
    else:
        assert file.startswith("tests/") and function.startswith("test_") and function in functions
    if check.package:
        assert check.package in imported(parsed(file))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # while DeBERTa is imported
@pytest.mark.parametrize(("name", "check"), [pair for pair in CHECKS if pair[1].oracle.startswith("transformers.")])
def test_models_of_transformers_exist_and_their_test_speaks_of_them(name: str, check: Check) -> None:
    model = re.match(r"transformers\.(\w+)", check.oracle)[1]
    family = getattr(import_module("transformers"), model).config_class.__name__.removesuffix("Config")
    assert family in (ROOT / check.test.partition("::")[0]).read_text()
