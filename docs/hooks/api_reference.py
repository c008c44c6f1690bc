"""Pages of the Python API, one for each module, from the tree of files. Nothing is imported."""

from __future__ import annotations

import ast
import posixpath
from pathlib import Path
from typing import Any

from docstrings import to_markdown

FOLDER = "reference/api"


def render(root: Path) -> tuple[dict[str, str], list[Any]]:
    """Pages by address and their navigation: the public names first, then each package with its modules."""
    pages = {f"{FOLDER}/index.md": _front_page(root)}
    nav: list[Any] = [f"{FOLDER}/index.md"]
    nav += [_add_package(path, root, pages) for path in _packages(root)]
    nav.append({"Top-level modules": [_add_module(path, root, pages) for path in _modules(root)]})
    return pages, nav


def get_module(uri: str) -> str:
    """The dotted name of the module whose page this is, or nothing."""
    name = uri.removeprefix(f"{FOLDER}/").removesuffix(".md").removesuffix("/index")
    return name if name.startswith("headwise.") else ""


def _front_page(root: Path) -> str:
    names = [f"::: headwise.{name}\n    options:\n      heading_level: 3\n" for name in _exported(root / "__init__.py")]
    rows = [_row(path, root) for path in [*_packages(root), *_modules(root)]]
    return "\n".join(
        [
            "# Python API",
            f"\n{_docstring(root / '__init__.py')}\n",
            "## Packages\n\n| | |\n|---|---|",
            *rows,
            "\n## Public names of `headwise`\n",
            *names,
        ]
    )


def _add_package(folder: Path, root: Path, pages: dict[str, str]) -> dict[str, list[Any]]:
    below = [*_packages(folder), *_modules(folder)]
    text = f"::: {_dotted(folder, root)}\n    options:\n      members: false\n"
    if below:
        text += "\n## Modules\n\n| | |\n|---|---|\n" + "\n".join(_row(path, root, folder) for path in below)
    if own := _definitions(folder / "__init__.py"):
        text += "\n\n## Functions and classes\n\n" + "\n".join(
            f"::: {_dotted(folder, root)}.{name}\n    options:\n      heading_level: 3\n" for name in own
        )
    pages[_address(folder, root)] = text
    nav: list[Any] = [_address(folder, root)]
    nav += [_add_package(path, root, pages) for path in _packages(folder)]
    nav += [_add_module(path, root, pages) for path in _modules(folder)]
    return {folder.name: nav}


def _add_module(path: Path, root: Path, pages: dict[str, str]) -> dict[str, str]:
    pages[_address(path, root)] = f"::: {_dotted(path, root)}\n"
    return {path.stem: _address(path, root)}


def _packages(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if (path / "__init__.py").exists())


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def _dotted(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root.parent).with_suffix("").parts)


def _address(path: Path, root: Path) -> str:
    """Dotted, so that a module called `index` is not taken for the page of its package."""
    return f"{FOLDER}/{_dotted(path, root)}{'/index.md' if path.is_dir() else '.md'}"


def _row(path: Path, root: Path, start: Path | None = None) -> str:
    """A line of a table: the module as a link, and the first sentence of its docstring."""
    home = posixpath.dirname(_address(start, root)) if start else FOLDER
    link = posixpath.relpath(_address(path, root), home)
    summary = _docstring(path / "__init__.py" if path.is_dir() else path).split("\n\n")[0].replace("\n", " ")
    return f"| [`{_dotted(path, root)}`]({link}) | {summary.replace('|', chr(92) + '|')} |"


def _docstring(path: Path) -> str:
    return to_markdown(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def _exported(path: Path) -> list[str]:
    """The names in `__all__`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{path} has no __all__")


def _definitions(path: Path) -> list[str]:
    """Public functions and classes that a file defines itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
