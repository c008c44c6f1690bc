"""n-gram models against nltk, against the equations spelt out with dictionaries, and against themselves."""

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from nltk.lm import MLE, Lidstone, Vocabulary
from nltk.lm import smoothing as nltk_smoothing
from nltk.lm.models import InterpolatedLanguageModel
from nltk.util import everygrams

from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.models.ngram import NgramConfig
from headwise.ngram.count import count_ngrams
from headwise.ngram.smooth import KneserNey
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, load_weights, save, unique_tensors
from headwise.testing import assert_parity
from headwise.text import BOS, EOS, PAD

VOCAB = 12
SMOOTHINGS = (
    {"kind": "kneser-ney"},
    {"kind": "kneser-ney", "modified": True},
    {"kind": "jelinek-mercer", "weight": 0.6},
    {"kind": "add-k", "k": 0.3},
    {"kind": "none"},
)


def texts(seed=0, lines=40):
    """Lines over the ids 4 ... 9, so that 3, 10 and 11 are never seen; a skewed chain, so that contexts matter."""
    random = np.random.default_rng(seed)
    return [4 + np.cumsum(random.geometric(0.6, size=random.integers(0, 15))) % 6 for _ in range(lines)]


def built(order, smoothing="kneser-ney", vocab=VOCAB):
    return NgramConfig(order=order, smoothing=smoothing).build(vocab, 0, task="language-model")


def rows_of(lines):
    """(ids, labels), padded."""
    longest = max(map(len, lines)) + 1
    ids, labels = torch.full((2, len(lines), longest), PAD)
    for row, line in enumerate(lines):
        ids[row, : len(line) + 1] = torch.tensor([BOS, *line])
        labels[row, : len(line) + 1] = torch.tensor([*line, EOS])
    return ids, labels


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=str)
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_one_after_any_context(order, smoothing):
    model = built(order, smoothing).fit(texts())
    seen, _ = rows_of(texts())
    unseen = torch.randint(3, VOCAB, (8, 9))
    for ids in (seen, unseen):
        p = model(ids).double().exp()
        torch.testing.assert_close(p.sum(-1), torch.ones(ids.shape, dtype=torch.float64), rtol=0, atol=1e-5)
        assert not p[..., [PAD, BOS]].any()
        if smoothing["kind"] != "none":
            assert (p[..., EOS:] > 0).all()


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize(("oracle", "smoothing"), [(MLE, "none"), (partial(Lidstone, 0.3), SMOOTHINGS[3])])
def test_maximum_likelihood_and_add_k_are_those_of_nltk(order, oracle, smoothing):
    # The outcomes: all tokens but PAD and BOS. nltk takes <s> in contexts for <UNK>, which is as good a mark.
    outcomes = Vocabulary([*map(str, range(4, VOCAB)), "</s>"])
    theirs, model = oracle(order, vocabulary=outcomes), built(order, smoothing).fit(texts())
    lines = [["<s>"] * (order - 1) + [*map(str, line), "</s>"] for line in texts()]
    theirs.fit([list(everygrams(line, max_len=order)) for line in lines])
    ids, labels = rows_of(texts())
    p = model.score(model.find_contexts(ids), labels).exp()
    for row, line in enumerate(lines):
        for at, word in enumerate(line[order - 1 :]):
            assert float(p[row, at]) == pytest.approx(theirs.score(word, line[at : at + order - 1]), rel=1e-5)


class DiscountedUnigrams(nltk_smoothing.KneserNey):
    """nltk's interpolated Kneser-Ney, which has one discount for all orders and undiscounted 1-grams, as SRILM and
    KenLM have it: D = n1 / (n1 + 2 n2) for each order, 1-grams discounted in favour of the uniform."""

    def alpha_gamma(self, word, context):
        self.discount = self.discount_of(len(context) + 1)
        return super().alpha_gamma(word, context)

    def unigram_score(self, word):
        words = [each for each in self.vocab if each != "<UNK>"]
        seen = [each for each in words if self._continuation_counts(each)[0]]
        discount = self.discount_of(1)
        count, total = self._continuation_counts(word)
        return max(count - discount, 0) / total + discount * len(seen) / total / len(words)

    def discount_of(self, order):
        if order == self._order:
            counts = list(self.grams(order).values())
        else:  # grams that begin a line have nothing before them and keep their counts
            lefts = Counter(gram[1:] for gram in self.grams(order + 1))
            begin = {gram: n for gram, n in self.grams(order).items() if gram[0] == "<UNK>"} if order > 1 else {}
            counts = [*lefts.values(), *begin.values()]
        n1, n2 = (sum(count == n for count in counts) for n in (1, 2))
        return n1 / (n1 + 2 * n2) if n1 else 0.5

    def grams(self, order):
        return {(*context, word): n for context, after in self.counts[order].items() for word, n in after.items()}


