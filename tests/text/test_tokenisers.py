import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.errors import UserError
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.config import TOKENISERS
from headwise.text.normalise import PLAIN, Normaliser
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Bytes, Characters, Words

CORPUS = ["the cat sat on the mat", "the dog saw a cat", "naïve café, 北京 🎉", "a mat, a dog"] * 3
PAIRS = [(text, text.upper()) for text in CORPUS]
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
ODD = ["", " ", "\x00", "\ud800 lone", "🎉👨‍👩‍👧", "x" * 10_000, "</s><pad> <unk>", "\u202e\ufeff", "a\u0301" * 500]


def learn(config, normalise=PLAIN):
    return Tokenisers.train(PAIRS, TOKENISERS.parse(config), normalise)


@pytest.fixture(scope="module", params=["characters", "words", "bytes", "bpe", "unigram"])
def tokeniser(request):
    settings = {"size": 300} if request.param in ("bpe", "unigram") else {}
    return learn({"kind": request.param, **settings}).source


@pytest.fixture(scope="module", params=["bytes", "bpe", "unigram"])
def lossless(request):
    settings = {} if request.param == "bytes" else {"size": 300}
    return learn({"kind": request.param, **settings}).source


@settings(max_examples=60, deadline=None)
@given(text=TEXT)
def test_lossless_tokenisers_restore_any_text(lossless, text):
    assert lossless.decode(lossless.encode(text)) == text


@settings(deadline=None)
@given(text=st.text(st.sampled_from("abc é北"), max_size=30))
def test_known_characters_are_restored(text):
    letters = Characters("abc é北")
    assert letters.decode(letters.encode(text)) == text


@settings(deadline=None)
@given(words=st.lists(st.sampled_from(["K", "AE", "T"])))
def test_known_words_are_restored(words):
    tokeniser = Words(["AE", "K", "T"])
    assert tokeniser.decode(tokeniser.encode(" ".join(words))) == " ".join(words)


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_any_text_can_be_encoded_and_gives_no_special_ids(tokeniser, text):
    ids = tokeniser.encode(text)
    assert all(UNK <= i < tokeniser.size for i in ids)
    assert tokeniser.encode_batch([text, "a"]) == [ids, tokeniser.encode("a")]
    assert len(tokeniser.tokens(ids)) == len(ids)
    tokeniser.decode(ids)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_ids_can_be_decoded(tokeniser, data):
    ids = data.draw(st.lists(st.integers(0, tokeniser.size - 1), max_size=20))
    assert tokeniser.decode([PAD, BOS, *ids, EOS]) == tokeniser.decode([i for i in ids if i > EOS])
    assert len(tokeniser.tokens(ids)) == len(ids)


def test_vocabulary_names_are_distinct_and_special_ones_first(tokeniser):
    assert tuple(tokeniser.vocabulary[:4]) == SPECIALS
    assert len(set(tokeniser.vocabulary)) == tokeniser.size


def test_labels_are_readable(tokeniser):
    labels = tokeniser.tokens([BOS, *tokeniser.encode("the cat"), EOS])
    assert (labels[0], labels[-1]) == ("<s>", "</s>")
    assert "".join(labels[1:-1]).replace("▁", " ").replace("<0x20>", " ").split() in (["the", "cat"], ["thecat"])


def test_unknown_units():
    assert Characters("ab").decode(Characters("ab").encode("a?b")) == "a\ufffdb"
    assert Words(["cat"]).encode("cat <unk> dog") == [4, UNK, UNK]


@pytest.mark.parametrize("kind", sorted(set(TOKENISERS.names) - {"parsed", "levels"}))  # of trees and pixels
def test_training_is_deterministic(kind):
    assert learn(kind).to_json() == learn(kind).to_json()


def test_vocabularies_are_sorted_by_frequency_and_limited():
    pairs = [("b b b a a c", "x")]
    words = Tokenisers.train(pairs, TOKENISERS.parse({"kind": "words", "min_count": 2}), PLAIN).source
    assert words.vocabulary[4:] == ["b", "a"]
    words = Tokenisers.train(pairs, TOKENISERS.parse({"kind": "words", "size": 5}), PLAIN).source
    assert words.vocabulary[4:] == ["b"]


def test_subword_size_is_the_whole_vocabulary():
    assert learn({"kind": "bpe", "size": 280}).source.size == 280


def test_a_word_has_the_same_tokens_at_the_start_and_inside():
    bpe = learn({"kind": "bpe", "size": 300}).source
    assert bpe.encode("the the") == 2 * bpe.encode("the")


def test_sides():
    apart = learn({"kind": "characters", "target": {"kind": "words"}})
    assert (apart.source.kind, apart.target.kind, apart.shared) == ("characters", "words", False)
    assert apart.target.encode("THE") != [UNK]
    assert apart.source.encode("T") == [UNK]
    joint = learn({"kind": "characters", "shared": True})
    assert joint.shared
    assert joint.source.encode("tT") != [UNK, UNK]


@pytest.mark.parametrize(
    "config",
    ["characters", {"kind": "bytes", "target": "words"}, {"kind": "bpe", "size": 300, "shared": True}, "unigram"],
)
def test_a_file_restores_the_tokenisers(tmp_path, config):
    before = learn(config, Normaliser("NFKC", lower=True))
    before.save(tmp_path / "tokenizer.json")
    after = Tokenisers.load(tmp_path / "tokenizer.json")
    assert after.to_json() == before.to_json()
    assert after.shared == before.shared
    text = "The CAFÉ ﬁne \ud800"
    assert after.source.encode(text) == before.source.encode(text)
    assert after.target.encode(text) == before.target.encode(text)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not a tokeniser file of Headwise"),
        ('{"version": "1.0", "model": {"type": "BPE"}}', "not a tokeniser file of Headwise"),
        ('{"format": "headwise-tokenisers", "version": 99}', "format version 99"),
        ('{"format": "headwise-tokenisers", "version": 1}', "is damaged"),
        (
            '{"format": "headwise-tokenisers", "version": 1, "source": {"kind": "word"}}',
            "did you mean words",
        ),
        (
            '{"format": "headwise-tokenisers", "version": 1, '
            '"source": {"kind": "bpe", "normalise": {}, "engine": {"model": 1}}}',
            "is damaged",
        ),
        (
            '{"format": "headwise-tokenisers", "version": 1, '
            '"source": {"kind": "words", "normalise": {}, "vocabulary": ["a", "a"]}}',
            "is damaged",
        ),
    ],
)
def test_foreign_files_are_named_and_refused(tmp_path, content, complaint):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(UserError, match=complaint) as caught:
        Tokenisers.load(path)
    assert str(path) in str(caught.value)


def test_missing_and_unwritable_files(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        Tokenisers.load(tmp_path / "none.json")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        Tokenisers(Bytes(), Bytes()).save(tmp_path / "file" / "tokenizer.json")


def test_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    Tokenisers(Bytes(), Bytes()).save(path)
    old = path.read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UserError, match="File too large"):
            learn("characters").save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == old
    assert len(list(tmp_path.iterdir())) == 1
