"""What a model that reads images attends to, on their grids.

`record` has the weights by place. What stood at a place, and on which grids its queries and keys stand, the parts
themselves are told when they are called: hooks write it down.

Letters: B images, H heads, Tq queries, Tk keys, h x w grid, W windows, T tokens of a window, P places of a padded grid.
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
Stood = dict[LayerPath, tuple[Part, Stream, Context]]


@dataclass(frozen=True, eq=False)
class Gaze:
    """One attention at images. Queries and keys may have class_tokens before their grids; queries that stand on none
    are latents, slots or words, or class_tokens by themselves."""

    path: LayerPath
    cells: Tensor  # (B, H, Tq, Tk), or (BW, H, T, T) where windows of a grid were looked at one by one
    asks: Grid | None  # the grid of the queries
    seen: Grid  # the grid of the keys
    tiling: WindowPartition | None = None

    @property
    def weights(self) -> Tensor:
        """(B, H, Tq, Tk), with windows put back to where they were in their images. These are large: not kept."""
        return self.cells if self.tiling is None else assembled(self.cells, self.tiling)

    @property
    def class_tokens(self) -> int:
        """How many keys stand before their grid."""
        return self.cells.shape[-1] - prod(self.seen) if self.tiling is None else 0

    @property
    def by_marks(self) -> bool:
        """Whether class_tokens alone ask, of patches and of themselves (class attention)."""
        return self.asks is None and self.class_tokens == self.cells.shape[-2]

    def heat(self, asker: Grid | None = None) -> Tensor:
        """What the place `asker` of the grid looks at, for each image and head: (B, H, h, w). Without one, what the
        class_tokens look at, or else all queries on average."""
        if asker is not None and self.asks is not None:
            rows = self.weights[:, :, self.class_tokens + asker[0] * self.asks[1] + asker[1]]
        else:
            own = self.class_tokens if self.asks or self.by_marks else 0
            rows = self.weights[:, :, : own or None].mean(2)
        return rows[..., self.class_tokens :].unflatten(-1, self.seen)  # (B, H, Tk) -> (B, H, h, w)


def assembled(cells: Tensor, tiling: WindowPartition) -> Tensor:
    """Maps of windows as one map of the whole grid, zero from window to window: (BW, H, T, T) -> (B, H, hw, hw)."""
    places = tiling.compute_order(cells.device)  # (W, T)
    windows = cells.unflatten(0, (-1, len(places))).transpose(1, 2)  # (BW, H, T, T) -> (B, H, W, T, T)
    (rows, columns), size = tiling.grid, prod(tiling.padded)
    whole = cells.new_zeros(*windows.shape[:2], size, size)
    whole[:, :, places.unsqueeze(2), places.unsqueeze(1)] = windows
    kept = torch.arange(size, device=cells.device).view(tiling.padded)[:rows, :columns].flatten()
    return whole[:, :, kept[:, None], kept]  # (B, H, P, P) -> (B, H, hw, hw)


def gazes(model: nn.Module, call: Callable[[], Any]) -> list[Gaze]:
    """Every attention at a grid while `call` calls the model, in the order in which they were computed."""
    with stood(model) as known, inference_mode(model), record() as maps:
        call()
    found = (
        gaze(path, cells[-1], *known[path], maps.kinds[path] in ("cross", OUTPUTS))
        for path, cells in maps.weights.items()
        if path in known
    )
    return [each for each in found if each is not None]


def of_encoder(model: Any, pixels: Tensor) -> list[Gaze]:
    """Every attention at a grid while the model's encoder reads normalised pixels (B, C, H, W)."""
    found = gazes(model, lambda: model.encoder(pixels.to(get_device(model)), Context()))
    if not found:
        raise UserError("this run's model has no attention to look at; inspect another run, or use --view filters")
    return found


@contextmanager
def stood(model: nn.Module) -> Iterator[Stood]:
    """What the parts of a model are given inside the block, by place."""
    known: Stood = {}

    def note(part: Any, given: tuple[Any, ...]) -> None:
        if len(given) == 2:  # a part that is called alone has no place
            known[given[1].path] = (part, *given)

    hooks = [part.register_forward_pre_hook(note) for part in model.modules() if isinstance(part, Part)]
    try:
        yield known
    finally:
        for hook in hooks:
            hook.remove()


def gaze(path: LayerPath, cells: Tensor, part: Part, stream: Stream, ctx: Context, across: bool) -> Gaze | None:
    """A look at a grid; None where the keys stand on none."""
    qkv = getattr(part, "qkv", None)
    if across:
        memory = ctx.memory[getattr(qkv, "name", "encoder")]
        return None if memory.grid is None else Gaze(path, cells, None, memory.grid)
    if stream.grid is None:
        return None
    if isinstance(part, WindowAttention):
        return Gaze(path, cells, stream.grid, stream.grid, WindowPartition.of(stream.grid, part.window, part.shift))
    fewer = getattr(qkv, "pool", 1)  # non-local blocks look at pooled keys
    rows, columns = (ceil(side / fewer) for side in stream.grid)
    return Gaze(path, cells, stream.grid, (rows, columns))
