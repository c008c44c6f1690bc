import numpy as np
import pytest
import torch

from headwise.errors import UserError
from headwise.hmm.endings import PRIOR_STRENGTH, fit_suffixes, hash_key, suffix_keys
from headwise.hmm.model import HiddenMarkov
from headwise.models.hmm import HmmConfig
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, read_checkpoint, restore, save, unique_tensors
from headwise.text import BOS, EOS, SPECIALS, UNK

D, N, V = 4, 5, 6  # determiner, noun, verb
WORDS = [*SPECIALS, "the", "dog", "walks", "dogs", "walking", "talking", "Anna", "Berta"]
SENTENCES = [
    ("the dog walks", [D, N, V]),
    ("the dogs", [D, N]),
    ("Anna walks", [N, V]),
    ("Berta walking", [N, V]),
    ("the dog talking", [D, N, V]),
]


def examples():
    return [(np.array([WORDS.index(word) for word in text.split()]), np.array(tags)) for text, tags in SENTENCES]


def fitted(**settings):
    model = HmmConfig(**{"endings": 64, **settings}).build(len(WORDS), 7, "tag").double()
    model.fit(examples(), WORDS)
    return model


def tag(model, *texts):
    rows = [text.split() for text in texts]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, words in enumerate(rows):
        for place, word in enumerate(words):
            ids[row, place] = WORDS.index(word) if word in WORDS else UNK
    return model.tag(ids, texts=rows).tolist()


def test_transitions_are_counts_with_k_added():
    p = fitted(k=0.5).transition.exp()
    assert p[BOS, D].item() == pytest.approx((3 + 0.5) / (5 + 4 * 0.5))  # what may follow: three tags and the end
    assert p[N, V].item() == pytest.approx((4 + 0.5) / (5 + 4 * 0.5))
    assert p[V, EOS].item() == pytest.approx((4 + 0.5) / (4 + 4 * 0.5))
    assert p[:, [0, BOS, UNK]].sum() == 0  # padding, the start and unseen tags follow nothing


def test_trigrams_lean_on_bigrams():
    two, three = fitted(k=0.5).transition.exp(), fitted(k=0.5, order=3).transition.exp()
    assert three[D, N, V].item() == pytest.approx((2 + 4 * 0.5 * two[N, V].item()) / (3 + 4 * 0.5))
    assert torch.allclose(three[V, V], two[V])  # verbs after verbs were never seen


@pytest.mark.parametrize("order", [2, 3])
def test_probabilities_sum_to_one(order):
    model = fitted(order=order)
    assert torch.allclose(model.transition.exp().sum(-1), torch.ones((7,) * (order - 1), dtype=torch.float64))
    known = model.known.clone()
    known[UNK] = True  # the one row of all unknown words
    assert torch.allclose(model.emission.exp()[known][:, [D, N, V]].sum(0), torch.ones(3, dtype=torch.float64))


def test_context_tells_the_tag_of_an_unknown_word():
    assert tag(fitted(), "the zebra walks", "Anna zebras") == [[D, N, V], [N, V, 0]]


def test_endings_tell_the_tag_of_an_unknown_word():
    model = fitted()
    assert tag(model, "Anna barking", "Carla") == [[N, V], [N, 0]]
    assert tag(model, "the barking")[0] == [D, V]
    ids = torch.tensor([[WORDS.index("the"), UNK]])
    assert model.tag(ids).tolist() == [[D, N]]  # without its text it is a noun, as what follows "the" is
    assert tag(fitted(endings=0), "the barking")[0] == [D, N]


def test_words_of_the_vocabulary_that_were_not_seen_are_unknown():
    model = HmmConfig(endings=64).build(len(WORDS), 7)
    model.fit([row for row, (text, _) in zip(examples(), SENTENCES, strict=True) if "talking" not in text], WORDS)
    assert tag(model, "the talking")[0] == [D, V]
    assert model.emission[WORDS.index("talking")].equal(model.emission[UNK])


def test_many_sentences_are_tagged_as_few_are(monkeypatch):
    model = fitted(order=3)
    texts = ["the barking", "Anna walks", "the dog", "Carla talking", "dogs"] * 3
    together = tag(model, *texts)
    monkeypatch.setattr("headwise.hmm.model.BATCH_TRANSITIONS", 2 * 7**3)
    assert tag(model, *texts) == together


def test_chain_of_keys_grows_from_shape_to_ending():
    assert suffix_keys("A", 3) == ["", "X|", "X|a"]
    assert suffix_keys("42nd", 1) == ["", "x0|", "x0|d"]
    assert suffix_keys("", 2) == ["", "|"]


def test_fractions_of_endings_by_hand():
    ids, shares = fit_suffixes(["ab", "cb"], np.array([[2, 0], [1, 3]]), longest=1, max_keys=10)
    assert ids.tolist() == sorted(map(hash_key, ["", "x|", "x|b"]))
    top = np.array([1.25, 0.75]) / 2  # each word counts once
    shape = (np.array([1.25, 0.75]) + PRIOR_STRENGTH * top) / (2 + PRIOR_STRENGTH)
    assert np.allclose(shares[ids.tolist().index(hash_key("x|"))], shape)
    assert fit_suffixes(["ab", "cd"], np.eye(2), longest=2, max_keys=2)[0].tolist() == sorted(map(hash_key, ["", "x|"]))


@pytest.mark.parametrize("settings", [{}, {"order": 3}, {"endings": 0}])
def test_checkpoint_gives_the_model_back(tmp_path, settings):
    model = fitted(**settings)
    run = Run.create_unique(tmp_path, "hmm", {})
    folder = save(run, Checkpoint({"step": 1}, unique_tensors(model)))
    other = HmmConfig(**{"endings": 64, **settings}).build(len(WORDS), 7).double()
    restore(other, read_checkpoint(folder).model)
    texts = ("the barking zebra", "Doris walks")
    assert tag(other, *texts) == tag(model, *texts)
    with pytest.raises(UserError, match="another architecture"):
        restore(HiddenMarkov(9, 7), read_checkpoint(folder).model)


def test_fitting_again_forgets():
    model = fitted()
    model.fit([(np.array([4]), np.array([N]))])
    assert (model.transition[BOS, D], model.known.sum()) == (-torch.inf, 1)
    assert tag(model, "the", "barking") == [[N], [N]]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "nothing to learn tags from"),
        ([([], [])], "nothing to learn tags from"),
        ([([4], [4]), ([4, 5], [4])], "example 2: 2 words but 1 tags"),
    ],
)
def test_bad_examples(rows, complaint):
    with pytest.raises(UserError, match=complaint):
        HiddenMarkov(6, 6).fit([(np.array(words), np.array(tags)) for words, tags in rows])


def test_config_refuses_what_cannot_be():
    with pytest.raises(UserError, match="cannot transduce, it can tag"):
        HmmConfig().build(10, 6, "transduce")
    for settings in ({"order": 0}, {"order": 4}, {"k": 0}, {"suffix": -1}):
        with pytest.raises(ValueError, match="should be"):
            HmmConfig(**settings)
