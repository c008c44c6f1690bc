"""The coverage penalty of beam search, against a loop over the attention of each hypothesis."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
import torch

import headwise
from headwise.decode.config import DecodeConfig
from headwise.decode.coverage_penalty import CoveragePenalty
from headwise.decode.driver import decode
from headwise.decode.ensemble import Ensemble
from headwise.decode.generator import Request
from headwise.decode.length_penalty import gnmt_length_penalty
from headwise.errors import UserError
from headwise.models.encoder_decoder import EncoderDecoder

SOURCES = [[5, 9, 7], [4, 8, 8, 6, 10], [7]]
BETA = 0.7
SEARCH: dict[str, Any] = {"beams": 4, "nbest": 4, "max_ratio": 0.4, "max_extra": 2}
KINDS = ("gnmt", "deep-att", "bahdanau", "luong", "transformer")


def build_model(kind: str) -> EncoderDecoder:
    torch.manual_seed(3)
    model = headwise.build(f"{kind}-tiny", vocab=12, dropout=0.0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@torch.no_grad()
def compute_directly(model: EncoderDecoder, source: list[int], target: list[int]) -> float:
    """beta * sum_i log(min(sum_j p_ij, 1)) of a target with EOS, by teacher forcing."""
    with headwise.record() as maps:
        model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target[:-1]]]))
    last = [path for path, kind in maps.kinds.items() if kind == "cross"][-1]
    p = maps.weights[last][-1][0].mean(0).tolist()  # (T, S): T target tokens, EOS included
    return BETA * sum(log(min(sum(row[i] for row in p), 1.0)) for i in range(len(source)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convention", ["headwise", "generate"])
def test_scores_have_the_penalty_of_their_attention(kind: str, convention: str) -> None:
    model = build_model(kind)
    config = DecodeConfig(coverage_penalty=BETA, convention=convention, length_penalty=0.6, **SEARCH)
    lengths = {"headwise": gnmt_length_penalty, "generate": lambda length, alpha: length**alpha}[convention]
    penalties = []
    for source, hypotheses in zip(SOURCES, decode(model, SOURCES, config), strict=True):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            cut = convention == "generate" and len(hypothesis.ids) == config.limit(len(source))  # at the maximum length
            tokens = [*hypothesis.ids, 2][: -1 if cut else None]
            expected = compute_directly(model, source, tokens)
            penalties.append(expected)
            base = hypothesis.log_prob / lengths(len(tokens), 0.6)
            assert hypothesis.score == pytest.approx(base + expected, abs=1e-4)
    assert min(penalties) < -0.05  # some token of a source has less attention than 1


def test_it_changes_the_order_of_hypotheses() -> None:
    model = build_model("gnmt")
    plain = decode(model, SOURCES, DecodeConfig(**SEARCH))
    covered = decode(model, SOURCES, DecodeConfig(coverage_penalty=5.0, **SEARCH))
    assert [[h.ids for h in row] for row in plain] != [[h.ids for h in row] for row in covered]


def test_a_source_does_not_depend_on_its_batch() -> None:
    model = build_model("gnmt")
    config = DecodeConfig(coverage_penalty=BETA, **SEARCH)
    for source, hypotheses in zip(SOURCES, decode(model, SOURCES, config), strict=True):
        (alone,) = decode(model, [source], config)
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-4)


def test_a_token_without_attention_has_a_finite_penalty() -> None:
    config = DecodeConfig(coverage_penalty=BETA, beams=2)
    penalty = CoveragePenalty(build_model("gnmt"), Request([[5, 6]], config, torch.device("cpu")))
    penalty.total = torch.tensor([[0.5, 2.0, 0.1], [0.0, 1.0, 1.0]])  # the last column is EOS
    values = penalty.compute(torch.tensor([[0, 1]]))
    assert values[0, 0].item() == pytest.approx(BETA * log(0.5))
    assert -100 < values[0, 1].item() < -50


def test_models_without_one_attention_are_refused() -> None:
    config = DecodeConfig(coverage_penalty=BETA, beams=2)
    with pytest.raises(UserError, match=r"decode\.coverage_penalty: this model has no cross-attention"):
        decode(build_model("sutskever"), SOURCES, config)
    with pytest.raises(UserError, match="attention of one encoder-decoder"):
        decode(Ensemble([build_model("gnmt"), build_model("gnmt")]), SOURCES, config)
    with pytest.raises(ValueError, match="set beams above 1"):
        DecodeConfig(coverage_penalty=BETA)
