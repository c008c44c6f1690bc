"""A folder of texts for each label: `root/positive/1.txt`, as in the IMDb reviews of Maas et al. (2011)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.data.files import read_lines
from headwise.data.readers.base import ReadOptions, Record


def read_labelled_folders(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Read a file as one text, in which line breaks become spaces; the label is the name of its folder."""
    text = " ".join(" ".join(line for _, line in read_lines(path)).split())
    if text:
        yield Record(1, text, path.parent.name)