@pytest.mark.parametrize("order", [2, 3, 4])
def test_kneser_ney_is_that_of_nltk_with_its_discounts_estimated(order):
    """Where a context has no BOS in it, which nltk pads with and counts otherwise; at order 2 anywhere."""
    outcomes = Vocabulary([*map(str, range(3, VOCAB)), "</s>"])
    theirs = InterpolatedLanguageModel(DiscountedUnigrams, order, params={"order": order}, vocabulary=outcomes)
    lines = [["<s>", *map(str, line), "</s>"] for line in texts()]
    theirs.fit([list(everygrams(line, max_len=order)) for line in lines])
    model = built(order).fit(texts())
    ids, labels = rows_of(texts())
    p = model.score(model.find_contexts(ids), labels).exp()
    compared = 0
    for row, line in enumerate(lines):
        for at in range(0 if order == 2 else order - 1, len(line) - 1):
            context = tuple("<UNK>" if word == "<s>" else word for word in line[at - order + 2 : at + 1])
            assert float(p[row, at]) == pytest.approx(theirs.unmasked_score(line[at + 1], context), rel=1e-5)
            compared += 1
    assert compared > 100


class Spelt:
    """The equations with dictionaries. A context has order - 1 tokens, or fewer and begins with BOS."""

    def __init__(self, lines, order):
        self.order = order
        lines = [(BOS, *map(int, line), EOS) for line in lines]
        self.raw = Counter(
            line[end - n + 1 : end + 1]
            for line in lines
            for end in range(1, len(line))
            for n in range(1, order + 1)
            if end - n + 1 >= 0
        )
        before = Counter(gram[1:] for gram in self.raw if len(gram) > 1)  # N1+(. gram)
        self.continued = {g: c if len(g) == order or g[0] == BOS else before[g] for g, c in self.raw.items()}

    def kneser_ney(self, token, context):
        counts = {g: c for g, c in self.continued.items() if len(g) == len(context) + 1}
        n1, n2 = (sum(c == n for c in counts.values()) for n in (1, 2))
        d = n1 / (n1 + 2 * n2) if n1 else 0.5
        after = {g[-1]: c for g, c in counts.items() if g[:-1] == context}
        below = self.kneser_ney(token, context[1:]) if context else 1 / (VOCAB - EOS)
        if not after:
            return below
        return (max(after.get(token, 0) - d, 0) + d * len(after) * below) / sum(after.values())

    def jelinek_mercer(self, token, context, weight=0.6):
        after = {g[-1]: c for g, c in self.raw.items() if g[:-1] == context}
        below = self.jelinek_mercer(token, context[1:]) if context else 1 / (VOCAB - EOS)
        if not after:
            return below
        return weight * after.get(token, 0) / sum(after.values()) + (1 - weight) * below


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize(("equation", "smoothing"), [("kneser_ney", "kneser-ney"), ("jelinek_mercer", SMOOTHINGS[2])])
def test_kneser_ney_and_jelinek_mercer_are_their_equations(order, equation, smoothing):
    spelt, model = Spelt(texts(), order), built(order, smoothing).fit(texts())
    for prefix in ((), (4,), (5, 6), (4, 5, 6, 8), (3, 4), (9, 9, 9), (4, 10, 5)):
        whole = (BOS, *prefix)
        context = whole[len(whole) - order + 1 :] if len(whole) >= order else whole
        expected = [getattr(spelt, equation)(token, context) for token in range(EOS, VOCAB)]
        result = model(torch.tensor([whole]))[0, -1, EOS:].exp().tolist()
        assert result == pytest.approx(expected, rel=1e-5)


def test_modified_kneser_ney_takes_its_three_discounts():
    # n1 ... n4 = 10, 6, 4, 3: Y = 10/22, D1 = 1 - 2Y 6/10, D2 = 2 - 3Y 4/6, D3+ = 3 - 4Y 3/4 (Chen and Goodman, eq. 26)
    counts = np.repeat([1, 2, 3, 4, 9], [10, 6, 4, 3, 1])
    assert KneserNey(modified=True).discounts(counts) == pytest.approx([0, 5 / 11, 12 / 11, 18 / 11])
    assert KneserNey().discounts(counts) == pytest.approx([0, 5 / 11, 5 / 11, 5 / 11])


@pytest.mark.parametrize("order", [1, 3, 6])
def test_chunks_of_any_size_count_the_same(order):
    lines = texts()
    together = count_ngrams(lines, order, VOCAB)
    for chunk in (1, 7, 100):
        for one, other in zip(together, count_ngrams(iter(lines), order, VOCAB, chunk), strict=True):
            assert np.array_equal(one.keys, other.keys)
            assert np.array_equal(one.counts, other.counts)


def test_keys_too_many_for_a_table_are_sorted():
    lines = [100_000 * line for line in texts()]
    wide, narrow = count_ngrams(lines, 4, 1_000_000), count_ngrams(texts(), 4, VOCAB)
    assert [grams.counts.tolist() for grams in wide[1:]] == [grams.counts.tolist() for grams in narrow[1:]]


