"""Module trees and costs of the catalogue's models, computed on the meta device and cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from time import thread_time
from typing import Any, TypeVar

from headwise.catalog import find
from headwise.errors import UserError
from headwise.models.entry import Entry
from headwise.models.image_fields import ImageFields

Result = TypeVar("Result")
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)  # tokens
IMAGE_SIZES = (64, 96, 128, 192, 224, 256, 384, 448, 512)  # pixels of a square image
RECURRENT_FAMILIES = ("recurrent", "seq2seq")  # counted step by step, which is slow
RECURRENT_LENGTHS = (4, 8, 16)  # tokens


class ModelTrees:
    """Trees and costs by model, in one thread: counting changes settings of torch that are global."""

    def __init__(self) -> None:
        self.results: dict[tuple[Any, ...], Any] = {}

    def get_tree(self, name: str) -> dict[str, Any]:
        """The module tree of one size, its catalogue entry, and the lengths at which its cost can be requested."""
        entry, size = find(name)
        return self._cached(("structure", entry.name, size), lambda: _build_tree(entry, size))

    def get_cost(self, name: str, at: int) -> dict[str, Any]:
        """The cost of one size for texts of `at` tokens or images of `at` pixels a side; 0: the model's own size."""
        entry, size = find(name)
        return self._cached(("cost", entry.name, size, at), lambda: _count_cost(entry, size, at))

    def _cached(self, key: tuple[Any, ...], compute: Callable[[], Result]) -> Result:
        if key not in self.results:
            self.results[key] = compute()
        return self.results[key]


def _build_tree(entry: Entry, size: str) -> dict[str, Any]:
    from headwise.models.build import build
    from headwise.models.cost import build_tree

    name, config = f"{entry.name}-{size}", entry.configure(size)
    root = build_tree(build(name, device="meta"), name)
    is_image = isinstance(config, ImageFields)
    entry_info = {"name": name, "entry": entry.name, "paper": entry.paper, "year": entry.year, "tree": root.to_json()}
    return {
        **entry_info,
        "vocab": entry.get_vocab(size),
        "outputs": entry.outputs,
        "has_parameters": bool(root.parameters),
        "unit": "pixels" if is_image else "tokens",
        "lengths": IMAGE_SIZES if is_image else RECURRENT_LENGTHS if entry.family in RECURRENT_FAMILIES else LENGTHS,
        "default_length": RECURRENT_LENGTHS[1] if entry.family in RECURRENT_FAMILIES else 0,
    }


def _count_cost(entry: Entry, size: str, at: int) -> dict[str, Any]:
    from headwise.blocks.stack import count_parameters
    from headwise.models.build import build
    from headwise.models.cost import Image, count_cost

    name, config, start = f"{entry.name}-{size}", entry.configure(size), thread_time()
    image: Image = ()
    if isinstance(config, ImageFields):
        image = (config.channels, *((at, at) if at else config.image))
    settings: dict[str, Any] = {"image": image[1:]} if image else {}
    try:
        model = build(name, device="meta", **settings)
        if not count_parameters(model):
            raise UserError(
                f"{name}: is fitted without gradients and has no parameters to count; its tables grow with the text"
            )
        counted = count_cost(model, at, image)
    except UserError:
        raise
    except Exception as error:  # an image size that the model cannot split, or more tokens than positions
        raise UserError(f"{name}: its cost at {at} cannot be counted ({error})") from error
    return {"name": name, "at": at, **asdict(counted), "image": image, "seconds": round(thread_time() - start, 3)}
