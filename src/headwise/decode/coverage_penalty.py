"""The coverage penalty of beam search: a hypothesis that leaves words of the source without attention ranks lower.

Letters: B sources, K beams, R = B * K rows, S length of the longest source.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from headwise.blocks.record import AttentionRecord, record
from headwise.decode.generator import Generator, Request, get_prefix, source_length
from headwise.errors import UserError
from headwise.models.encoder_decoder import EncoderDecoder


class NoCoveragePenalty:
    """No coverage penalty: nothing is recorded, and scores stay the same."""

    def record_attention(self) -> AbstractContextManager[None]:
        """Run a decoding step inside this block."""
        return nullcontext()

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, in this order."""

    def compute(self, rows: Tensor) -> Tensor:
        """The penalty of the hypotheses that extend `rows`, in the shape of `rows`."""
        return torch.zeros(rows.shape, device=rows.device)


class CoveragePenalty(NoCoveragePenalty):
    """The coverage penalty cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)) of Wu et al. (2016), eq. 14.

    p_ij is the weight of source token i in the attention that predicts target token j, EOS of the target included and
    that of the source not. It is recorded step by step, so that steps cost somewhat more.
    """

    def __init__(self, model: Generator, request: Request):
        if not isinstance(model, EncoderDecoder):
            raise UserError(
                "decode.coverage_penalty: needs the attention of one encoder-decoder; use a single run, or set it to 0"
            )
        if any(isinstance(source, Tensor) for source in request.sources):
            raise UserError("decode.coverage_penalty: an image has no words to cover; leave it out")
        self.beta = request.config.coverage_penalty
        lengths = torch.tensor([source_length(source) for source in request.sources], device=request.device)
        self.lengths = lengths.repeat_interleave(request.config.rows)  # (B,) -> (R,)
        self.first = len(get_prefix(model.encoder))  # the column of the first token
        self.total: Tensor | None = None  # (R, S) attention to each source token so far

    @contextmanager
    def record_attention(self) -> Iterator[None]:
        with record() as maps:
            yield
        weights = average_cross_attention(maps, "decode.coverage_penalty").flatten(0, 1)  # (B, K, S) -> (R, S)
        self.total = weights if self.total is None else self.total + weights

    def select(self, rows: Tensor) -> None:
        self.lengths = self.lengths[rows]
        self.total = None if self.total is None else self.total[rows]

    def compute(self, rows: Tensor) -> Tensor:
        assert self.total is not None  # after at least one step
        total = self.total[:, self.first :]
        padding = torch.arange(total.shape[1], device=total.device) >= self.lengths[:, None]  # EOS of the source, too
        # The smallest positive number instead of 0: a local window may never reach a token.
        covered = total.float().clamp(torch.finfo(torch.float32).tiny, 1.0).masked_fill(padding, 1.0)
        return self.beta * covered.log().sum(1)[rows]


def build_coverage_penalty(model: Generator, request: Request) -> NoCoveragePenalty:
    """The coverage penalty that the settings select."""
    return CoveragePenalty(model, request) if request.config.coverage_penalty else NoCoveragePenalty()


def average_cross_attention(maps: AttentionRecord, setting: str) -> Tensor:
    """The alignment of an encoder-decoder: its last cross-attention, averaged over heads, (N, H, T, S) -> (N, T, S)."""
    cross_attentions = [path for path, kind in maps.kinds.items() if kind == "cross"]
    if not cross_attentions:
        raise UserError(f"{setting}: this model has no cross-attention; leave it out")
    return maps.weights[cross_attentions[-1]][-1].mean(1)
