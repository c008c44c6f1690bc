"""The cache of generated data sets: pixels as one array in a file, targets as JSON."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from headwise.data.cache import hash_files, load_or_build, map_array, verify_files
from headwise.vision.boxes import Boxes
from headwise.vision.images import ImageCorpus, Images
from headwise.vision.scenes import VERSION, draw_scenes

DEFAULT_SIDE, TRAIN, VALID, TEST = 64, 4000, 500, 1000  # pixels; numbers of scenes
FILES = ("pixels.bin", "targets.json")


def load_scene_corpus(name: str, root: Path, train: int = 0, size: int = 0, seed: int = 1) -> ImageCorpus:
    """Load the data set `scenes` with boxes or `scene-captions` with captions. Held-out scenes have the first numbers,
    so that they stay the same when `train` grows."""
    counts = {"test": TEST, "valid": VALID, "train": train or TRAIN}
    starts = dict(zip(counts, [0, *accumulate(counts.values())], strict=False))
    parts = {part: load_scenes(root, name, counts[part], size or DEFAULT_SIDE, seed, starts[part]) for part in counts}
    return ImageCorpus(parts["train"], parts["valid"], parts["test"])


def load_scenes(root: Path, name: str, count: int, size: int, seed: int, start: int) -> Images:
    """Load scenes from the cache below `root`, and generate them at the first call."""
    # other versions of the libraries may draw other scenes
    inputs = (VERSION, np.__version__, PIL.__version__, name, count, size, seed, start)
    key = sha256(json.dumps(inputs).encode()).hexdigest()[:24]
    return load_or_build(
        root / f"{key}-{name}",
        lambda temporary: write_scenes(temporary, draw_scenes(name, count, size, seed, start)),
        read_scenes,
    )


def write_scenes(folder: Path, images: Images) -> None:
    """Write pixels, targets and names to a cache folder."""
    np.ascontiguousarray(images.pixels).tofile(folder / FILES[0])
    annotations = {"names": images.names, "targets": [target_to_json(target) for target in images.targets]}
    (folder / FILES[1]).write_text(json.dumps(annotations))
    meta = {"shape": images.pixels.shape, "sha256": hash_files(folder, *FILES)}
    (folder / "meta.json").write_text(json.dumps(meta))


def read_scenes(folder: Path) -> Images:
    """Memory-map what `write_scenes` wrote; raise ValueError if any byte of it has changed."""
    meta = json.loads((folder / "meta.json").read_text())
    verify_files(folder, meta["sha256"])
    annotations = json.loads((folder / FILES[1]).read_text())
    pixels = map_array(folder / FILES[0], "uint8").reshape(meta["shape"])  # (...) -> (N, C, H, W)
    return Images(pixels, [target_from_json(value) for value in annotations["targets"]], annotations["names"])


def target_to_json(target: str | Boxes) -> Any:
    """A caption or boxes as JSON."""
    return target if isinstance(target, str) else [target.corners.tolist(), target.labels]


def target_from_json(value: Any) -> str | Boxes:
    """The inverse of `target_to_json`."""
    return value if isinstance(value, str) else Boxes(np.array(value[0]), tuple(value[1]))
