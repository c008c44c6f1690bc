"""The meta device has shapes and no values: what runs on it never waits for a device, and makes nothing on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

COPIES = (torch.tensor, torch.as_tensor, torch.from_numpy, Tensor.new_tensor)  # from the host, which waits


class NoHostTensors(TorchDispatchMode):
    """Every tensor that an operation reads or returns is on the meta device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, outputs)):
            assert not isinstance(leaf, Tensor) or leaf.is_meta, f"{func} has a tensor on the {leaf.device}"
        return outputs


class NoCopies(TorchFunctionMode):
    """No values of Python or numpy become tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in COPIES, f"{func.__name__} copies from the host"
        return func(*args, **(kwargs or {}))


@contextmanager
def stay_on_meta() -> Iterator[None]:
    """Refuse operations that read a value, need it for the shape of their output, or touch the CPU."""
    with NoCopies(), NoHostTensors():
        yield
