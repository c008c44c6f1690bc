"""A language model as a transducer that is deaf to its source, so that one suite checks both."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Deaf(nn.Module):
    """p(target | source) = p(target)."""

    continues = False

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.start_id, self.end_id, self.vocab, self.source_vocab = 1, 2, model.vocab, model.vocab

    def forward(self, source: Tensor, target: Tensor, **wanted: Any) -> Any:
        return self.model(target, **wanted)

    def start(self, source: Tensor, beams: int = 1) -> Any:
        return self.model.start(source[:, :0], beams)

    def step(self, tokens: Tensor, state: Any) -> Any:
        return self.model.step(tokens, state)
