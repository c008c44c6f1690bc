"""Sizes of a `config.json`, checked before anything of that size is built.

A model is not built on the meta device first: the rules of shapes that torch imports for it take two seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from headwise.errors import UserError
from headwise.interop.hf.architecture import HfConfig
from headwise.interop.hf.files import LazyStateDict

COUNTS = r"n_layer|depths?|(.*_)?(layers|experts|groups|blocks)"
SHARED_LAYERS = 100  # layers that one tensor may serve
LIMITS = {  # pattern of keys -> largest value
    COUNTS: 1000,
    r"num_channels|in_chans": 1000,
    r"(.*_)?vocab_size": 1_000_000,
    r"image_size|img_size": 4096,
}
FREE_ELEMENTS = 2**24  # elements that a model may allocate beside those that its checkpoint explains
FACTOR = 4  # tied tables are allocated twice, and initial values are computed
FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand, torch.full, torch.arange})


def check_sizes(hf_config: HfConfig, weights: LazyStateDict, where: str) -> None:
    """Refuse more layers, tokens or pixels than any model has, and more layers than there are tensors."""
    tensors = len(weights.readers)
    for key, number in list_numbers(dict(hf_config)):
        if re.fullmatch(COUNTS, key) and max(tensors, SHARED_LAYERS) < number <= LIMITS[COUNTS]:
            raise UserError(
                f"{where}: {key}: is {number:,}, but the checkpoint has {tensors:,} tensors; take both from one model"
            )
        for pattern, limit in LIMITS.items():
            if re.fullmatch(pattern, key) and number > limit:
                raise UserError(f"{where}: {key}: is {number:,}; at most {limit:,} is supported")


def list_numbers(values: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Every integer of a config with its key, also in lists and tables."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from list_numbers(value)
        elif isinstance(value, list | tuple):
            yield from ((key, item) for item in value if isinstance(item, int))
        elif isinstance(value, int):
            yield key, value


class AllocationLimit(TorchFunctionMode):
    """Refuse a model that allocates far more elements than its checkpoint has, before they are allocated.

    A GGUF file has no `info`: its shapes were compared with its metadata.
    """

    def __init__(self, weights: LazyStateDict, where: str) -> None:
        super().__init__()
        self.stored = sum(math.prod(info.shape) for info in weights.info.values())
        self.remaining: float = FREE_ELEMENTS + FACTOR * self.stored if weights.info else math.inf
        self.where = where

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES:
            self.remaining -= count_elements(func, args, kwargs)
            if self.remaining < 0:
                raise UserError(
                    f"{self.where}: asks for a larger model than the checkpoint, which has {self.stored:,} weights; "
                    "take both from one model"
                )
        return func(*args, **kwargs)


def count_elements(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The elements of the tensor that a factory function of torch is about to allocate.

    >>> count_elements(torch.empty, (2, 3), {}), count_elements(torch.full, ((2, 3), 0.0), {})
    (6, 6)
    >>> count_elements(torch.arange, (2, 10), {})
    8
    """
    if func is torch.arange:
        first, last, step = ((0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]) if args else (0, kwargs["end"], 1)
        return abs(int((last - first) / step))
    size = kwargs["size"] if "size" in kwargs else args[:1] if func is torch.full else args
    return math.prod(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
