"""The names that files and folders of the parts of a data set usually have."""

from __future__ import annotations

import re
from pathlib import Path

PARTS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training", "train_set", "training_set"),
    "valid": ("valid", "val", "validation", "dev", "testa"),  # testa: of CoNLL-2003
    "test": ("test", "testing", "test_set", "testb"),
}
_PART_OF = {name: part for part, names in PARTS.items() for name in names}


def find_part(name: str) -> str:
    """The part that a file's name has in it; empty if none.

    >>> find_part("en_ewt-ud-dev.conllu"), find_part("captions_train2017.json"), find_part("contest.csv")
    ('valid', 'train', '')
    """
    words = (word.rstrip("0123456789") for word in re.split(r"[\W_]+", name.lower()))
    return next((_PART_OF[word] for word in words if word in _PART_OF), "")


def find_part_folders(root: Path) -> dict[str, Path]:
    """The folders of the parts directly below a root, if it has one to train on."""
    folders = {part: root / name for part, names in PARTS.items() for name in names if (root / name).is_dir()}
    return folders if "train" in folders else {}
