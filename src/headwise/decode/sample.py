"""Sampling with temperature, top-k (Fan et al. 2018) and top-p, nucleus sampling (Holtzman et al. 2020).

Each source has its own random numbers, seeded by `config.seed` and the source's ids: its samples depend neither on the
rest of the batch nor on the device.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, Request, Source, source_length, topk
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.token_loop import PickToken, run_token_loop


def sample(model: Generator, state: Any, request: Request) -> list[list[Hypothesis]]:
    """`config.nbest` independent samples of each source, best first; they may coincide."""
    return run_token_loop(model, state, request, make_sampler(request))


def make_sampler(request: Request) -> PickToken:
    """The token picker of a batch; its uniform random numbers are drawn in advance, one per row and step."""
    config = request.config
    uniforms = [draw_uniforms(source, config) for source in request.sources]
    numbers = pad_sequence(uniforms).flatten(1).to(request.device)  # B times (T, K) -> (T, B, K) -> (T, R)

    def pick(log_probs: Tensor, step: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        tokens = draw(log_probs, numbers[step, rows], config.temperature, config.top_k, config.top_p)
        return log_probs.gather(1, tokens)[:, 0], tokens[:, 0]

    return pick


def draw_uniforms(source: Source, config: DecodeConfig) -> Tensor:
    """Uniform random numbers in [0, 1) for each step and row of a source, (T, K)."""
    ids = source.flatten().tolist() if isinstance(source, Tensor) else source  # of an image, its pixels
    key = blake2b(repr((config.seed, *ids)).encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
    steps = config.limit(source_length(source)) + 1
    return torch.rand(steps, config.rows, dtype=torch.float64, generator=generator)


def draw(log_probs: Tensor, numbers: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Nucleus sampling, top-k and temperature: the token at which the cumulative P of a row, so truncated, passes its
    uniform number (R,): (R, V) -> (R, 1).

    Temperature comes first, then top-k, then top-p, which keeps the token that crosses p.
    """
    vocab = log_probs.shape[1]
    if top_k or top_p < 1:
        log_probs, tokens = topk(log_probs, min(top_k or vocab, vocab))
    else:
        tokens = torch.arange(vocab, device=log_probs.device).expand_as(log_probs)
    # Float64: in float32 the cumulative sum over a large vocabulary would lose rare tokens.
    mass = (log_probs.double() / temperature).softmax(-1).cumsum(-1)
    last = (mass < top_p * mass[:, -1:]).sum(1, keepdim=True)
    index = torch.searchsorted(mass, numbers[:, None] * mass.gather(1, last), right=True)
    return tokens.gather(1, torch.minimum(index, last))
