"""Texts of any size: pieces join to the text, and errors name the file."""

import gzip
import json

import numpy as np
import pytest

from headwise.data import corpora, examples, splits
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.examples import Examples, tokenise
from headwise.data.files import find_files
from headwise.data.read import read_pairs
from headwise.data.readers import text as text_reader
from headwise.data.readers.text import read_texts
from headwise.data.texts import Continuation, join_pieces, split_pieces
from headwise.errors import UserError
from headwise.text.config import TOKENISERS
from headwise.text.normalise import PLAIN
from headwise.text.tokenisers import Tokenisers

VERSE = "Chapter {}.\r\n\r\n  It was  the {}th of täglich May,\tand don't\n\u3000漢字 said so.\n\n\n"
PROSE = "".join(VERSE.format(number, number) for number in range(60))
LINES = PROSE.replace("\r\n", "\n")


@pytest.fixture
def put(tmp_path):
    """Write files and return their folder."""

    def put(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return tmp_path

    return put


@pytest.fixture(params=[16, 37, 200])
def small(request, monkeypatch):
    """Make pieces so small that short texts have several."""
    monkeypatch.setattr(text_reader, "PIECE_SIZE", request.param)
    monkeypatch.setattr(examples, "CHUNK_CHARACTERS", request.param)


def read(path, format):
    return [text for _, text in join_pieces(("", text) for text in read_texts((path,), format))]


def test_pieces_of_a_file_join_to_its_text(put, small):
    path = put(a_txt=b"\xef\xbb\xbf" + PROSE.encode()) / "a.txt"
    pieces = list(read_texts((path,), "text"))
    assert [type(piece) for piece in pieces] == [str] + [Continuation] * (len(pieces) - 1) and len(pieces) > 10
    assert "".join(pieces) == LINES
    assert "".join(split_pieces(PROSE, 20)) == PROSE


def test_documents_are_separated_by_blank_lines(put, small):
    path = put(a_txt_gz=PROSE + " \n \t\n" + "word " * 100) / "a.txt.gz"
    long = ("word " * 100).strip()
    assert read(path, "documents") == [part.strip() for part in LINES.split("\n\n") if part.strip()] + [long]
    assert read(path, "lines") == [line.strip() for line in LINES.split("\n") if line.strip()] + [long]


@pytest.mark.parametrize("kind", ["characters", "words", "bytes", "bpe", "unigram"])
def test_pieces_give_the_tokens_of_the_whole_text(kind, small):
    config = TOKENISERS.parse({"kind": kind, "shared": True, **({"size": 400} if kind in ("bpe", "unigram") else {})})
    tokenisers = Tokenisers.train([("", PROSE)], config, PLAIN)
    several = Examples.from_rows(tokenise([("", "first"), ("", PROSE), ("", "last")], tokenisers))
    assert [several[number][1].tolist() for number in range(3)] == [
        tokenisers.target.encode(text) for text in ("first", PROSE, "last")
    ]


def test_long_targets_are_streamed_into_the_cache_or_dropped(tmp_path, small):
    tokenisers = Tokenisers.train([("", PROSE)], TOKENISERS.parse("bytes"), PLAIN)
    for limit, lengths in ((10, [2, 3]), (10**6, [2, len(PROSE.encode()), 3])):
        folder = tmp_path / str(limit)
        folder.mkdir()
        examples.write_examples(folder, tokenise([("", "ab"), ("", PROSE), ("", "abc")], tokenisers), 260, limit)
        loaded = Examples.load(folder)
        assert loaded.lengths[:, 1].tolist() == lengths and loaded.dropped == 3 - len(lengths)
        assert loaded[len(loaded) - 1][1].tolist() == tokenisers.target.encode("abc")


def test_folders_patterns_and_lists_of_files(put):
    record = json.dumps({"text": "from\n\njson", "id": 1}) + "\n\n" + json.dumps({"text": " "}) + "\n"
    root = put(
        b_txt="plain", sub__a_txt_gz="packed", sub__c_jsonl=record, sub__d_jsonl_gz=record, sub__note_md="no text"
    )
    expected = ["plain", "packed", "from\n\njson", "from\n\njson"]
    for train in (".", ["b.txt", "sub"], ["b.txt", "sub/*.gz", "sub/*.jsonl"], "**/*[tlz]"):
        data = TextDataConfig(root=str(root), train=train, valid="b.txt", format="text")
        assert sorted(text for _, text in load_corpus(data).train) == sorted(expected)
    assert [text for _, text in read_pairs((root,), "text")] == expected
    (root / "[odd]*.txt").write_text("odd")
    assert find_files([root / "[odd]*.txt"]) == (root / "[odd]*.txt",)


def test_texts_of_several_files_are_held_out_whole(put, small):
    root = put(**{f"book{i}_txt": f"{i} " + PROSE[:600] for i in range(20)})
    corpus = load_corpus(
        TextDataConfig(root=str(root), train="*.txt", format="text", valid_fraction=0.1, test_fraction=0.05)
    )
    parts = [list(join_pieces(corpus.train)), corpus.valid, corpus.test]
    assert [len(part) for part in parts] == [17, 2, 1]
    assert {text for part in parts for _, text in part} == {text for _, text in read_pairs((root,), "text")}


def test_the_validation_part_of_one_long_text_is_bounded(put, small, monkeypatch):
    path = put(a_txt=PROSE) / "a.txt"
    data = TextDataConfig(train=str(path), format="text", valid_fraction=0.2, test_fraction=0.1)
    parts = load_corpus(data)
    [[train]] = [list(join_pieces(parts.train))]
    assert train[1] + parts.valid[0][1] + parts.test[0][1] == LINES
    monkeypatch.setattr(corpora, "MAX_VALID", 100)
    parts = load_corpus(data)
    assert len(parts.valid[0][1]) == 100 and parts.test[0][1] == LINES[int(len(LINES) * 0.9) :]


def test_tokenisers_are_trained_on_a_sample_of_all_files(put, monkeypatch):
    root = put(**{f"{letter}_txt": f"{letter}\n" * 100 for letter in "abcdefghij"})
    corpus = load_corpus(TextDataConfig(root=str(root), train=".", valid="a.txt", format="lines"))
    assert corpus.sample is corpus.train
    monkeypatch.setattr(corpora, "SAMPLE_BYTES", 500)
    sample = [text for _, text in corpus.sample]
    assert len(sample) == 200 and {sample.count(letter) for letter in "abcdefghij"} == {20}


def test_the_split_does_not_depend_on_the_sort_block(put, monkeypatch):
    root = put(a_txt="".join(f"line {i}\n" for i in range(500)))
    data = TextDataConfig(root=str(root), train="a.txt", format="lines", valid_size=10)
    few = load_corpus(data.replace(test_fraction=0.001)).valid
    assert len(few) == 10
    monkeypatch.setattr(splits, "SORT_BLOCK", 7)
    valid = {text for _, text in load_corpus(data).valid}
    assert len(valid) == 10 and len(valid & {text for _, text in few}) == 9  # the lowest one is in the test part


@pytest.mark.parametrize(
    ("train", "complaint"),
    [
        ("empty", r"empty: has no texts; add files that end in .txt, "),
        ("x*.txt", r"x\*.txt: no file matches this pattern"),
        ("none.txt", r"none.txt: there is no such file"),
        ("bad.jsonl", r'bad.jsonl, line 2: no text under the key "text"'),
        ("list.jsonl", r'list.jsonl, line 1: not an object; write one per line, such as {"text": "..."}'),
        ("cut.jsonl", r"cut.jsonl, line 1: not JSON \(unterminated string"),
        ("latin.txt", r"latin.txt, line 3: not UTF-8 \(byte 4\)"),
        ("half.txt", r"half.txt, line 2: not UTF-8 \(byte 2\)"),
        ("half.gz", r"half.gz: is not a complete gzip file"),
        ("blank", r"blank/a.txt and 1 other files: has no text"),
    ],
)
def test_bad_input(put, train, complaint):
    root = put(
        bad_jsonl='{"text": "a"}\n{"txt": "b"}\n', list_jsonl="[1]\n", cut_jsonl='{"text": "a\n', empty__note_md="x",
        latin_txt=b"a\nb\ncaf\xe9\n", half_txt=b"a\nb\xc3", blank__a_txt="\n \n", blank__b_txt="",
    )  # fmt: skip
    (root / "half.gz").write_bytes(gzip.compress(b"text" * 1000)[:-9])
    with pytest.raises(UserError, match=complaint):
        load_corpus(TextDataConfig(root=str(root), train=train, format="text"))


def test_texts_are_mapped_not_copied(put):
    root = put(a_txt="some text " * 100)
    tokenisers = Tokenisers.train([], TOKENISERS.parse("bytes"), PLAIN)
    folder = root / "cache"
    folder.mkdir()
    examples.write_examples(folder, tokenise([("", "some text")], tokenisers), 260, 99)
    tokens = Examples.load(folder).tokens
    assert tokens.dtype == np.uint16 and isinstance(tokens.base, np.memmap)
