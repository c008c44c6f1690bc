"""WordNet's noun files: what is read equals what NLTK's reader finds in them; damaged and missing files are named."""

import re
from pathlib import Path

import nltk.data
import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from headwise.data.wordnet import HYPERNYMS, PART_HOLONYMS, read_related
from headwise.errors import UserError

LICENCE = "  1 This software and database is being provided to you\n"
# words of each synset, its pointers to others by number, and its gloss
SYNSETS = [
    (["entity"], [], "that which exists"),
    (["animal", "beast"], [("@", 0)], "a living being"),
    (["dog", "domestic_dog"], [("@", 1), ("~", 3)], "a member of the genus Canis"),
    (["Laika"], [("@i", 2)], "the first in orbit"),
    (["dog"], [("@", 0)], "a dull unattractive person"),
    (["tail"], [("@", 0), ("#p", 2), ("#p", 1)], "the hind part"),
    (["dog"], [("@", 5)], "a rare sense that no text has"),
]
# senses of each lemma, and how many of them occur in tagged texts
INDEX = {"animal": ([1], 1), "dog": ([2, 4, 6], 2), "entity": ([0], 1), "laika": ([3], 1), "tail": ([5], 0)}


def write_wordnet(folder: Path) -> Path:
    """Noun files with true byte offsets, and what else NLTK's reader opens."""
    for kind in ("noun", "verb", "adj", "adv"):
        for name in (f"data.{kind}", f"index.{kind}", f"{kind}.exc"):
            (folder / name).write_text("")
    (folder / "lexnames").write_text("".join(f"{n:02}\tnoun.x{n}\t1\n" for n in range(4)))
    (folder / "cntlist.rev").write_text("")
    offsets = [0] * len(SYNSETS)
    for _ in range(2):  # a line's length does not depend on the offsets, which have eight digits
        text = LICENCE
        for number, (words, pointers, gloss) in enumerate(SYNSETS):
            offsets[number] = len(text)
            named = " ".join(f"{word} 0" for word in words)
            pointed = "".join(f" {symbol} {offsets[to]:08} n 0000" for symbol, to in pointers)
            text += f"{offsets[number]:08} 03 n {len(words):02x} {named} {len(pointers):03}{pointed} | {gloss}  \n"
    (folder / "data.noun").write_text(text)
    lines = [
        f"{lemma} n {len(senses)} 2 @ ~ {len(senses)} {tagged} {' '.join(f'{offsets[at]:08}' for at in senses)}  \n"
        for lemma, (senses, tagged) in INDEX.items()
    ]
    (folder / "index.noun").write_text(LICENCE + "".join(lines))
    return folder


@pytest.mark.filterwarnings("ignore")  # of NLTK, about files of other languages
@pytest.mark.parametrize(
    ("symbols", "methods"), [(HYPERNYMS, ("hypernyms", "instance_hypernyms")), (PART_HOLONYMS, ("part_holonyms",))]
)
def test_related_words_are_those_that_nltk_finds(
    symbols: tuple[str, ...], methods: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])  # the folders that NLTK may read
    monkeypatch.setattr(WordNetCorpusReader, "map_wn", lambda self: None)  # of other versions, which it would download
    reader = WordNetCorpusReader(str(write_wordnet(tmp_path)), None)
    expected = {}
    for lemma, (_, tagged) in INDEX.items():
        senses = reader.synsets(lemma, "n")[:tagged]
        targets = [target for sense in senses for method in methods for target in getattr(sense, method)()]
        words = {name.replace("_", " ") for target in targets for name in target.lemma_names()}
        expected |= {lemma: words} if words else {}
    assert {word: set(related) for word, related in read_related(str(tmp_path), symbols)} == expected


def test_kinds_of_all_tagged_senses(tmp_path: Path) -> None:
    write_wordnet(tmp_path)
    kinds = dict(read_related(str(tmp_path), HYPERNYMS))
    assert kinds["dog"] == ["animal", "beast", "entity"] and kinds["laika"] == ["dog", "domestic dog"]
    assert "tail" not in kinds  # no tagged sense


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"index\.noun is missing; install WordNet \(Debian: apt install wordnet-base"):
        list(read_related(str(tmp_path), HYPERNYMS))
    write_wordnet(tmp_path)
    (tmp_path / "data.noun").write_text(LICENCE + "00000055 03 n zz dog\n")
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path / 'data.noun'))}, line 2: not a line of WordNet"):
        list(read_related(str(tmp_path), HYPERNYMS))
