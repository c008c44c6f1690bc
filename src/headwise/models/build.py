"""Build a model of the catalogue by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise import catalog
from headwise.blocks.stack import count_parameters
from headwise.config.base import validate
from headwise.errors import UserError
from headwise.models.entry import Entry
from headwise.utils.cpu import get_available_memory
from headwise.utils.memory import is_out_of_memory

SQUARES = 100  # a small model has fewer weights than so many matrices with its largest setting as both sides
SHOWN_SETTINGS = 3  # the largest ones are named where a model is too large
INIT_FUNCTIONS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


class SkipInitOnMeta(TorchFunctionMode):
    """Skip parameter initialisation on the meta device, which takes most of the time of building a model there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        weight = args[0] if args else kwargs.get("tensor")
        if func in INIT_FUNCTIONS and isinstance(weight, Tensor) and weight.is_meta:
            return weight
        return func(*args, **kwargs)


def check_memory(make: Callable[[], nn.Module], settings: Mapping[str, Any], copies: int, where: str = "model") -> None:
    """Refuse a model whose weights do not fit in the free memory, in so many copies, before anything is allocated.

    It is built on the meta device, unless its settings show that it is small; a model of the user's own that cannot be
    built there is not checked.
    """
    free, largest = get_available_memory(), find_largest(settings)
    if not free or (largest and 4 * copies * SQUARES * largest[0][1] ** 2 <= free):
        return
    try:
        with torch.device("meta"), SkipInitOnMeta():
            count = count_parameters(make())
    except Exception as error:
        if not is_out_of_memory(error):
            return  # building it with contents says what is wrong
        needed = "more than 2^63 bytes"
    else:
        size = 4 * copies * count
        if size <= free:
            return
        needed = f"{size / 1e9:,.1f} GB for its {count:,} parameters, and {free / 1e9:,.1f} GB are free"
    named = ", ".join(f"{where}.{key} = {value:,}" for key, value in largest[:SHOWN_SETTINGS])
    raise UserError(f"{where}: needs {needed}; choose smaller sizes{f', now {named}' if named else ''}")


def find_largest(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, int]]:
    """The integers of nested settings with the paths of their keys, the largest first.

    >>> find_largest({"width": 512, "encoder": {"depth": 6}, "tied": True})
    [('width', 512), ('encoder.depth', 6)]
    """
    numbers: list[tuple[str, int]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            numbers += find_largest(value, f"{prefix}{key}.")
        elif type(value) is int:
            numbers.append((prefix + key, value))
    return sorted(numbers, key=lambda item: -item[1])


def build(
    name: str,
    *,
    vocab: int = 0,
    outputs: int = 0,
    task: str = "",
    device: str | torch.device = "cpu",
    **settings: Any,
) -> nn.Module:
    """A model of the catalogue with random weights.

    `vocab` defaults to the published size; `outputs` is the size of the target vocabulary or the number of labels,
    where it differs from `vocab`. `task` is one of the model's tasks: transduce, language-model, masked, tag, classify,
    answer or encode for texts. Settings are the keys of the experiment file's `[model]` table. On `device="meta"`
    nothing is allocated.

    >>> sum(p.numel() for p in build("transformer-base", device="meta").parameters())
    63082496
    >>> build("transformer-tiny", vocab=100, wiring="pre", encoder={"depth": 1}).vocab
    100
    """
    entry, size = catalog.find(name)
    return build_entry(entry, size, vocab=vocab, outputs=outputs, task=task, device=device, **settings)


def build_entry(
    entry: Entry,
    size: str,
    *,
    vocab: int = 0,
    outputs: int = 0,
    task: str = "",
    device: str | torch.device = "cpu",
    **settings: Any,
) -> nn.Module:
    """Build one size of a catalogue entry with random weights."""
    config = validate(entry.config, entry.merge(size, settings), f"{entry.name}-{size}")
    try:
        with torch.device(device), SkipInitOnMeta() if torch.device(device).type == "meta" else nullcontext():
            model: nn.Module = config.build(
                vocab or entry.get_vocab(size), outputs or (0 if vocab else entry.outputs), task
            )
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise UserError(
            f"{entry.name}-{size}: a tensor would have more than 2^63 bytes; choose smaller sizes"
        ) from None
    return model


def describe_own_models() -> dict[str, catalog.ModelInfo]:
    """The models of the user's own as the index describes those of the catalogue."""
    infos = {}
    for name, config in catalog.list_own_models().items():
        entry = catalog.CATALOG[name]
        parameters = count_parameters(build_entry(entry, catalog.OWN_SIZE, device="meta"))
        sizes = {catalog.OWN_SIZE: catalog.SizeInfo(entry.vocab, parameters, "")}
        infos[name] = catalog.ModelInfo(name, entry.paper, entry.year, entry.family, config.tasks, "", 0, sizes)
    return infos
