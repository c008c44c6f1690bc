"""The explicit table of models: what can be built by name. No torch here.

A name is an architecture (`transformer`) or one size of it (`transformer-base`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.config.base import Config, Problems, Table, merge
from headwise.errors import UserError, nearest
from headwise.models import transformer


@dataclass(frozen=True)
class Entry:
    """One architecture: where it comes from, its sizes, and who can vouch for our version of it."""

    name: str
    paper: str
    year: int
    family: str
    task: str
    config: type[Config]
    sizes: Mapping[str, Mapping[str, Any]]  # settings that differ from the config's defaults
    vocab: int  # of the published model, for its parameter count
    published: Mapping[str, str] = field(default_factory=dict)
    oracle: str = ""

    def configure(self, size: str, settings: Mapping[str, Any] | None = None) -> Any:
        """The config of a size, with some settings changed."""
        return self.config.model_validate(merge(self.sizes[size], settings or {}))


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="transformer",
            paper="Vaswani et al., Attention Is All You Need",
            year=2017,
            family="encoder-decoder",
            task="transduce",
            config=transformer.TransformerConfig,
            sizes=transformer.SIZES,
            vocab=37_000,
            published={"base": "65M", "big": "213M"},
            oracle="torch.nn.Transformer, transformers.MarianMTModel",
        ),
    )
}


def names() -> list[str]:
    """Every name that `build` takes, sizes included."""
    return [f"{entry.name}-{size}" for entry in CATALOG.values() for size in entry.sizes]


def find(name: str) -> tuple[Entry, str]:
    """The entry and size that a name means; without a size, the first.

    >>> find("transformer-big")[1], find("transformer")[1]
    ('big', 'base')
    """
    if name in CATALOG:
        return CATALOG[name], next(iter(CATALOG[name].sizes))
    architecture, _, size = name.rpartition("-")
    if architecture in CATALOG and size in CATALOG[architecture].sizes:
        return CATALOG[architecture], size
    raise UserError(f"there is no model '{name}'; {nearest(name, [*CATALOG, *names()])}")


class ModelTable(Table):
    """Models by `kind`: an architecture, or one of its sizes with further settings beside it."""

    def parse(self, value: Any) -> Config:
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, Mapping) and value.get("kind") in names():
            entry, size = find(str(value["kind"]))
            value = merge(entry.sizes[size], {**value, "kind": entry.name})
        try:
            return super().parse(value)
        except Problems as problem:
            if isinstance(value, Mapping) and problem.found[0][0] == ("kind",):
                known = [*self.kinds, *names()]
                text = f"no model is called '{value['kind']}'; {nearest(str(value['kind']), known)}"
                raise Problems([(("kind",), text)]) from None
            raise


MODELS = ModelTable("model", default="transformer")
for _entry in CATALOG.values():
    MODELS.add(_entry.config)
