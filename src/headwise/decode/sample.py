"""Sampling with temperature, top-k (Fan et al. 2018), top-p or nucleus (Holtzman et al. 2020), min-p and typical-p.

Each source has its own random numbers, seeded by `config.seed` and the source's ids: its samples depend neither on the
rest of the batch nor on the device.
"""

from __future__ import annotations

from hashlib import blake2b
from math import log
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
        tokens = draw(log_probs, numbers[step, rows], *get_truncation(config))
        return log_probs.gather(1, tokens)[:, 0], tokens[:, 0]

    return pick


def draw_uniforms(source: Source, config: DecodeConfig) -> Tensor:
    """Uniform random numbers in [0, 1) for each step and row of a source, (T, K)."""
    ids = source.flatten().tolist() if isinstance(source, Tensor) else source  # of an image, its pixels
    key = blake2b(repr((config.seed, *ids)).encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
    steps = config.limit(source_length(source)) + 1
    return torch.rand(steps, config.rows, dtype=torch.float64, generator=generator)


def draw(
    log_probs: Tensor,
    numbers: Tensor,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
) -> Tensor:
    """Nucleus sampling and its relatives: the token at which the cumulative P of a row, truncated, passes its uniform
    number (R,): (R, V) -> (R, 1)."""
    log_probs, tokens = truncate(log_probs, temperature, top_k, top_p, min_p, typical_p)
    mass = log_probs.softmax(-1).cumsum(-1)
    indices = torch.arange(mass.shape[1], device=mass.device)
    last = indices.where(log_probs > -torch.inf, 0).amax(1, keepdim=True)
    index = torch.searchsorted(mass, numbers[:, None] * mass[:, -1:], right=True)
    return tokens.gather(1, torch.minimum(index, last))


def truncate(
    log_probs: Tensor,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Temperature, top-k and other truncation: log P to sample from, (R, n), not normalised, and its tokens; -inf is
    never drawn.

    In the order of `transformers`: temperature; top-k; top-p, which keeps the token that crosses p; min-p, relative to
    the most probable token (Nguyen et al. 2024); locally typical sampling (Meister et al. 2023).
    """
    vocab = log_probs.shape[1]
    if top_k or top_p < 1 or min_p or typical_p < 1:
        log_probs, tokens = topk(log_probs, min(top_k or vocab, vocab))
    else:
        tokens = torch.arange(vocab, device=log_probs.device).expand_as(log_probs)
    # Float64: in float32 the cumulative sum over a large vocabulary would lose rare tokens.
    log_probs = log_probs.double() / temperature
    if top_p < 1:
        mass = log_probs.softmax(-1).cumsum(-1)
        last = (mass < top_p * mass[:, -1:]).sum(1, keepdim=True)
        log_probs = log_probs.masked_fill(torch.arange(mass.shape[1], device=mass.device) > last, -torch.inf)
    if min_p:
        log_probs = log_probs.masked_fill(log_probs < log_probs[:, :1] + log(min_p), -torch.inf)
    return (keep_typical(log_probs, typical_p) if typical_p < 1 else log_probs), tokens


def keep_typical(log_probs: Tensor, mass: float) -> Tensor:
    """Locally typical sampling: keeps the tokens whose -log P is nearest to the entropy, up to a total P of `mass`."""
    log_probs = log_probs.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).nansum(-1, keepdim=True)  # P = 0: 0 * -inf
    distance, order = (log_probs + entropy).abs().sort(-1)
    cumulative = log_probs.gather(1, order).exp().cumsum(-1)
    last = (cumulative < mass).sum(1, keepdim=True).clamp(max=log_probs.shape[1] - 1)
    atypical = distance > distance.gather(1, last)
    return log_probs.masked_fill(atypical.scatter(1, order, atypical), -torch.inf)


def next_token_probabilities(log_probs: Tensor, config: DecodeConfig) -> Tensor:
    """The distribution of the next token, (R, V), from the log P after the logits processors."""
    truncated, tokens = truncate(log_probs, *get_truncation(config))
    return torch.zeros_like(log_probs, dtype=torch.float64).scatter_(1, tokens, truncated.softmax(-1))


def get_truncation(config: DecodeConfig) -> tuple[float, int, float, float, float]:
    """The arguments of `truncate` of a config; greedy decoding has a temperature of 1."""
    return config.temperature or 1.0, config.top_k, config.top_p, config.min_p, config.typical_p
