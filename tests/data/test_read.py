import gzip

import pytest

from headwise.data.read import read_pairs
from headwise.errors import UserError


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
def test_tsv(write, name):
    content = "\ufeffHello\tHallo\tnote\r\n\n two words \tzwei  Wörter\nline\u2028sep\tx"
    expected = [("Hello", "Hallo"), ("two words", "zwei  Wörter"), ("line\u2028sep", "x")]
    assert list(read_pairs((write(name, content),))) == expected


def test_aligned(write):
    files = write("a.en", "one\n\ntwo\n"), write("a.de.gz", "eins\n\nzwei")
    assert list(read_pairs(files)) == [("one", "eins"), ("two", "zwei")]


def test_dictionary(write):
    content = ";;; comment\nREAD  R EH1 D\nREAD(2)  R IY1 D # verb\nREAD(3)  R EH0 D\nb'day  B IY1 D EY2\n"
    expected = [("read", "R EH D"), ("read", "R IY D"), ("b'day", "B IY D EY")]
    assert list(read_pairs((write("words.dict", content),), "dictionary")) == expected


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a\tb\nc\t\n", "line 2: the target is empty"),
        ("a\tb\n\nc\td\n\tx\n", "line 4: the source is empty"),
        ("a\tb\nno tab here\n", "line 2: no tab"),
        (b"a\tb\nc\td\ncaf\xe9\tx\n", r"line 3: not UTF-8 \(byte 4\)"),
        ("", "has no pairs"),
        ("\n\n", "has no pairs"),
    ],
)
def test_bad_tsv(write, content, complaint):
    path = write("pairs.tsv", content)
    with pytest.raises(UserError, match=complaint) as caught:
        list(read_pairs((path,)))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("left", "right", "complaint"),
    [
        ("a\nb\nc\n", "x\ny\n", r"a.en, line 3: .*a.de ends after line 2"),
        ("a\n", "x\ny\nz\n", r"a.de, line 2: .*a.en ends after line 1"),
        ("a\n \n", "x\ny\n", r"a.en, line 2: the source is empty"),
        ("a\nb\n", b"x\n\xff\n", r"a.de, line 2: not UTF-8"),
        ("a\nb\n", "x\n\n", r"a.de, line 2: the target is empty"),
        ("", "", r"a.en and .*a.de: has no pairs"),
    ],
)
def test_bad_alignment(write, left, right, complaint):
    with pytest.raises(UserError, match=complaint):
        list(read_pairs((write("a.en", left), write("a.de", right))))


def test_bad_files(write, tmp_path):
    with pytest.raises(UserError, match=r"none.tsv: there is no such file"):
        list(read_pairs((tmp_path / "none.tsv",)))
    with pytest.raises(UserError, match=r"has no texts; add files that end in .tsv"):
        list(read_pairs((tmp_path,)))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_pairs((write("folder.tsv", "a\tb\n") / "none.tsv",)))
    intact = gzip.compress(b"a\tb\n" * 1000)
    for broken in (b"a\tb\n", intact[:-5], intact[:12] + b"\xff\xff\xff" + intact[15:]):
        path = tmp_path / "broken.tsv.gz"
        path.write_bytes(broken)
        with pytest.raises(UserError, match="not a complete gzip file"):
            list(read_pairs((path,)))
