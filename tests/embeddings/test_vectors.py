"""Vectors as values and files, and as the beginning of other models."""

import numpy as np
import pytest
import torch

import headwise
from headwise.embeddings import Vectors, initialise
from headwise.errors import UserError
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words

SQUARE = Vectors(
    ("king", "man", "woman", "queen", "nothing"),
    np.array([[1.0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 0, 0]], dtype=np.float32),
)


def test_analogy_is_king_minus_man_plus_woman():
    (word, _), *others = SQUARE.analogy("king", "man", "woman", count=4)
    assert word == "queen"
    assert [other for other, _ in others] == ["nothing"]  # the words of the question are no answers


def test_nearest_gives_cosines():
    assert SQUARE.nearest("man", count=1) == [("king", pytest.approx(0.5**0.5))]


def test_an_unknown_word_is_told_with_its_like():
    with pytest.raises(UserError, match="no word 'kin'; did you mean king"):
        SQUARE.nearest("kin")


def test_text_files_give_back_every_bit(tmp_path):
    table = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    written = Vectors([f"wörd{number}" for number in range(50)], table)
    result = Vectors.read(written.save(tmp_path / "vectors.txt"))
    assert list(result.words) == list(written.words)
    assert np.array_equal(result.table, table)
    assert (tmp_path / "vectors.txt").read_text(encoding="utf-8").splitlines()[0] == "50 7"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: is not `words width`"),
        ("a 1 2\n", "line 1: is not `words width`"),
        ("1 2\na 1 x\n", "line 2: has something that is not a finite number"),
        ("1 2\na 1\n", "line 2: 1 numbers instead of 2"),
        ("1 2\n\n", "line 2: is empty"),
        ("2 1\na 1\na 2\n", "line 3: 'a' is there twice"),
        ("3 1\na 1\nb 2\n", "has 2 words instead of the 3"),
        ("1 1\na nan\n", "line 2: has something that is not a finite number"),
    ],
)
def test_a_damaged_file_is_told_by_its_line(tmp_path, text, complaint):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=complaint):
        Vectors.read(path)


def test_words_with_spaces_do_not_fit_the_format(tmp_path):
    with pytest.raises(UserError, match="white space"):
        Vectors(("a b",), np.zeros((1, 2))).save(tmp_path / "v.txt")


@pytest.fixture
def file(tmp_path):
    table = np.random.default_rng(1).normal(size=(4, 32)).astype(np.float32)
    return Vectors(("cat", "dog", "Hund", "sky"), table).save(tmp_path / "vectors.txt")


def test_a_transformer_begins_with_the_vectors_of_its_words(file):
    tokenisers = Tokenisers(Words(["cat", "bird", "dog"]), Words(["Hund", "Katze"]))
    model = headwise.build("transformer-tiny", vocab=7, outputs=6)
    before = model.encoder.embed.table.weight.detach().clone()
    said = []
    initialise(model, tokenisers, Vectors.read(file), said.append)
    vectors = Vectors.read(file)
    source, target = (side.embed.table.weight.detach() for side in (model.encoder, model.decoder))
    assert torch.equal(source[[4, 6]], torch.from_numpy(vectors.table[:2]))
    assert torch.equal(source[[0, 1, 2, 3, 5]], before[[0, 1, 2, 3, 5]])
    assert torch.equal(target[4], torch.from_numpy(vectors.table[2]))
    assert model.encoder.embed.table.weight.requires_grad
    assert [line.split(" begin")[0] for line in said] == ["2 of 3 words (67 %)", "1 of 2 words (50 %)"]


def test_adaptive_embeddings_have_no_table_for_vectors(file):
    words = Tokenisers(Words(["cat", "bird", "dog"]), Words(["cat", "bird", "dog"]))
    model = headwise.build("transformer-tiny", vocab=7, token_embedding={"kind": "adaptive", "cutoffs": [4]})
    with pytest.raises(UserError, match=r"^model\.embeddings: adaptive embeddings have no table for word vectors; use"):
        initialise(model, words, Vectors.read(file), print)


def test_one_table_for_both_sides_is_filled_once(file):
    words = Words(["cat", "dog"])
    model = headwise.build("transformer-tiny", vocab=6, task="language-model")
    said = []
    initialise(model, Tokenisers(words, words), Vectors.read(file), said.append)
    assert len(said) == 1


def test_another_width_and_foreign_words_are_refused(file):
    words = Words(["cat"])
    with pytest.raises(UserError, match=r"32 wide, the model's 16; give it that width"):
        initialise(
            headwise.build("transformer-tiny", vocab=5, width=16), Tokenisers(words, words), Vectors.read(file), print
        )
    foreign = Words(["ねこ"])
    with pytest.raises(UserError, match="no word of"):
        initialise(headwise.build("transformer-tiny", vocab=5), Tokenisers(foreign, foreign), Vectors.read(file), print)
