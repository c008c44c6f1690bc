import torch

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.sample import draw

END = 2
DRAWS = 40_000


def frequencies(probabilities, temperature=1.0, top_k=0, top_p=1.0):
    log_probs = torch.tensor(probabilities).log().expand(DRAWS, -1)
    numbers = torch.rand(DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    tokens = draw(log_probs, numbers, temperature, top_k, top_p)[:, 0]
    return torch.bincount(tokens, minlength=len(probabilities))


def assert_drawn_from(counts, expected):
    """Pearson's chi-square within its 99.9 % bound for up to 9 degrees of freedom (27.9)."""
    expected = torch.tensor(expected, dtype=torch.float64)
    expected = expected / expected.sum() * counts.sum()
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert float(((counts - expected)[possible] ** 2 / expected[possible]).sum()) < 27.9


P = [0.05, 0.3, 0.0, 0.2, 0.15, 0.1, 0.08, 0.07, 0.05]


def test_draws_follow_the_probabilities():
    assert_drawn_from(frequencies(P), P)


def test_temperature_sharpens():
    assert_drawn_from(frequencies(P, temperature=0.5), [p**2 for p in P])


def test_top_k_keeps_the_k_most_probable():
    assert_drawn_from(frequencies(P, top_k=3), [0, 0.3, 0, 0.2, 0.15, 0, 0, 0, 0])


def test_top_p_keeps_the_token_that_crosses_p():
    assert_drawn_from(frequencies(P, top_p=0.6), [0, 0.3, 0, 0.2, 0.15, 0, 0, 0, 0])


def test_top_p_below_every_probability_keeps_one():
    assert_drawn_from(frequencies(P, top_p=0.01), [0, 1, 0, 0, 0, 0, 0, 0, 0])


def test_top_p_counts_within_top_k():
    # Of 0.3, 0.2, 0.15 (sum 0.65) the first two hold 77 %.
    assert_drawn_from(frequencies(P, top_k=3, top_p=0.75), [0, 0.3, 0, 0.2, 0, 0, 0, 0, 0])


def test_the_ends_of_the_number_line_hit_possible_tokens():
    log_probs = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).log().expand(2, -1)
    numbers = torch.tensor([0.0, 1.0 - 2**-53], dtype=torch.float64)
    assert draw(log_probs, numbers, 1.0, 0, 1.0)[:, 0].tolist() == [1, 2]


def test_sentences_are_sampled_with_their_probability(table_model):
    model, source = table_model(vocab=5, spread=1.0), [3, 4]
    (hypotheses,) = decode(model, [source], DecodeConfig(temperature=1.0, nbest=1024, max_length=1))
    sentences = dict(model.sentences(source, limit=1))
    # Marks are drawn never and the end is due after one token: the first token decides.
    first = model.continuations((), source)
    chances = {(): first[END], (3,): first[3], (4,): first[4]}
    counts = torch.tensor([sum(hypothesis.ids == ids for hypothesis in hypotheses) for ids in chances])
    assert_drawn_from(counts, [2.718281828**log_prob for log_prob in chances.values()])
    assert all(abs(hypothesis.log_prob - sentences[hypothesis.ids]) < 1e-5 for hypothesis in hypotheses)


def test_a_seed_fixes_the_samples(table_model):
    model, sources = table_model(vocab=20, spread=1.0), [[3, 4], [5]]

    def samples(seed):
        return decode(model, sources, DecodeConfig(temperature=1.0, nbest=5, seed=seed))

    assert samples(1) == samples(1)
    assert samples(1) != samples(2)


def test_samples_of_a_source_differ_and_are_sorted(table_model):
    (hypotheses,) = decode(table_model(vocab=20, spread=1.0), [[3]], DecodeConfig(temperature=1.0, nbest=10))
    scores = [hypothesis.score for hypothesis in hypotheses]
    assert len(hypotheses) == 10
    assert len({hypothesis.ids for hypothesis in hypotheses}) > 5
    assert scores == sorted(scores, reverse=True)


def test_a_low_temperature_is_greedy(table_model):
    model, source = table_model(vocab=9), [3, 5]
    ((cold,),) = decode(model, [source], DecodeConfig(temperature=1e-4))
    ((greedy,),) = decode(model, [source])
    assert cold == greedy
