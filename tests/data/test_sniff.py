import pytest

from headwise.data.config import TextDataConfig
from headwise.data.sniff import sniff

ENGLISH = "A man in a blue shirt is standing on a ladder cleaning a window number {}."
GERMAN = "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt Fenster {}."
RUSSIAN = "Мужчина в синей рубашке стоит на лестнице и моет окно номер {}."


@pytest.fixture
def sniff_pairs(tmp_path):
    def sniff_pairs(source, target, count=300):
        path = tmp_path / "pairs.tsv"
        path.write_text("".join(f"{source(i)}\t{target(i)}\n" for i in range(count)))
        return sniff(TextDataConfig(train=str(path)))

    return sniff_pairs


def test_dictionary():
    facts = sniff(TextDataConfig(name="cmudict"))
    assert facts.rows > 130_000
    assert facts.target.symbols
    assert facts.target.distinct_words == 39
    assert (facts.tokeniser.kind, facts.tokeniser.target_side.kind) == ("characters", "words")
    assert "characters" in facts.reasons[0]
    assert "39 different symbols" in facts.reasons[1]


def test_sentences_in_one_alphabet_share_pieces(sniff_pairs):
    facts = sniff_pairs(ENGLISH.format, GERMAN.format)
    assert (facts.tokeniser.kind, facts.tokeniser.size, facts.tokeniser.shared) == ("bpe", 1000, True)
    assert "same letters" in facts.reasons[1]


def test_sentences_in_two_alphabets_do_not(sniff_pairs):
    facts = sniff_pairs(ENGLISH.format, RUSSIAN.format)
    assert (facts.tokeniser.kind, facts.tokeniser.shared) == ("bpe", False)


def test_short_phrases_are_characters(sniff_pairs):
    facts = sniff_pairs(lambda i: f"{i % 28 + 1} March {1900 + i}", lambda i: f"{1900 + i}-03-{i % 28 + 1:02}")
    assert (facts.tokeniser.kind, facts.tokeniser.target_side.kind) == ("characters", "characters")


def test_sentences_to_symbols(sniff_pairs):
    facts = sniff_pairs(ENGLISH.format, lambda i: " ".join(["DET", "NOUN", "VERB", "ADP"][: i % 3 + 2]))
    assert (facts.tokeniser.kind, facts.tokeniser.target_side.kind) == ("bpe", "words")
