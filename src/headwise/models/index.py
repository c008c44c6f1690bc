"""Write the index of the catalogue, the summaries of its models and its page in the docs: `python -m
headwise.models.index [NAME ...]`, after a model or a size was added or changed.

Without names it counts every size of every model, which takes some minutes; with names only theirs, and keeps what is
known of the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.blocks.stack import count_parameters
from headwise.catalog import CATALOG, HOMES
from headwise.models.build import build_entry
from headwise.models.cost import summarise
from headwise.models.entry import Entry
from headwise.models.summary import FILE, dump_summary, read_lines
from headwise.utils.files import write


def build_index(names: Collection[str] = (), known: Iterable[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Index of all architectures, so that the catalogue is listed without building them; parameters are counted on the
    meta device. With `names`, rows of other architectures are taken from `known`, where they are there."""
    rows = {row["name"]: dict(row) for row in known if names and row["name"] not in names}
    return [rows.get(name) or build_row(CATALOG[name]) for name in HOMES]


def build_row(entry: Entry) -> dict[str, Any]:
    """An architecture in the index."""
    return {
        "name": entry.name,
        "paper": entry.paper,
        "year": entry.year,
        "family": entry.family,
        "tasks": list(entry.config.tasks),
        "oracle": entry.oracle,
        "outputs": entry.outputs,
        "sizes": {
            size: {
                "vocab": entry.get_vocab(size),
                "parameters": count_parameters(build_entry(entry, size, device="meta")),
                "published": entry.published.get(size, ""),
            }
            for size in entry.sizes
        },
    }


def list_summaries(names: Collection[str] = (), known: Mapping[str, str] | None = None) -> Iterator[str]:
    """Every size of the catalogue, counted: the lines of the file that `headwise show` reads. With `names`, lines of
    other architectures are taken from `known`, where they are there."""
    for entry in (CATALOG[name] for name in HOMES):
        for size in entry.sizes:
            line = (known or {}).get(f"{entry.name}-{size}") if names and entry.name not in names else None
            yield line or dump_summary(summarise(entry, size))


INTRODUCTION = (
    "# Catalogue\n\n"
    "Every architecture, by year. Parameters are counted on the assembled model with the vocabulary it was published "
    'with. "Checked against" names what our version is compared with: an implementation that we did not write, a '
    "closed form or the paper's equations written out; the test of each stands in its entry, at the end of its file in "
    '`src/headwise/models/`. "By hand" is `benchmarks/timm_parity.py`: timm is no dependency, so it is not part of '
    "`make test`.\n\n"
    "`headwise list` prints the same, `headwise show NAME` the tree of one model with shapes, FLOPs and memory. This "
    "page is written by `python -m headwise.models.index`.\n"
)


def render_page(index: Sequence[Mapping[str, Any]]) -> str:
    """The index as a page of Markdown: a table of sizes for each architecture."""
    lines = [INTRODUCTION, "| name | paper | tasks | sizes and parameters | checked against |", "|---|---|---|---|---|"]
    for row in index:
        sizes = " · ".join(
            f"{size} {info['parameters']:,}" + (f" (published {info['published']})" if info["published"] else "")
            if info["parameters"]
            else size
            for size, info in row["sizes"].items()
            if size != "tiny"
        )
        cells = (f"`{row['name']}`", f"{row['paper']} ({row['year']})", ", ".join(row["tasks"]), sizes, row["oracle"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> None:
    """Write the index and the summaries into the package and, in a checkout, the page into its docs."""
    for name in names:
        CATALOG[name]  # an unknown name is told now, with near ones
    path = Path(str(resources.files("headwise").joinpath("catalog.json")))
    index = build_index(names, json.loads(path.read_text("utf-8")) if names else ())
    summaries = [f"{line}\n" for line in list_summaries(names, read_lines() if names else None)]
    print(write(path, (json.dumps(index, indent=1, ensure_ascii=False) + "\n").encode()))
    print(write(path.with_name(FILE), "".join(summaries)))
    if (docs := path.parents[2] / "docs").is_dir():
        print(write(docs / "catalogue.md", render_page(index)))


if __name__ == "__main__":
    main(sys.argv[1:])
