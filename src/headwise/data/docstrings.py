"""Docstrings of installed Python packages: English prose that every machine with Headwise has, some megabytes of it.

A pair is the body of a docstring and its first line, as a text and its summary; `data.columns = [1]` reads the bodies
alone, for language models. Code, tables and lists of arguments are left out.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import Literal

from headwise.data.generated import PARTS, GeneratedCorpus
from headwise.data.texts import Pair
from headwise.errors import UserError

STANDARD_LIBRARY = "python"
INSTALLED = "installed"
SKIPPED = {"test", "tests", "testing", "site-packages", "dist-packages", "idlelib", "lib2to3", "_vendor", "__pycache__"}
HELD_OUT = {0: "test", 1: "valid"}  # part of a file or package, by its digest modulo:
MODULO = {"file": 20, "package": 10}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MIN_WORDS = 3, 12  # of a first line, of a body
PROSE = 0.93  # share of letters, spaces and usual punctuation in a paragraph from which on it is prose


class Docstrings(GeneratedCorpus):
    """Body -> first line of a docstring. All docstrings of a file, or of a package, are in one part; repeated bodies
    are left out."""

    packages: str = "python+torch+numpy"  # the standard library, and packages that are installed; or "installed": all
    split: Literal["file", "package"] = "file"  # what is held out as a whole

    def generate(self, root: str) -> Mapping[str, Iterable[Pair]]:
        parts: dict[str, list[Pair]] = {part: [] for part in PARTS}
        seen: set[str] = set()
        for name, path in self.list_files():
            unit = name if self.split == "file" else get_package(name)
            number = int(sha256(unit.encode()).hexdigest(), 16) % MODULO[self.split]
            for source, target in self.read_file(name, path):
                if source not in seen:
                    seen.add(source)
                    parts[HELD_OUT.get(number, "train")].append((source, target))
        return parts

    def read_file(self, name: str, path: Path) -> Iterator[Pair]:
        """The pairs of a file."""
        return read_docstrings(path)

    def list_sources(self, root: str) -> list[tuple[str, int]]:
        return [(name, path.stat().st_size) for name, path in self.list_files()]

    def list_files(self) -> list[tuple[str, Path]]:
        """The Python files of all packages, with names that do not depend on the machine."""
        return [
            (f"{package}/{path.relative_to(folder).as_posix()}", path)
            for package in self.list_packages()
            for folder in [find_folder(package)]
            for path in sorted(folder.rglob("*.py"))
            if not SKIPPED.intersection(path.relative_to(folder).parts)
        ]

    def list_packages(self) -> list[str]:
        return list_installed() if self.packages == INSTALLED else self.packages.split("+")


def get_package(name: str) -> str:
    """The package of a file; a package or module of the standard library is one of its own.

    >>> get_package("numpy/fft/helper.py"), get_package("python/email/policy.py"), get_package("python/abc.py")
    ('numpy', 'python/email', 'python/abc.py')
    """
    parts = name.split("/")
    return "/".join(parts[: 2 if parts[0] == STANDARD_LIBRARY else 1])


def list_installed() -> list[str]:
    """The standard library and all installed packages; single modules and Headwise itself are left out."""
    skipped = {*SKIPPED, __name__.partition(".")[0]}
    specs = {name: PathFinder.find_spec(name) for name in sorted(packages_distributions()) if name.isidentifier()}
    packages = (name for name, spec in specs.items() if spec and spec.submodule_search_locations)
    return [STANDARD_LIBRARY, *(name for name in packages if name not in skipped)]


def find_folder(package: str) -> Path:
    """The folder of an installed package; the package is not imported."""
    if package == STANDARD_LIBRARY:
        return Path(os.__file__).parent
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"data.name: docstrings: no package '{package}' is installed; install it or name another")
    return Path(next(iter(spec.submodule_search_locations)))


def read_docstrings(path: Path) -> Iterator[Pair]:
    """Body and first line of each docstring of a file that has enough prose."""
    tree = parse_file(path)
    for node in ast.walk(tree) if tree else ():
        text = ast.get_docstring(node, clean=False) if isinstance(node, DOCUMENTED) else None
        if text and (pair := split_docstring(text)):
            yield pair


def parse_file(path: Path) -> ast.Module | None:
    """The syntax tree of a Python file; None of templates and examples of old syntax."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of escapes in other people's strings
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None


def split_docstring(text: str) -> Pair | None:
    """Body and first line, each on one line; None where there is too little prose.

    >>> split_docstring("Return the sum.\\n\\n    Of all numbers that are given, and of those that a list of them has.")
    ('Of all numbers that are given, and of those that a list of them has.', 'Return the sum.')
    """
    first, *rest = re.split(r"\n\s*\n", cleandoc(text))
    first_line, *wrapped = first.splitlines() or [""]
    paragraphs = ["\n".join(wrapped), *rest]
    body = " ".join(" ".join(paragraph.split()) for paragraph in paragraphs if is_prose(paragraph))
    enough = len(first_line.split()) >= MIN_WORDS[0] and len(body.split()) >= MIN_WORDS[1]
    return (body, " ".join(first_line.split())) if enough else None


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is prose: sentences, not code, a table or a list of arguments.

    >>> is_prose("The mean of all values."), is_prose(">>> mean([1, 2])"), is_prose("x : int")
    (True, False, False)
    """
    text = paragraph.strip()
    plain = sum(letter.isalpha() or letter in " \n.,;'" for letter in text)
    return len(text.split()) > 3 and plain >= PROSE * len(text) and not text.startswith((">>>", "..", ":"))
