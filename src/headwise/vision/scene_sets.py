"""Sets that are drawn, kept as decoded images are: an array in a file, and beside it what is to be learnt of each."""

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
    """The set `scenes` with boxes or `scene-captions` with captions, of 4,000 scenes to train on where it is not said
    otherwise. Those held out have the first numbers, so that they stay the same when there are more to train on."""
    counts = {"test": TEST, "valid": VALID, "train": train or TRAIN}
    starts = dict(zip(counts, [0, *accumulate(counts.values())], strict=False))
    return ImageCorpus(
        **{part: load_scenes(root, name, counts[part], size or DEFAULT_SIDE, seed, starts[part]) for part in counts}
    )


def load_scenes(root: Path, name: str, count: int, size: int, seed: int, start: int) -> Images:
    """Scenes that are drawn at the first call and kept below `root`."""
    # the libraries draw and choose, so another version of them may make other scenes
    decides = (VERSION, np.__version__, PIL.__version__, name, count, size, seed, start)
    key = sha256(json.dumps(decides).encode()).hexdigest()[:24]
    return load_or_build(
        root / f"{key}-{name}",
        lambda aside: write_scenes(aside, draw_scenes(name, count, size, seed, start)),
        read_scenes,
    )


def write_scenes(folder: Path, images: Images) -> None:
    """All that `read` needs."""
    np.ascontiguousarray(images.pixels).tofile(folder / FILES[0])
    told = {"names": images.names, "targets": [target_to_json(target) for target in images.targets]}
    (folder / FILES[1]).write_text(json.dumps(told))
    meta = {"shape": images.pixels.shape, "sha256": hash_files(folder, *FILES)}
    (folder / "meta.json").write_text(json.dumps(meta))


def read_scenes(folder: Path) -> Images:
    """Map what `write` has written; ValueError if any byte of it has changed."""
    meta = json.loads((folder / "meta.json").read_text())
    verify_files(folder, meta["sha256"])
    told = json.loads((folder / FILES[1]).read_text())
    pixels = map_array(folder / FILES[0], "uint8").reshape(meta["shape"])  # (...) -> (N, C, H, W)
    return Images(pixels, [target_from_json(each) for each in told["targets"]], told["names"])


def target_to_json(target: str | Boxes) -> Any:
    """A caption or boxes, as JSON can say them."""
    return target if isinstance(target, str) else [target.corners.tolist(), target.labels]


def target_from_json(told: Any) -> str | Boxes:
    """What `plain` made plain."""
    return told if isinstance(told, str) else Boxes(np.array(told[0]), tuple(told[1]))
