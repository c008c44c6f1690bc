"""WordNet's noun files (Miller 1995; the format is `man 5 wndb`): words, their kinds and what they are parts of.

Debian's package `wordnet-base` puts them in /usr/share/wordnet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwise.data.files import read_lines
from headwise.errors import UserError

FILES = ("index.noun", "data.noun")
HYPERNYMS = ("@", "@i")  # a kind, and the class of a named thing
PART_HOLONYMS = ("#p",)


@dataclass(frozen=True)
class Synset:
    """Words of one meaning, and the offsets of related synsets by pointer symbol."""

    words: tuple[str, ...]
    pointers: tuple[tuple[str, str], ...]

    def follow(self, symbols: tuple[str, ...]) -> list[str]:
        return [offset for symbol, offset in self.pointers if symbol in symbols]


def find_wordnet(folder: str) -> list[Path]:
    """The noun files; an error names the package that has them."""
    files = [Path(folder).expanduser() / name for name in FILES]
    for file in files:
        if not file.is_file():
            raise UserError(
                f"data.name: questions: {file} is missing; install WordNet (Debian: apt install wordnet-base), "
                "or set wordnet= to the folder of its files"
            )
    return files


def read_related(folder: str, symbols: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Each noun, and the words of the synsets that its senses point to, in order and without duplicates.

    Only senses that occur in the texts that were tagged for WordNet are read: rare senses and rare words are left out.
    """
    index, data = find_wordnet(folder)
    synsets = read_synsets(data)
    for word, senses in read_senses(index):
        targets = [target for sense in senses for target in synsets[sense].follow(symbols)]
        related = dict.fromkeys(name for target in targets for name in synsets[target].words if name != word)
        if related:
            yield word, list(related)


def read_senses(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The offsets of each noun's tagged senses, the most frequent first.

    A line: lemma pos synset_cnt p_cnt [symbol...] sense_cnt tagsense_cnt [offset...].
    """
    for number, fields in _read_fields(path):
        try:
            pointers = int(fields[3])
            tagged = int(fields[5 + pointers])
            yield fields[0].replace("_", " "), fields[6 + pointers :][:tagged]
        except (ValueError, IndexError):
            raise _refuse(path, number) from None


def read_synsets(path: Path) -> dict[str, Synset]:
    """The synsets by offset.

    A line: offset file type w_cnt (hexadecimal) word id [word id...] p_cnt symbol offset pos numbers [...] | gloss.
    """
    synsets = {}
    for number, fields in _read_fields(path):
        try:
            end = 4 + 2 * int(fields[3], 16)
            words = tuple(word.replace("_", " ") for word in fields[4:end:2])
            pointers = fields[end + 1 :][: 4 * int(fields[end])]
            nouns = zip(pointers[::4], pointers[1::4], pointers[2::4], strict=True)
            synsets[fields[0]] = Synset(words, tuple((symbol, offset) for symbol, offset, pos in nouns if pos == "n"))
        except (ValueError, IndexError):
            raise _refuse(path, number) from None
    return synsets


def _read_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line; the licence at the top is indented."""
    return ((number, line.split()) for number, line in read_lines(path) if line.strip() and not line.startswith("  "))


def _refuse(path: Path, number: int) -> UserError:
    return UserError(f"{path}, line {number}: not a line of WordNet's noun files; install WordNet again")
