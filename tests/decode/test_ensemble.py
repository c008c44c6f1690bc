import math

import pytest
from torch import nn

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError

BEAM = DecodeConfig(beams=4, nbest=4, max_length=6)
SOURCES = [[3, 4], [5], [4, 4, 4]]


def assert_same(outputs, expected):
    for actual, expected_nbest in zip(outputs, expected, strict=True):
        assert [hypothesis.ids for hypothesis in actual] == [hypothesis.ids for hypothesis in expected_nbest]
        for one, other in zip(actual, expected_nbest, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)


def test_two_equal_models_are_the_model(table_model):
    model = table_model()
    assert_same(decode(Ensemble([model, model]), SOURCES, BEAM), decode(model, SOURCES, BEAM))


def test_the_order_of_models_does_not_matter(table_model):
    models = [table_model(seed=seed) for seed in range(3)]
    assert_same(decode(Ensemble(models), SOURCES, BEAM), decode(Ensemble(models[::-1]), SOURCES, BEAM))


def test_probabilities_are_averaged(markov_model):
    sure = markov_model(5, {1: {3: 0.9, 4: 0.1}})
    doubtful = markov_model(5, {1: {3: 0.2, 4: 0.8}})
    ((hypothesis,),) = decode(Ensemble([sure, doubtful]), [[3]])
    assert hypothesis.ids == (3,)
    assert hypothesis.log_prob == pytest.approx(math.log(0.55))


def test_another_vocabulary_is_refused(table_model):
    with pytest.raises(UserError, match=r"model 2 .* vocab 7 .* model 1 has 6"):
        Ensemble([table_model(vocab=6), table_model(vocab=7)])


def test_an_empty_ensemble_is_refused():
    with pytest.raises(UserError, match="name at least one run"):
        Ensemble([])


def test_members_follow_the_ensemble(table_model):
    ensemble = Ensemble([table_model(), table_model(seed=1)])
    assert isinstance(ensemble, nn.Module)
    assert not any(member.training for member in ensemble.eval().models)
