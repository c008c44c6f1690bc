"""Docstrings of installed packages as a corpus: prose alone, no text in two parts, errors."""

import re
from pathlib import Path

import pytest

from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.docstrings import Docstrings, get_package, list_installed, read_docstrings, split_docstring
from headwise.errors import UserError

NAME = "docstrings:packages=asyncio+email+logging+unittest"


def load_parts(cache: Path, **settings: object) -> list[list[tuple[str, str]]]:
    corpus = load_corpus(TextDataConfig(name=NAME, cache=str(cache), **settings))
    return [list(corpus.train), corpus.valid, corpus.test]


def test_bodies_are_prose_and_in_one_part(tmp_path: Path) -> None:
    parts = load_parts(tmp_path)
    bodies = [body for part in parts for body, _ in part]
    assert len(bodies) == len(set(bodies)) > 80 and len(parts[0]) > len(parts[1]) + len(parts[2])
    assert not any(">>>" in body or "\n" in body for body in bodies)
    assert all(len(body.split()) >= 12 and len(summary.split()) >= 3 for part in parts for body, summary in part)


def test_a_language_model_reads_the_bodies_alone(tmp_path: Path) -> None:
    pairs, texts = (load_parts(tmp_path, **settings)[0] for settings in ({}, {"columns": (1,)}))
    assert [("", body) for body, _ in pairs] == texts


def test_code_and_lists_of_arguments_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        'def f(x):\n    """Return the sum of all.\n\n'
        "    It adds one number after the other, as one would by hand on a sheet of paper.\n\n"
        '    >>> f([1, 2])\n    3\n\n    :param x: the numbers\n    """\n'
        'def g():\n    """Too short."""\n'
    )
    body = "It adds one number after the other, as one would by hand on a sheet of paper."
    assert list(read_docstrings(file)) == [(body, "Return the sum of all.")]
    assert split_docstring("") is None


def test_files_that_are_no_python_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "template.py"
    file.write_text("class {{ name }}:")
    assert list(read_docstrings(file)) == []


def test_a_package_is_in_one_part_alone() -> None:
    packages = "html+json+logging+xml"
    corpus = Docstrings(packages=packages, split="package")
    parts = corpus.generate("")
    found = {
        package: {part for part, pairs in parts.items() for pair in pairs if pair in texts}
        for package in packages.split("+")
        for texts in [{pair for name, path in corpus.list_files() if get_package(name) == package
                       for pair in read_docstrings(path)}]
    }  # fmt: skip
    assert all(len(where) <= 1 for where in found.values()) and sum(map(len, found.values())) > 2
    assert found["xml"] == {"test"} and found["logging"] == {"train"}  # whatever else is installed


def test_installed_packages_are_listed_without_importing_them() -> None:
    names = list_installed()
    assert {"python", "torch", "numpy", "pytest"} <= set(names) and "headwise" not in names
    assert not any(name.startswith("test") for name in names)


@pytest.mark.parametrize("package", ["no_such_package", "a/b", "os"])
def test_a_package_that_is_missing_is_named(package: str, tmp_path: Path) -> None:
    message = f"data.name: docstrings: no package '{package}' is installed; install it or name another"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        load_corpus(TextDataConfig(name=f"docstrings:packages={package}", cache=str(tmp_path)))
