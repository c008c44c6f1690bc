"""Hidden Markov language models: against all sequences of states, enumerated, against nltk, and against themselves."""

import itertools
import math

import numpy as np
import pytest
import torch
from nltk.probability import DictionaryConditionalProbDist, DictionaryProbDist
from nltk.tag.hmm import HiddenMarkovModelTagger, HiddenMarkovModelTrainer

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.hmm.language_model import HiddenMarkovLanguageModel, make_batches
from headwise.models.hmm import HmmConfig
from headwise.text import BOS, EOS, PAD

VOCAB, STATES = 8, 3


def draw_texts(seed: int = 0, count: int = 20, longest: int = 9) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(4, VOCAB, size=random.integers(1, longest)) for _ in range(count)]


def build_random(seed: int = 0, k: float = 1e-12) -> HiddenMarkovLanguageModel:
    torch.manual_seed(seed)
    model = HiddenMarkovLanguageModel(VOCAB, STATES, k).double()
    unigram = torch.ones(VOCAB, dtype=torch.float64)
    unigram[[PAD, BOS]] = 0
    model.initialise(unigram / unigram.sum())
    return model


def enumerate_paths(model: HiddenMarkovLanguageModel, text: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of the text with EOS and each sequence of states."""
    tokens = [*text.tolist(), EOS]
    paths = {}
    for path in itertools.product(range(STATES), repeat=len(tokens)):
        p = float(model.initial[path[0]])
        for before, after in itertools.pairwise(path):
            p *= float(model.transition[before, after])
        paths[path] = p * math.prod(float(model.emission[token, z]) for token, z in zip(tokens, path, strict=True))
    return paths


def test_the_likelihood_is_the_sum_over_all_sequences_of_states():
    model = build_random()
    for text in draw_texts(count=6, longest=5):
        ids = torch.tensor([[BOS, *text, PAD]])  # padding on the right is not scored
        labels = torch.tensor([[*text, EOS, PAD]])
        expected = -math.log(sum(enumerate_paths(model, text).values()))
        loss = model(ids, labels)
        assert float(loss.total) == pytest.approx(expected, rel=1e-12)
        assert int(loss.count) == len(text) + 1
        log_p = model(ids)[0, : len(text) + 1]
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(len(text) + 1, dtype=torch.float64))
        assert float(-log_p.gather(1, labels[0, : len(text) + 1, None]).sum()) == pytest.approx(expected, rel=1e-12)


def test_expected_counts_are_those_of_all_sequences_of_states():
    model, texts = build_random(1), draw_texts(2, count=5, longest=5)
    initial, transition, emission = torch.zeros(STATES), torch.zeros(STATES, STATES), torch.zeros(VOCAB, STATES)
    for text in texts:
        paths = enumerate_paths(model, text)
        total = sum(paths.values())
        for path, p in paths.items():
            initial[path[0]] += p / total
            for before, after in itertools.pairwise(path):
                transition[before, after] += p / total
            for token, z in zip([*text, EOS], path, strict=True):
                emission[token, z] += p / total
    counts = model.count(make_batches([np.append(text, EOS) for text in texts]))
    for ours, expected in ((counts.initial, initial), (counts.transition, transition), (counts.emission, emission)):
        torch.testing.assert_close(ours, expected.double(), rtol=1e-4, atol=1e-5)  # sums in single precision


def test_an_iteration_is_that_of_nltk():
    """nltk updates transitions and outputs, not priors. Its symbols are those of the texts with their EOS."""
    model, texts = build_random(3), draw_texts(4)
    states, symbols = list(range(STATES)), [EOS, UNKNOWN := 3, *range(4, VOCAB)]

    def to_nltk(p: torch.Tensor, names: list[int]) -> DictionaryProbDist:
        return DictionaryProbDist({name: float(value) for name, value in zip(names, p, strict=True)})

    theirs = HiddenMarkovModelTagger(
        symbols,
        states,
        DictionaryConditionalProbDist({z: to_nltk(model.transition[z], states) for z in states}),
        DictionaryConditionalProbDist({z: to_nltk(model.emission[symbols, z], symbols) for z in states}),
        to_nltk(model.initial, states),
    )
    sequences = [[(int(token), None) for token in [*text, EOS]] for text in texts]
    theirs = HiddenMarkovModelTrainer(states, symbols).train_unsupervised(sequences, model=theirs, max_iterations=1)
    counts = model.count(make_batches([np.append(text, EOS) for text in texts]))
    unigram = torch.full((VOCAB,), 1 / VOCAB, dtype=torch.float64)
    model.maximise(counts, unigram)
    for z in states:
        for other in states:
            assert float(model.transition[z, other]) == pytest.approx(theirs._transitions[z].prob(other), rel=1e-6)
        for symbol in symbols:
            ours = float(model.emission[symbol, z])
            assert ours == pytest.approx(theirs._outputs[z].prob(symbol), rel=1e-6, abs=1e-9), symbol
    assert UNKNOWN not in {int(token) for text in texts for token in text}


def test_no_iteration_lowers_the_likelihood():
    torch.manual_seed(0)
    model = HiddenMarkovLanguageModel(VOCAB, STATES, k=1e-9, iterations=25)
    gains = model.fit(draw_texts(5, count=60))
    assert len(gains) > 2
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(gains))
    assert gains[-1] > gains[0]


def test_classes_that_alternate_are_found():
    """Vowels and consonants in turn: the states learn the two classes, and text is predicted as well as can be."""
    random = np.random.default_rng(0)
    texts = [np.stack([random.integers(4, 6, 10), random.integers(6, 8, 10)], 1).flatten() for _ in range(200)]
    torch.manual_seed(0)
    model = HiddenMarkovLanguageModel(VOCAB, states=3, k=1e-3, iterations=100)
    gains = model.fit(texts)
    best = -(20 * math.log(2) + math.log(10) + 9 * math.log(10 / 9)) / 21  # each of two letters; the end after 10 pairs
    assert gains[-1] == pytest.approx(best, abs=0.02)
    after_vowel, after_consonant = model(torch.tensor([[BOS, 4, 6]]))[0, 1:].exp()
    assert after_vowel[4:6].sum() < 0.02 and after_consonant[6:].sum() < 0.02


def test_decoding_gives_the_full_pass_and_prompts_may_be_padded():
    model = build_random(7)
    prompt = torch.tensor([[BOS, 4, 5], [PAD, BOS, 6]])
    state = model.start(prompt[:, :-1])
    log_p, state = model.step(prompt[:, -1], state)
    torch.testing.assert_close(log_p[0], model(prompt[:1])[0, -1])
    torch.testing.assert_close(log_p[1], model(prompt[1:, 1:])[0, -1])
    joined = state.select(torch.tensor([1])).join(state.select(torch.tensor([0])))
    torch.testing.assert_close(joined.probabilities, state.probabilities.flip(0))
    (first, *_), _ = decode(model, [[4], [6, 7]], DecodeConfig(beams=3, max_ratio=0, max_extra=4), torch.device("cpu"))
    assert len(first.ids) <= 4


def test_a_text_in_pieces_has_nearly_the_counts_of_the_whole(monkeypatch):
    model, text = build_random(8), np.append(draw_texts(9, count=1, longest=200)[0], EOS)
    (whole,) = [model.count(make_batches([text]))]
    monkeypatch.setattr("headwise.hmm.language_model.MAX_LENGTH", 16)
    pieces = model.count(make_batches([text]))
    assert pieces.tokens == whole.tokens and float(pieces.initial.sum()) == pytest.approx(1)
    assert pieces.log_likelihood == pytest.approx(whole.log_likelihood, rel=0.05)


def test_it_is_built_for_the_task():
    config = HmmConfig(states=5)
    assert isinstance(config.build(20, task="language-model"), HiddenMarkovLanguageModel)
    assert config.build(20, 7).transition.shape == (7, 7)
    with pytest.raises(UserError, match="nothing to learn"):
        config.build(20, task="language-model").fit([[]])
