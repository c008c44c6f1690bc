"""Ensemble decoding: the mean of the probabilities of several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.decode.generator import Generator, State
from headwise.errors import UserError


@dataclass(frozen=True)
class EnsembleState:
    states: tuple[State, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.select(rows) for state in self.states))

    def join(self, other: EnsembleState) -> EnsembleState:
        return EnsembleState(tuple(state.join(added) for state, added in zip(self.states, other.states, strict=True)))


class Ensemble(nn.Module):
    """An ensemble: P(y) = mean over the models of P_m(y); itself a generator."""

    def __init__(self, models: Sequence[Generator]):
        super().__init__()
        if not models:
            raise UserError("ensemble: it has no models; name at least one run")
        first = models[0]
        for number, model in enumerate(models[1:], start=2):
            for name in ("vocab", "start_id", "end_id", "continues_prompt"):
                expected, value = getattr(first, name), getattr(model, name)
                if value != expected:
                    raise UserError(
                        f"ensemble: model {number} has {name} {value} and model 1 has {expected}; "
                        "choose models that were trained with the same tokeniser"
                    )
        self.models = nn.ModuleList(cast(Sequence[nn.Module], models))
        self.start_id, self.end_id, self.vocab = first.start_id, first.end_id, first.vocab
        self.continues_prompt = first.continues_prompt
        self.ragged = all(model.ragged for model in models)
        self.joins = all(model.joins for model in models)
        self.max_length = min((model.max_length for model in models if model.max_length), default=0)

    def start(self, source: Tensor, beams: int = 1) -> EnsembleState:
        return EnsembleState(tuple(model.start(source, beams=beams) for model in self._members))

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        steps = [model.step(tokens, member) for model, member in zip(self._members, state.states, strict=True)]
        log_probs = torch.stack([logits.log_softmax(-1, dtype=torch.float32) for logits, _ in steps])
        mean = log_probs.logsumexp(0) - log(len(steps))  # (M, R, V) -> (R, V)
        return mean, EnsembleState(tuple(member for _, member in steps))

    @property
    def _members(self) -> list[Any]:
        return list(self.models)
