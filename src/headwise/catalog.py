"""The explicit table of models: what can be built by name. No torch here.

A name is an architecture (`transformer`) or one size of it (`transformer-base`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.config.base import Config, Problems, Table, merge
from headwise.entries import ancestors, recent, transformers, vision
from headwise.entries.entry import Entry
from headwise.errors import UserError, nearest
from headwise.models.ngram import BackoffConfig

CATALOG: dict[str, Entry] = {
    entry.name: entry for group in (ancestors, transformers, recent, vision) for entry in group.ENTRIES
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
    for entry in CATALOG.values():
        if name.startswith(f"{entry.name}-") and (size := name.removeprefix(f"{entry.name}-")) in entry.sizes:
            return entry, size
    raise UserError(f"there is no model '{name}'; {nearest(name, [*CATALOG, *names()])}")


class ModelTable(Table):
    """Models by `kind`: an architecture, or one of its sizes with further settings beside it."""

    def __getitem__(self, name: str) -> type[Config]:
        return find(name)[0].config if name in names() else super().__getitem__(name)

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
                known = [*self.names, *names()]
                text = f"no model is called '{value['kind']}'; {nearest(str(value['kind']), known)}"
                raise Problems([(("kind",), text)]) from None
            raise


MODELS = ModelTable("model", default="transformer", place="model")
for _entry in CATALOG.values():
    MODELS.add(_entry.config)
MODELS.add(BackoffConfig)  # comes from elsewhere, so nobody builds it by name
