"""Modules and classes as documents: leads, ranked paragraphs, and inputs cut to a number of words."""

from pathlib import Path

import pytest

from headwise.config.base import validate
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.documents import Documents, read_documents, write_title
from headwise.errors import UserError

PADDING = "This paragraph has nothing to do with the matter, and is here to make the text long enough to be taken."
MODULE = f'''"""Numbers of several kinds, and what can be done with them.

{PADDING}

>>> code is not prose
"""

class BigNumber:
    """A number of any size, however many digits it may have.

    {PADDING} It has a few more words.

    {PADDING} It has some other words.
    """

    def add(self):
        """Add one number to another.

        A big number and a big number are added digit by digit, as one does it on paper with a pencil in one hand.
        """
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.py"
    path.write_text(MODULE)
    return path


def test_leads_of_module_and_class(module: Path) -> None:
    (title, paragraphs, lead), (inner_title, inner, inner_lead) = read_documents("maths/numbers.py", module)
    assert title == "maths numbers" and lead == "Numbers of several kinds, and what can be done with them."
    assert inner_title == "Big Number" and inner_lead.startswith("A number of any size")
    assert inner_lead in paragraphs and lead not in paragraphs and inner_lead not in inner
    assert paragraphs[0] == PADDING and not any(">>>" in text for text in paragraphs)
    assert set(inner) < set(paragraphs)


def test_paragraphs_are_ranked_by_the_title(module: Path) -> None:
    ranked, plain = (
        {lead: source for source, lead in Documents(extract=extract).read_file("maths/numbers.py", module)}
        for extract in ("tf-idf", "none")
    )
    lead = "A number of any size, however many digits it may have."
    assert ranked[lead].startswith("Big Number. A big number and a big number are added")
    assert plain[lead].startswith(f"Big Number. {PADDING}")
    assert sorted(ranked[lead].split()) == sorted(plain[lead].split())


def test_titles_of_packages() -> None:
    assert write_title("numpy/linalg/__init__.py") == "numpy linalg"


def test_the_corpus_of_installed_modules(tmp_path: Path) -> None:
    data = TextDataConfig(name="documents:packages=asyncio+logging+unittest", cache=str(tmp_path))
    whole = load_corpus(data)
    cut = load_corpus(data.replace(source_words=40))
    assert len(list(whole.train)) > 15
    for part in ("train", "valid", "test"):
        for (source, lead), (beginning, same) in zip(getattr(whole, part), getattr(cut, part), strict=True):
            assert lead == same and source.startswith(beginning) and beginning.split() == source.split()[:40]
            assert lead not in source


def test_words_are_kept_in_all_parts_and_tabs_stay(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    short = "why\tbecause " + "x" * 40  # with fewer words than are kept
    file.write_text(f"q\tt\ta\nwho is it\tit is a dog\tdog\n{short}\ty\n")
    data = TextDataConfig(
        train=(str(file),), valid=(str(file),), test=(str(file),), columns=("q", "t", "a"), source_words=5
    )
    corpus = load_corpus(data)
    assert list(corpus.train) == corpus.valid == corpus.test == [("who is it\tit is", "dog"), (short, "y")]
    with pytest.raises(UserError, match="has no sources to keep `source_words` of"):
        validate(TextDataConfig, {"train": "book.txt", "format": "text", "source_words": 5})
