"""The best sequence of tags (Viterbi 1967), for a batch of sentences and Markov chains of any order.

B sentences, T words, K tags; a state is the last order - 1 tags as one number, the oldest counting most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.text import BOS, EOS, PAD


def viterbi(emission: Tensor, keep: Tensor, transition: Tensor) -> Tensor:
    """Viterbi decoding: argmax over tags t_1 .. t_n of Σ_i emission[i, t_i] + transition[.., t_{i-1}, t_i], up to EOS.

    `emission` (B, T, K) and `transition` (K, .., K) are logarithms; the latter has one dimension for each tag of
    an n-gram. A sentence starts after tags BOS and ends with EOS. Returns (B, T), PAD where nothing is kept.
    """
    batch, _, tags = emission.shape
    count = tags ** (transition.dim() - 1)
    states = torch.arange(count, device=emission.device)
    start = sum(BOS * tags**place for place in range(transition.dim() - 1))
    best = emission.new_full((batch, count), -torch.inf)
    best[:, start] = 0.0
    origins = []
    for emitted, real in zip(emission.unbind(1), keep[..., None].unbind(1), strict=True):
        # Maximise over the oldest tag of the state; the new tag becomes its last.
        scores = best.view(batch, tags, -1, 1) + transition.view(tags, -1, tags)  # (B, S) -> (B, K, S / K, K)
        top, oldest = scores.max(1)
        top = (top + emitted[:, None]).flatten(1)  # (B, S / K, K) -> (B, S)
        origin = oldest.flatten(1) * (count // tags) + states // tags
        best = torch.where(real, top, best)
        origins.append(torch.where(real, origin, states))
    state = (best + transition[..., EOS].flatten()).argmax(1, keepdim=True)
    path = []
    for origin in reversed(origins):
        path.append(state % tags)
        state = origin.gather(1, state)
    return torch.cat([state[:, :0], *path[::-1]], dim=1).masked_fill(~keep, PAD)  # T x (B, 1) -> (B, T)
