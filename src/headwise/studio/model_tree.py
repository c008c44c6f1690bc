"""What the catalogue's models are made of and what they cost, counted on the meta device and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from threading import Lock
from time import thread_time
from typing import Any, TypeVar

from headwise.catalog import find
from headwise.errors import UserError
from headwise.models.entry import Entry
from headwise.models.image_base import ImageModelConfig

Found = TypeVar("Found")
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)  # tokens
SIDES = (64, 96, 128, 192, 224, 256, 384, 448, 512)  # pixels of a square image
STEPWISE = ("recurrent", "seq2seq")  # families that are counted step by step
FEW = (4, 8, 16)  # tokens that do for them


class Structures:
    """One model is counted at a time: it takes the processor, and torch's settings for it are the process's."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.known: dict[tuple[Any, ...], Any] = {}

    def structure(self, name: str) -> dict[str, Any]:
        """The tree of modules of one size, with what it is called and where its costs can be asked for."""
        entry, size = find(name)
        return self._once(("structure", entry.name, size), lambda: _structure(entry, size))

    def cost(self, name: str, at: int) -> dict[str, Any]:
        """What one size costs for texts of `at` tokens, or for images of `at` pixels a side; 0: as it was made for."""
        entry, size = find(name)
        return self._once(("cost", entry.name, size, at), lambda: _cost(entry, size, at))

    def _once(self, key: tuple[Any, ...], count: Callable[[], Found]) -> Found:
        with self.lock:
            if key not in self.known:
                self.known[key] = count()
            return self.known[key]


def _structure(entry: Entry, size: str) -> dict[str, Any]:
    from headwise.models.build import build
    from headwise.models.cost import tree

    name, config = f"{entry.name}-{size}", entry.configure(size)
    top = tree(build(name, device="meta"), name)
    pictured = isinstance(config, ImageModelConfig)
    about = {"name": name, "entry": entry.name, "paper": entry.paper, "year": entry.year, "tree": top.to_json()}
    return {
        **about,
        "words": entry.words(size),
        "outputs": entry.outputs,
        "counted": bool(top.parameters),
        "unit": "pixels" if pictured else "tokens",
        "lengths": SIDES if pictured else FEW if entry.family in STEPWISE else LENGTHS,
        "usual": FEW[1] if entry.family in STEPWISE else 0,
    }


def _cost(entry: Entry, size: str, at: int) -> dict[str, Any]:
    from headwise.blocks.stack import count_parameters
    from headwise.models.build import build
    from headwise.models.cost import Image, cost

    name, config, begun = f"{entry.name}-{size}", entry.configure(size), thread_time()
    image: Image = ()
    if isinstance(config, ImageModelConfig):
        image = (config.channels, *((at, at) if at else config.image))
    settings: dict[str, Any] = {"image": image[1:]} if image else {}
    try:
        model = build(name, device="meta", **settings)
        if not count_parameters(model):
            raise UserError(f"{name}: learns by a fit of its own; its tables grow with the text")
        found = cost(model, at, image)
    except UserError:
        raise
    except Exception as error:  # a geometry that nobody checks, or places that are fewer than the tokens
        raise UserError(f"{name}: cannot be counted for {at} ({error})") from error
    return {"name": name, "at": at, **asdict(found), "image": image, "seconds": round(thread_time() - begun, 3)}