@pytest.mark.parametrize("order", [1, 2, 5])
def test_steps_rows_and_single_scores_are_the_same_numbers(order):
    model = built(order).fit(texts())
    ids, labels = rows_of(texts(seed=1))
    full = model(ids)
    state = model.start(ids[:, :0])
    for at in range(ids.shape[1]):
        log_p, state = model.step(ids[:, at], state)
        assert_parity(log_p, full[:, at], 1e-12)
    prompted, _ = model.step(ids[:, 7], model.start(ids[:, :7], beams=1))
    assert_parity(prompted, full[:, 7], 1e-12)
    assert_parity(model.score(model.find_contexts(ids), labels), full.gather(-1, labels[..., None])[..., 0], 1e-12)
    loss = model(ids, labels=labels, smoothing=0.1)
    expected = -full.gather(-1, labels[..., None])[..., 0][labels != PAD]
    torch.testing.assert_close((loss.nll, int(loss.count)), (expected.sum(), len(expected)))


def test_beams_of_a_prompt_are_neighbours_and_can_be_selected():
    model = built(3).fit(texts())
    prompts = torch.tensor([[BOS, 4, 5], [BOS, 6, 8]])
    state = model.start(prompts, beams=2)
    log_p, _ = model.step(torch.tensor([7, 7]), state.select(torch.tensor([3, 0])))
    alone = [model.step(torch.tensor([7]), model.start(prompts[row : row + 1]))[0] for row in (1, 0)]
    assert_parity(log_p, torch.cat(alone), 1e-12)


def test_samples_follow_the_model():
    model = built(2).fit(texts())
    (result,) = decode(model, [[5]], DecodeConfig(temperature=1.0, nbest=1000, max_length=4))
    first = Counter(hypothesis.ids[0] if hypothesis.ids else EOS for hypothesis in result)
    p = model(torch.tensor([[BOS, 5]]))[0, -1].exp()
    chi_square = sum(
        (first[token] - 1000 * float(p[token])) ** 2 / (1000 * float(p[token])) for token in range(2, VOCAB)
    )
    assert chi_square < 27.9  # 99.9 % of draws, for 9 degrees of freedom


@pytest.mark.parametrize("smoothing", SMOOTHINGS, ids=str)
def test_a_checkpoint_brings_the_same_model_back(tmp_path, smoothing):
    model, other = built(4, smoothing).fit(texts()), built(4, smoothing)
    run = Run.create(tmp_path / "run", {})
    save(run, Checkpoint({"step": 1}, unique_tensors(model)))
    other.load_state_dict(load_weights(run))
    ids, _ = rows_of(texts(seed=1))
    assert torch.equal(other(ids), model(ids))
    assert all(tensor.dtype == torch.uint8 for name, tensor in load_weights(run).items() if name.endswith("tokens"))


def test_a_new_model_knows_nothing_and_says_so():
    log_p = built(3)(torch.tensor([[BOS, 4, 5]]))
    torch.testing.assert_close(log_p[..., EOS:].exp(), torch.full((1, 3, VOCAB - EOS), 1 / (VOCAB - EOS)))


def test_unsmoothed_training_text_gets_likelier_with_the_order_and_new_text_impossible():
    ids, labels = rows_of(texts())
    losses = [float(built(order, "none").fit(texts())(ids, labels=labels).nll) for order in (1, 2, 3, 4)]
    assert losses == sorted(losses, reverse=True)
    ids, labels = rows_of(texts(seed=1))
    assert math.isinf(built(4, "none").fit(texts())(ids, labels=labels).nll)


def test_the_share_of_unseen_grams():
    model = built(3).fit([[4, 5, 6]])
    # 1-grams: 7 of 4 5 7 EOS; 2-grams: 5 7, 7 EOS; 3-grams: 4 5 7, 5 7 EOS (BOS 4 is all there is at the beginning)
    assert model.unseen_share([[4, 5, 7]]) == [1 / 4, 2 / 4, 2 / 4]
    assert model.unseen_share([[4, 5, 6]]) == [0, 0, 0]
    assert model.unseen_share([[5], [4, 5, 6]]) == pytest.approx([0, 2 / 6, 2 / 6])


@pytest.mark.parametrize("sequences", [[], [[]], [[], []]])
def test_an_empty_corpus_is_refused(sequences):
    with pytest.raises(UserError, match="corpus is empty"):
        built(2).fit(sequences)


@pytest.mark.parametrize("tokens", [[4, EOS], [4, VOCAB]])
def test_marks_and_strangers_are_refused(tokens):
    with pytest.raises(ValueError, match=r"a sequence has ids outside 3 \.\.\. 11"):
        built(2).fit([[4], tokens])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"order": 0}, "order: input should be greater than or equal to 1"),
        ({"smoothing": "kneser"}, "smoothing.kind: no smoothing is called 'kneser'; did you mean kneser-ney"),
        ({"smoothing": {"kind": "add-k", "k": 0}}, "smoothing.k: input should be greater than 0"),
    ],
)
def test_a_wrong_setting_is_named(table, sentence):
    with pytest.raises(UserError, match=sentence):
        validate(NgramConfig, table, "model")


def test_only_language_models_are_made_of_grams():
    with pytest.raises(UserError, match="'ngram' cannot transduce, it can language-model"):
        NgramConfig().build(VOCAB, 0, "transduce")
