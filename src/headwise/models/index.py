"""Write the index of the catalogue: `python -m headwise.models.index`, after a model or a size was added or changed."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.blocks.stack import parameters
from headwise.catalog import CATALOG, HOMES
from headwise.models.build import build_entry
from headwise.utils.files import write


def build_index() -> list[dict[str, Any]]:
    """What the catalogue can say of every architecture without building it: models are counted on the meta device."""
    return [
        {
            "name": entry.name,
            "paper": entry.paper,
            "year": entry.year,
            "family": entry.family,
            "tasks": list(entry.config.tasks),
            "oracle": entry.oracle,
            "outputs": entry.outputs,
            "sizes": {
                size: {
                    "vocab": entry.words(size),
                    "parameters": parameters(build_entry(entry, size, device="meta")),
                    "published": entry.published.get(size, ""),
                }
                for size in entry.sizes
            },
        }
        for entry in (CATALOG[name] for name in HOMES)
    ]


def main() -> None:
    """Write the index into the package."""
    path = Path(str(resources.files("headwise").joinpath("catalog.json")))
    write(path, (json.dumps(build_index(), indent=1, ensure_ascii=False) + "\n").encode())
    print(path)


if __name__ == "__main__":
    main()
