"""Write the index of the catalogue, the summaries of its models and its page in the docs: `python -m
headwise.models.index [NAME ...]`, after a model or a size was added or changed.

Without names it counts every size of every model, which takes some minutes; with names only theirs, and keeps what is
known of the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.catalog import CATALOG, HOMES
from headwise.models.cost import summarise
from headwise.models.summary import FILE, Summary, dump_summary, read_lines, read_summary
from headwise.utils.files import write


def build_index(parameters: Mapping[str, int]) -> list[dict[str, Any]]:
    """Index of all architectures, so that the catalogue is listed without building them; `parameters` has the count of
    every size by its name, as "gpt2-small"."""
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
                    "vocab": entry.get_vocab(size),
                    "parameters": parameters[f"{entry.name}-{size}"],
                    "published": entry.published.get(size, ""),
                }
                for size in entry.sizes
            },
        }
        for entry in (CATALOG[name] for name in HOMES)
    ]


def list_summaries(names: Collection[str] = ()) -> list[Summary]:
    """Every size of the catalogue, counted on the meta device. With `names`, sizes of other architectures are read from
    the stored file, where they are there."""
    known = read_lines() if names else {}
    return [
        read_summary(f"{name}-{size}")
        if name not in names and f"{name}-{size}" in known
        else summarise(CATALOG[name], size)
        for name in HOMES
        for size in CATALOG[name].sizes
    ]


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
    summaries = list_summaries(names)
    index = build_index({summary.name: summary.cost.parameters if summary.cost else 0 for summary in summaries})
    path = Path(str(resources.files("headwise").joinpath("catalog.json")))
    print(write(path, (json.dumps(index, indent=1, ensure_ascii=False) + "\n").encode()))
    print(write(path.with_name(FILE), "".join(f"{dump_summary(summary)}\n" for summary in summaries)))
    if (docs := path.parents[2] / "docs").is_dir():
        print(write(docs / "catalogue.md", render_page(index)))


if __name__ == "__main__":
    main(sys.argv[1:])
