"""Documents and their leads, as Wikipedia's in Liu et al. 2018: modules and classes of installed Python packages.

The lead of a module or class is the first paragraph of its docstring. The input is its title, then the prose of the
rest of the docstring and of all docstrings inside, ranked by tf-idf; it may have thousands of words, of which
`data.source_words` keeps the first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Literal

from headwise.data.docstrings import DOCUMENTED, Docstrings, is_prose, parse_file
from headwise.data.texts import Pair
from headwise.data.tfidf import rank_paragraphs

WORDS_OF_LEAD = 6, 60  # fewest and most
MIN_WORDS, MIN_PARAGRAPHS = 60, 3  # of an input
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BLANK_LINE = re.compile(r"\n\s*\n")


class Documents(Docstrings):
    """Title and paragraphs -> lead."""

    extract: Literal["tf-idf", "none"] = "tf-idf"  # the order of the paragraphs; none: as in the file

    def read_file(self, name: str, path: Path) -> Iterator[Pair]:
        for title, paragraphs, lead in read_documents(name, path):
            ordered = rank_paragraphs(title, paragraphs) if self.extract == "tf-idf" else paragraphs
            yield f"{title}. {' '.join(ordered)}", lead


def read_documents(name: str, path: Path) -> Iterator[tuple[str, list[str], str]]:
    """Title, paragraphs and lead of the module and each class of a file that has enough of them."""
    tree = parse_file(path)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Module | ast.ClassDef) and (text := ast.get_docstring(node, clean=False)):
            lead, *rest = split_paragraphs(text)
            inside = [each for each in ast.walk(node) if isinstance(each, DOCUMENTED) and each is not node]
            inner = (ast.get_docstring(each, clean=False) for each in inside)
            texts = [*rest, *(paragraph for text in inner if text for paragraph in split_paragraphs(text))]
            paragraphs = list(dict.fromkeys(" ".join(text.split()) for text in texts if is_prose(text)))
            lead = " ".join(lead.split())
            if is_document(lead, paragraphs):
                yield write_title(name if isinstance(node, ast.Module) else node.name), paragraphs, lead


def is_document(lead: str, paragraphs: list[str]) -> bool:
    """Whether there is a lead of prose, and enough besides it that does not contain it."""
    size = sum(len(paragraph.split()) for paragraph in paragraphs)
    fits = WORDS_OF_LEAD[0] <= len(lead.split()) <= WORDS_OF_LEAD[1] and is_prose(lead)
    return fits and len(paragraphs) >= MIN_PARAGRAPHS and size >= MIN_WORDS and lead not in paragraphs


def split_paragraphs(text: str) -> list[str]:
    return _BLANK_LINE.split(cleandoc(text))


def write_title(name: str) -> str:
    """The words of the name of a file or class.

    >>> write_title("numpy/fft/_pocketfft.py"), write_title("HTTPServerError")
    ('numpy fft pocketfft', 'HTTP Server Error')
    """
    words = re.sub(r"(/__init__)?\.py$", "", name).replace("/", " ").replace("_", " ")
    return " ".join(_CAPITALS.sub(" ", words).split())
