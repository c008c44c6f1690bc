"""Attention maps of image models, with the patch grids of their queries and keys.

`record` collects the weights by layer path. Forward pre-hooks collect the inputs of each part, which have the grids.

Letters: B images, H heads, Tq queries, Tk keys, h x w grid, W windows, T tokens of a window, P cells of a padded grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.grid import WindowPartition
from headwise.blocks.mixers.window_attention import WindowAttention
from headwise.blocks.record import OUTPUTS, record
from headwise.blocks.stream import Context, LayerPath, Part, Stream
from headwise.errors import UserError

Grid = tuple[int, int]
PartInputs = dict[LayerPath, tuple[Part, Stream, Context]]


@dataclass(frozen=True, eq=False)
class ImageAttention:
    """Attention map of one layer over images. Class tokens precede the patches; without a query grid, the queries are
    latents, object queries, output tokens, or class tokens alone."""

    path: LayerPath
    recorded: Tensor  # (B, H, Tq, Tk), or (BW, H, T, T) of window attention
    query_grid: Grid | None
    key_grid: Grid
    partition: WindowPartition | None = None

    @property
    def weights(self) -> Tensor:
        """(B, H, Tq, Tk); windows are merged into one map at each access, since the result is large."""
        return self.recorded if self.partition is None else merge_windows(self.recorded, self.partition)

    @property
    def class_tokens(self) -> int:
        """Number of keys before the patches."""
        return self.recorded.shape[-1] - prod(self.key_grid) if self.partition is None else 0

    @property
    def is_class_attention(self) -> bool:
        """Whether the queries are the class tokens alone (class attention of CaiT)."""
        return self.query_grid is None and self.class_tokens == self.recorded.shape[-2]

    @property
    def is_cross_attention(self) -> bool:
        """Whether the queries are not of the image: latents, object queries or output tokens."""
        return self.query_grid is None and not self.is_class_attention

    def heat_map(self, query: Grid | None = None) -> Tensor:
        """Weights over the key grid for each image and head, (B, H, h, w), from the patch at (row, column) `query`.
        Without a query: the mean over the class tokens, or over all queries if there are none."""
        if query is not None and self.query_grid is not None:
            rows = self.weights[:, :, self.class_tokens + query[0] * self.query_grid[1] + query[1]]
        else:
            count = self.class_tokens if self.query_grid or self.is_class_attention else 0
            rows = self.weights[:, :, : count or None].mean(2)
        return rows[..., self.class_tokens :].unflatten(-1, self.key_grid)  # (B, H, Tk) -> (B, H, h, w)


def merge_windows(maps: Tensor, partition: WindowPartition) -> Tensor:
    """Merge maps of windows into one map of the grid, zero between windows: (BW, H, T, T) -> (B, H, hw, hw)."""
    compute_order = partition.compute_order(maps.device)  # (W, T)
    windows = maps.unflatten(0, (-1, len(compute_order))).transpose(1, 2)  # (BW, H, T, T) -> (B, H, W, T, T)
    (rows, columns), size = partition.grid, prod(partition.padded)
    merged = maps.new_zeros(*windows.shape[:2], size, size)
    merged[:, :, compute_order.unsqueeze(2), compute_order.unsqueeze(1)] = windows
    unpadded = torch.arange(size, device=maps.device).view(partition.padded)[:rows, :columns].flatten()
    return merged[:, :, unpadded[:, None], unpadded]  # (B, H, P, P) -> (B, H, hw, hw)


def record_image_attention(model: nn.Module, call: Callable[[], Any]) -> list[ImageAttention]:
    """Record the attention of each layer over a patch grid while `call` runs the model, in order of computation."""
    with record_inputs(model) as inputs, inference_mode(model), record() as maps:
        call()
    attentions = (
        build_image_attention(path, weights[-1], *inputs[path], maps.kinds[path] in ("cross", OUTPUTS))
        for path, weights in maps.weights.items()
        if path in inputs
    )
    return [attention for attention in attentions if attention is not None]


def record_encoder_attention(model: Any, pixels: Tensor) -> list[ImageAttention]:
    """Record the attention of the encoder over normalised pixels (B, C, H, W)."""
    attentions = record_image_attention(model, lambda: model.encoder(pixels.to(get_device(model)), Context()))
    if not attentions:
        raise UserError("this run's model has no attention to look at; inspect another run, or use --view filters")
    return attentions


@contextmanager
def record_inputs(model: nn.Module) -> Iterator[PartInputs]:
    """Record the inputs of each part inside the `with` block, by layer path."""
    inputs: PartInputs = {}

    def hook_inputs(part: Any, arguments: tuple[Any, ...]) -> None:
        if len(arguments) == 2:  # without a context there is no layer path
            inputs[arguments[1].path] = (part, *arguments)

    hooks = [part.register_forward_pre_hook(hook_inputs) for part in model.modules() if isinstance(part, Part)]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def build_image_attention(
    path: LayerPath, weights: Tensor, part: Part, stream: Stream, ctx: Context, cross: bool
) -> ImageAttention | None:
    """Combine recorded weights with the grids of queries and keys; None if the keys have no grid."""
    qkv = getattr(part, "qkv", None)
    if cross:
        memory = ctx.memory[getattr(qkv, "name", "encoder")]
        return None if memory.grid is None else ImageAttention(path, weights, None, memory.grid)
    if stream.grid is None:
        return None
    if isinstance(part, WindowAttention):
        partition = part.partition(stream.grid)
        return ImageAttention(path, weights, stream.grid, stream.grid, partition)
    pool = getattr(qkv, "pool", 1)  # non-local blocks pool their keys
    rows, columns = (ceil(side / pool) for side in stream.grid)
    return ImageAttention(path, weights, stream.grid, (rows, columns))
