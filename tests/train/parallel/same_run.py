"""Trains small experiments by 1, 2, 3 and more processes and compares the runs."""

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

WORKER = Path(__file__).with_name("worker.py")
TRAIN = {"batch_size": 7, "log_every": 1, "samples": 0, "schedule": {"kind": "constant", "lr": 3e-3}, "clip_norm": 0.5}
TINY = {"width": 16, "heads": 2, "depth": 1, "dropout": 0.0}


def write_data(folder: Path) -> None:
    """Small corpora: pairs of words, texts, and tagged words."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdef", k=draw.randint(1, 9))) for _ in range(90)]
    tsv = "".join(f"{word}\t{word[::-1]}\n" for word in words)
    (folder / "pairs.tsv").write_text(tsv, encoding="utf-8")
    texts = [" ".join(draw.choices(words, k=draw.randint(2, 7))) for _ in range(90)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    tagged = "".join(f"{text}\t{' '.join('ab'[len(word) % 2] for word in text.split())}\n" for text in texts)
    (folder / "tags.tsv").write_text(tagged, encoding="utf-8")


def describe_experiments(folder: Path) -> dict[str, dict[str, Any]]:
    """A small experiment of each task, by name."""
    cache = {"cache": str(folder / "cache")}
    pairs = {"task": {"kind": "transduce", "sample": 0}, "data": {"train": str(folder / "pairs.tsv"), **cache}}
    texts = {"train": str(folder / "texts.txt"), "format": "text", **cache}
    return {
        "translation": {**pairs, "model": {"kind": "transformer", **TINY}},
        "recurrent": {**pairs, "model": {"kind": "bahdanau-tiny", "dropout": 0.0}},
        "experts": {
            **pairs,
            "model": {
                "kind": "transformer",
                **TINY,
                "feedforward": {"kind": "experts", "count": 3, "jitter": 0.0, "capacity_factor": 0.8},
            },
        },
        "language-model": {
            "task": {"kind": "language-model", "context": 16},
            "data": texts,
            "model": {"kind": "gpt", **TINY},
        },
        "masked": {"task": {"kind": "masked", "context": 16}, "data": texts, "model": {"kind": "bert", **TINY}},
        "tagging": {
            "task": "tag",
            "data": {"train": str(folder / "tags.tsv"), **cache},
            "model": {"kind": "bert", **TINY},
        },
        "images": {"task": "classify-images", "data": {"name": "digits"}, "model": {"kind": "vit", **TINY, "patch": 4}},
        "detection": {
            "task": "detect",
            "data": {"name": "scenes", "size": 32, **cache},
            "model": {"kind": "detr-tiny", "dropout": 0.0, "backbone": {"norm": "frozen"}},
        },
    }


def find_ports(count: int) -> list[int]:
    """Free ports of the loopback address."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def train_all(
    folder: Path, experiments: Mapping[str, Mapping[str, Any]], sizes: Sequence[int], steps: int, **train: Any
) -> None:
    """Train each experiment by each number of processes."""
    ports = iter(find_ports(len(experiments) * len(sizes)))
    train = {**TRAIN, "steps": steps, **train}
    plan = [
        (name, {**tables, "train": train}, {str(size): next(ports) for size in sizes})
        for name, tables in experiments.items()
    ]
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    commands = [[sys.executable, str(WORKER), str(rank), str(folder)] for rank in range(max(sizes))]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    while any(worker.poll() is None for worker in workers):
        if any(worker.poll() for worker in workers):  # the others would wait for one that has failed
            time.sleep(2)
            for worker in workers:
                worker.kill()
        time.sleep(0.1)
    errors = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers), "\n".join(errors)


def read_losses(run: Path) -> list[float]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [row["loss"] for row in rows if "loss" in row]


def measure_difference(folder: Path, size: int) -> tuple[float, float]:
    """The largest relative difference of losses, and the largest difference of weights, from one process."""
    one, several = read_losses(folder / "1"), read_losses(folder / str(size))
    assert len(one) == len(several) > 0
    losses = max(abs(a - b) / abs(a) for a, b in zip(one, several, strict=True))
    step = max(folder.glob("1/checkpoints/step-*"), key=lambda path: int(path.name.removeprefix("step-"))).name
    tensors = [load_file(folder / str(number) / "checkpoints" / step / "model.safetensors") for number in (1, size)]
    return losses, max((tensors[0][name] - tensors[1][name]).abs().max().item() for name in tensors[0])


if __name__ == "__main__":
    folder, steps, sizes, *names = sys.argv[1:]
    path = Path(folder)
    path.mkdir(parents=True)
    write_data(path)
    chosen = describe_experiments(path)
    numbers = list(map(int, sizes.split(",")))
    train_all(path, {name: chosen[name] for name in names or chosen}, numbers, int(steps))
    for name in names or chosen:
        for size in numbers[1:]:
            print(name, size, *(f"{value:.1e}" for value in measure_difference(path / name, size)))
