"""Transparent attention (Bapna et al. 2018, "Training Deeper Neural Machine Translation Models with Transparent
Attention"): each decoder layer attends to its own mixture of the encoder's layers instead of the last one,

    memory of decoder layer j = sum_i softmax_i(W)_ij h_i

with h_0 the embeddings, h_i the outputs of encoder layer i, and the last of them normalised as the encoder's outputs
are, as in the code of Narang et al. (2021). W has a row for the embeddings and each encoder layer, and a column for
each decoder layer; dropout is applied to it before the softmax.

Letters: B sources, S length of the source, C width, L encoder layers and their embeddings, J decoder layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.residual import make_dropout
from headwise.blocks.stack import LAYERS, Stack
from headwise.blocks.stream import Context, Stream


class TransparentStack(Stack):
    """A decoder stack with transparent attention: layer j attends to sum_i softmax_i(W)_ij h_i over the encoder's
    embeddings and layers."""

    def __init__(self, *arguments: Any, memory_layers: int, dropout: float = 0.0, **settings: Any):
        super().__init__(*arguments, **settings)
        std = memory_layers**-0.5
        self.layer_mixture = nn.Parameter(torch.randn(memory_layers, len(self.layer_numbers)) * std)  # W, (L, J)
        self.drop = make_dropout(dropout)

    def get_layer_context(self, ctx: Context, index: int, outputs_needed: int | None = None) -> Context:
        memory = LayerMixture(ctx.memory, self, index)
        return replace(super().get_layer_context(ctx, index, outputs_needed), memory=memory)

    def compute_weights(self, index: int) -> Tensor:
        """The weights of the encoder's layers for the decoder layer at depth `index`, (L,)."""
        weights: Tensor = self.drop(self.layer_mixture[:, index])
        return weights.softmax(0)


class LayerMixture(Mapping[str, Stream]):
    """The memory of one decoder layer. It is computed when it is read, as streams may join and leave the stack's."""

    def __init__(self, memory: Mapping[str, Stream], stack: TransparentStack, index: int):
        self.memory, self.stack, self.index = memory, stack, index

    def __getitem__(self, name: str) -> Stream:
        if name != "encoder":
            return self.memory[name]
        layers, weights = self.memory[LAYERS], self.stack.compute_weights(self.index)
        x = layers.x.unflatten(-1, (len(weights), -1))  # (B, S, LC) -> (B, S, L, C)
        return layers.with_x(weights @ x)  # -> (B, S, C)

    def __iter__(self) -> Iterator[str]:
        return iter(self.memory)

    def __len__(self) -> int:
        return len(self.memory)
