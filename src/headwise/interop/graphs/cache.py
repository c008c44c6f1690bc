"""The KV cache as named tensors, which a graph of a decoding step takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.stream import Cache, LayerPath, Stream


class TensorCache(Cache):
    """The KV cache of a graph: `before` has the tensors of earlier steps, `after` those that this one changed. Rows are
    in the first dimension of all, and have read as many tokens. `limit` is that of `DecodingCache`."""

    def __init__(self, before: Mapping[str, Tensor], limit: int = 0):
        self.before, self.limit = before, limit
        self.after: dict[str, Tensor] = {}
        self.lengths: dict[LayerPath, Any] = {}  # number of columns that `extend` has just returned

    def extend(self, path: LayerPath, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        for index, name in enumerate(self._list_names(path, len(new))):
            if name not in self.before:
                self.after[name] = new[index]
                continue
            before = self.before[name]
            if self.limit:
                before = before.narrow(dim, *self._find_last(before.shape[dim]))
            self.after[name] = torch.cat((before, new[index]), dim)
        extended = tuple(self.after[name] for name in self._list_names(path, len(new)))
        self.lengths[path] = extended[0].shape[dim]
        return extended

    def _find_last(self, columns: Any) -> tuple[Any, Any]:
        count = torch.sym_min(columns, self.limit)
        return columns - count, count

    def extend_positions(self, path: LayerPath, pos: Tensor) -> Tensor:
        columns = self.lengths[path]  # the last of them are at `pos`, and there are no gaps
        return torch.arange(columns, device=pos.device) + (pos[..., -1:] + 1 - columns)

    def compute_once(self, path: LayerPath, compute: Callable[[], Any], dim: int | None = None) -> Any:
        name = self._name(path)
        if f"{name}.0" in self.before:
            return tuple(self.before[each] for each in self.before if each.rpartition(".")[0] == name)
        if name in self.before:
            return self.before[name]
        value = compute()
        if isinstance(value, Tensor):
            self.after[name] = value
        elif value is not None:
            self.after.update(zip(self._list_names(path, len(value)), value, strict=True))
        return value

    def get_state(self, path: LayerPath, initial: Callable[[], Tensor]) -> Tensor:
        name = self._name(path)
        return self.before[name] if name in self.before else initial()

    def put_state(self, path: LayerPath, value: Tensor) -> None:
        self.after[self._name(path)] = value

    def extend_keep(self, path: LayerPath, stream: Stream) -> Tensor | None:
        assert stream.keep is None, "rows of a graph have no padding"
        return None

    def _name(self, path: LayerPath) -> str:
        return ".".join(("cache", *map(str, path)))

    def _list_names(self, path: LayerPath, count: int) -> list[str]:
        return [f"{self._name(path)}.{index}" for index in range(count)]
