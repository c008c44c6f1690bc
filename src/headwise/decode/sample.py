"""Random draws from the model, by temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020).

Each source has its own stream of numbers, made from the seed and the source's ids alone: a sentence's
samples depend neither on its batch-mates nor on the device.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, Request, Source, best, length
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.token_loop import PickToken, run_token_loop


def sample(model: Generator, state: Any, request: Request) -> list[list[Hypothesis]]:
    """`config.nbest` independent samples a source, best first; the same sample may come twice."""
    return run_token_loop(model, state, request, make_sampler(request))


def make_sampler(request: Request) -> PickToken:
    """The `pick` of a batch: its numbers in [0, 1) are drawn beforehand, one a row and step."""
    config = request.config
    streams = [_stream(source, config) for source in request.sources]
    numbers = pad_sequence(streams).flatten(1).to(request.device)  # B times (T, K) -> (T, B, K) -> (T, R)

    def pick(log_probs: Tensor, step: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        tokens = draw(log_probs, numbers[step, rows], config.temperature, config.top_k, config.top_p)
        return log_probs.gather(1, tokens)[:, 0], tokens[:, 0]

    return pick


def _stream(source: Source, config: DecodeConfig) -> Tensor:
    told = source.flatten().tolist() if isinstance(source, Tensor) else source  # an image's numbers
    key = blake2b(repr((config.seed, *told)).encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
    steps = config.limit(length(source)) + 1
    return torch.rand(steps, config.rows, dtype=torch.float64, generator=generator)


def draw(log_probs: Tensor, numbers: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Nucleus sampling, top-k and temperature: where each number (R,) falls in the cumulated, tempered and truncated P
    of its row: (R, V) -> (R, 1).

    Temperature comes first, then top-k, then top-p, which keeps the token that crosses p.
    """
    vocab = log_probs.shape[1]
    if top_k or top_p < 1:
        log_probs, tokens = best(log_probs, min(top_k or vocab, vocab))
    else:
        tokens = torch.arange(vocab, device=log_probs.device).expand_as(log_probs)
    # Doubles: the sum of a large vocabulary's P would round away its rare words.
    mass = (log_probs.double() / temperature).softmax(-1).cumsum(-1)
    last = (mass < top_p * mass[:, -1:]).sum(1, keepdim=True)
    place = torch.searchsorted(mass, numbers[:, None] * mass.gather(1, last), right=True)
    return tokens.gather(1, torch.minimum(place, last))
