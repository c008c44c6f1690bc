"""Errors by position on a model whose first errors are planted, so that the curves are known."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import headwise
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.exposure import compute_error_rates, measure_exposure, plot, predict_tokens
from headwise.text import BOS, EOS, PAD
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

LENGTH, RATE, COPY, WRONG = 12, 0.1, 5, 9


class Planted(nn.Module):
    """Writes COPY again and again, but errs where `errors` (sources, LENGTH) says; once wrong, it is never right again.

    A source is one token, its number plus 10.
    """

    start_id, end_id, continues_prompt, vocab = BOS, EOS, False, 10

    def __init__(self, errors):
        super().__init__()
        self.register_buffer("errors", torch.from_numpy(errors))

    def start(self, source, beams=1):
        return SimpleNamespace(number=source[:, 0] - 10, at=0, lost=torch.zeros(len(source), dtype=torch.bool))

    def step(self, tokens, state):
        if state.at:
            state.lost |= tokens != COPY
        err = state.lost | self.errors[state.number, state.at]
        state.at += 1
        right = EOS if state.at == LENGTH else COPY
        return nn.functional.one_hot(torch.where(err, WRONG, right), self.vocab).float(), state


@pytest.fixture(scope="module")
def planted():
    """3000 outputs of 11 tokens and their end, an error at each of 12 positions with probability 0.1."""
    errors = np.random.default_rng(0).random((3000, LENGTH)) < RATE
    sources = [[10 + number] for number in range(len(errors))]
    return errors, predict_tokens(Planted(errors), sources, [[COPY] * (LENGTH - 1)] * len(errors))


def test_errors_accumulate_in_free_running_only(planted):
    errors, (gold, forced, free) = planted
    exposure = compute_error_rates(gold, forced, free, least=20, resamples=200)
    assert exposure.positions.tolist() == list(range(1, LENGTH + 1))
    assert (exposure.counts == len(errors)).all()
    # exactly what was planted
    np.testing.assert_allclose(exposure.forced.values, errors.mean(0))
    np.testing.assert_allclose(exposure.free.values, np.logical_or.accumulate(errors, axis=1).mean(0))
    np.testing.assert_allclose(exposure.broken.values, exposure.free.values)  # this model never finds back
    # the closed form, within its standard error
    positions = np.arange(1, LENGTH + 1)
    assert np.abs(exposure.forced.values - RATE).max() < 0.025
    assert np.abs(exposure.free.values - (1 - (1 - RATE) ** positions)).max() < 0.035
    inside = (exposure.forced.low <= RATE) & (exposure.forced.high >= RATE)
    assert inside.mean() > 0.7
    assert exposure.totals["forced"] == pytest.approx(errors.mean())


def test_references_count_at_positions_where_they_have_tokens():
    gold = np.array([[5, 6, EOS], [5, EOS, PAD]])
    forced = np.array([[5, 7, EOS], [5, EOS, 8]])
    free = np.array([[5, 7, 7], [EOS, PAD, PAD]])
    exposure = compute_error_rates(gold, forced, free, least=1, resamples=10)
    assert exposure.counts.tolist() == [2, 2, 1]
    assert exposure.forced.values.tolist() == [0, 0.5, 0]
    assert exposure.free.values.tolist() == [0.5, 1, 1]
    assert compute_error_rates(gold, forced, free, least=2, resamples=10).positions.tolist() == [1, 2]


def test_a_model_that_recovers_has_fewer_errors_than_broken_outputs():
    gold = np.array([[5, 6, EOS]])
    exposure = compute_error_rates(gold, gold, np.array([[7, 6, EOS]]), least=1, resamples=10)
    assert exposure.free.values.tolist() == [1, 0, 0]
    assert exposure.broken.values.tolist() == [1, 1, 1]


def test_positions_after_an_early_end_are_wrong():
    """The model ends at once; the reference does so after three tokens, where the model's end would come again."""

    class Ends(Planted):
        def step(self, tokens, state):
            return nn.functional.one_hot(torch.full_like(tokens, EOS), self.vocab).float(), state

    gold, forced, free = predict_tokens(Ends(np.zeros((1, 4), bool)), [[10]], [[5, 6, 7]])
    assert forced.tolist() == [[EOS] * 4]
    assert free.tolist() == [[EOS, PAD, PAD, PAD]]
    assert gold.tolist() == [[5, 6, 7, EOS]]


@pytest.fixture
def loaded():
    """A Transformer that has learnt nothing, of which some guesses are right by chance."""
    letters = Characters("abc")
    experiment = Experiment.model_validate({"data": {"train": "none.tsv"}, "train": {"steps": 1}})
    return TrainedModel(headwise.build("transformer-tiny", vocab=7).eval(), Tokenisers(letters, letters), experiment)


def test_forced_and_free_tokens_equal_those_of_training_and_greedy_decoding(loaded):
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("abc"), random.integers(1, 6))) for _ in range(30)]
    pairs = [(text, text[::-1]) for text in dict.fromkeys(texts)]
    exposure = measure_exposure(loaded, pairs, least=1, resamples=10)
    wrong = np.zeros((2, len(exposure.positions)))
    for source, target in pairs:
        ids, gold = (loaded.tokenisers.source.encode(text) for text in (source, target))
        with torch.inference_mode():
            logits = loaded.model(torch.tensor([[*ids, EOS]]), torch.tensor([[BOS, *gold]]))
        best = logits[0, :, EOS:].argmax(-1) + EOS
        output = [*decode(loaded.model, [ids])[0][0].ids, EOS]
        for place, right in enumerate([*gold, EOS]):
            wrong[0, place] += best[place] != right
            wrong[1, place] += place >= len(output) or output[place] != right
    np.testing.assert_allclose(exposure.forced.values, wrong[0] / exposure.counts)
    np.testing.assert_allclose(exposure.free.values, wrong[1] / exposure.counts)


def test_exposure_needs_a_transduction_run(loaded):
    other = replace(loaded, experiment=loaded.experiment.replace(task="language-model"))
    with pytest.raises(UserError, match="trained to language-model, not to transduce"):
        measure_exposure(other, [("a", "b")])


def test_exposure_is_plotted_and_converted_to_json(planted, tmp_path):
    exposure = compute_error_rates(*planted[1], least=20, resamples=50)
    assert plot(exposure, tmp_path / "e.svg", "planted").read_text().count("<path") > 10
    assert plot(exposure, tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads(json.dumps(exposure.to_json()))
    assert stored["free"]["values"] == pytest.approx(exposure.free.values.tolist(), abs=1e-6)
    with pytest.raises(UserError, match=r"ends in '\.gif'"):
        plot(exposure, tmp_path / "e.gif")
