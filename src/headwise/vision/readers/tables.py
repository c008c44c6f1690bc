"""The table of readers: one for each `data.format` of images."""

from __future__ import annotations

from headwise.vision.readers.base import Reader
from headwise.vision.readers.captions import read_captions
from headwise.vision.readers.cifar import read_cifar, read_rows
from headwise.vision.readers.coco import read_coco
from headwise.vision.readers.digits import read_digits
from headwise.vision.readers.folders import read_folders
from headwise.vision.readers.idx import read_idx
from headwise.vision.readers.listed import read_listed
from headwise.vision.readers.npz import read_npz

READERS: dict[str, Reader] = {
    "folders": read_folders,
    "idx": read_idx,
    "cifar": read_cifar,
    "rows": read_rows,
    "npz": read_npz,
    "coco": read_coco,
    "captions": read_captions,
    "listed": read_listed,
    "digits": read_digits,
}
UNLABELLED = ("coco", "captions")  # formats whose targets are boxes or captions, not labels
