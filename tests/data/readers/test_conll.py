"""CoNLL-2003 and files of two columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwise.data.read import read_records
from headwise.errors import UserError

NEWS = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n\n"


def test_conll_2003_has_the_tag_in_the_last_column(read):
    assert read("a.conll", NEWS, "conll", one_to_one=True) == [("EU rejects", "B-ORG O"), ("Peter", "B-PER")]
    assert read("a.conll", NEWS, "conll", columns=(1, 2)) == [("EU rejects", "NNP VBZ"), ("Peter", "NNP")]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_two_columns(read, separator):
    text = f"a{separator}D\r\ndog{separator}N\r\n\r\n\r\n#{separator}X\r\n".replace(
        "dog", "hot dog" if separator == "\t" else "dog"
    )
    words = "a hot_dog" if separator == "\t" else "a dog"
    assert read("a.conll", text, "conll") == [(words, "D N"), ("#", "X")]


def test_comments_before_a_sentence_are_skipped(read):
    assert read("a.conll", "# id 1 domain=en\na D\n\n# id 2 domain=en\n# O\nb D\n", "conll") == [
        ("a", "D"),
        ("# b", "O D"),
    ]


def test_sentences_of_a_document_have_its_first_sentence_as_their_group(tmp_path: Path):
    path = tmp_path / "a.conll"
    path.write_text(f"x X X O\n\n{NEWS}{NEWS.replace('EU', 'UN')}")
    groups = [record.group for record in read_records((path,), "conll")]
    assert groups == ["", "EU rejects", "EU rejects", "UN rejects", "UN rejects"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a D\nb\n", "line 2: no tag"),
        ("a D X\nb D\n", "line 2: 2 columns, and there are 3 above"),
        ("a\tb\tD\n\t\tD\n", "line 2: column 1 is empty"),
        ("a\n", "line 1: no tag"),
        ("\n\n", "has no pairs"),
        ("-DOCSTART- O\n", "has no pairs"),
    ],
)
def test_errors_name_the_line(read, text, complaint):
    with pytest.raises(UserError, match=complaint):
        read("a.conll", text, "conll")


def test_columns_are_two_numbers(read):
    for columns in (("word", "tag"), (1,), (1, 2, 3)):
        with pytest.raises(UserError, match="give the numbers of the word and its tag"):
            read("a.conll", NEWS, "conll", columns=columns)
    with pytest.raises(UserError, match="line 3: has 4 columns, and column 7 is read"):
        read("a.conll", NEWS, "conll", columns=(1, 7))


def test_trees_as_brackets(read):
    rows = [("The", 2, "det"), ("dog", 3, "nsubj"), ("barks", 0, "root"), (".", 3, "punct")]
    lines = [f"{n}\t{word}\t_\t_\t_\t_\t{head}\t{label}\t_\t_\n" for n, (word, head, label) in enumerate(rows, 1)]
    assert read("a.conllu", "".join(lines), "conllu-brackets") == [
        ("The dog barks .", "( ( det nsubj* ) root* punct )")
    ]
    message = "line 1: the sentence is no tree: word 2 has the head 3, which there is not; correct its heads"
    with pytest.raises(UserError, match=message):
        read("b.conllu", "".join(lines[:2]), "conllu-brackets")
