"""Sets that are drawn, kept as decoded images are: an array in a file, and beside it what is to be learnt of each."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from headwise.data.cache import cached, digests, mapped, verify
from headwise.vision.boxes import Boxes
from headwise.vision.images import ImageCorpus, Images
from headwise.vision.scenes import VERSION, scenes

SIDE, TRAIN, VALID, TEST = 64, 4000, 500, 1000  # pixels; numbers of scenes
FILES = ("pixels.bin", "targets.json")


def scene_corpus(name: str, root: Path, train: int = 0, size: int = 0, seed: int = 1) -> ImageCorpus:
    """The set `scenes` with boxes or `scene-captions` with captions, of 4,000 scenes to train on where it is not said
    otherwise. Those held out have the first numbers, so that they stay the same when there are more to train on."""
    counts = {"test": TEST, "valid": VALID, "train": train or TRAIN}
    starts = dict(zip(counts, [0, *accumulate(counts.values())], strict=False))
    return ImageCorpus(**{part: kept(root, name, counts[part], size or SIDE, seed, starts[part]) for part in counts})


def kept(root: Path, name: str, count: int, size: int, seed: int, start: int) -> Images:
    """Scenes that are drawn at the first call and kept below `root`."""
    # the libraries draw and choose, so another version of them may make other scenes
    decides = (VERSION, np.__version__, PIL.__version__, name, count, size, seed, start)
    key = sha256(json.dumps(decides).encode()).hexdigest()[:24]
    return cached(root / f"{key}-{name}", lambda aside: write(aside, scenes(name, count, size, seed, start)), read)


def write(folder: Path, images: Images) -> None:
    """All that `read` needs."""
    np.ascontiguousarray(images.pixels).tofile(folder / FILES[0])
    told = {"names": images.names, "targets": [plain(target) for target in images.targets]}
    (folder / FILES[1]).write_text(json.dumps(told))
    meta = {"shape": images.pixels.shape, "sha256": digests(folder, *FILES)}
    (folder / "meta.json").write_text(json.dumps(meta))


def read(folder: Path) -> Images:
    """Map what `write` has written; ValueError if any byte of it has changed."""
    meta = json.loads((folder / "meta.json").read_text())
    verify(folder, meta["sha256"])
    told = json.loads((folder / FILES[1]).read_text())
    pixels = mapped(folder / FILES[0], "uint8").reshape(meta["shape"])  # (...) -> (N, C, H, W)
    return Images(pixels, [target(each) for each in told["targets"]], told["names"])


def plain(target: str | Boxes) -> Any:
    """A caption or boxes, as JSON can say them."""
    return target if isinstance(target, str) else [target.corners.tolist(), target.labels]


def target(told: Any) -> str | Boxes:
    """What `plain` made plain."""
    return told if isinstance(told, str) else Boxes(np.array(told[0]), tuple(told[1]))
