"""`help(headwise)` and type checkers know every public name."""

import ast
import inspect
import pydoc
from pathlib import Path

import pytest

import headwise

SOURCE = Path(headwise.__file__)


@pytest.mark.parametrize("name", headwise.__all__)
def test_a_public_name_has_a_docstring_and_annotations(name):
    value = getattr(headwise, name)
    assert inspect.getdoc(value)
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        unannotated = [each.name for each in signature.parameters.values() if each.annotation is each.empty]
        assert not unannotated and signature.return_annotation is not signature.empty


def test_type_checkers_see_every_public_name():
    (block,) = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    imported = {
        f"{statement.module}.{alias.name}"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert imported == {f"{home}.{name}" for name, home in headwise._HOMES.items()}
    assert sorted(headwise.__all__) == headwise.__all__ == sorted(headwise._HOMES)
    assert SOURCE.with_name("py.typed").exists()


def test_help_lists_every_public_name():
    text = pydoc.plain(pydoc.render_doc(headwise))
    assert set(headwise.__all__) <= set(dir(headwise))
    for name in headwise.__all__:
        assert f"class {name}(" in text or f"{name}(" in text
