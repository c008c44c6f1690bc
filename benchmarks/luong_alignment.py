"""What keeps Luong's model from learning alignments early: one change at a time, on short captions of Multi30k.

    python benchmarks/luong_alignment.py [--steps 1000] [--seed 1] [VARIANT ...]

`gain` is how much the loss grows when each target gets the source of another one (nats per token): what the model knows
from the source. Below `HEADWISE_DATA` it needs multi30k.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import headwise

LONGEST, WORDS, BATCH, WARMUP = 9, 800, 32, 50
STACKED = {"width": 64, "depth": 2, "dropout": 0.2}
VARIANTS: dict[str, dict[str, Any]] = {
    "bahdanau": {"kind": "bahdanau", "width": 64, "embedding_width": 64, "maxout": 64, "dropout": 0.2},
    "bahdanau, LSTM, 2 layers": {"kind": "bahdanau", "cell": "lstm", **STACKED, "embedding_width": 64, "maxout": 64},
    "luong": {"kind": "luong", **STACKED},
    "GRU": {"kind": "luong", **STACKED, "cell": "gru"},
    "GRU, one layer": {"kind": "luong", **STACKED, "cell": "gru", "depth": 1},
    "wide embeddings": {"kind": "luong", **STACKED, "embedding_std": 1.0},
    "wide, GRU, one layer": {"kind": "luong", **STACKED, "embedding_std": 1.0, "cell": "gru", "depth": 1},
    "initial state zeros": {"kind": "luong", **STACKED, "initial_state": "zeros"},
    "one layer": {"kind": "luong", **STACKED, "depth": 1},
    "additive score": {"kind": "luong", **STACKED, "score": "additive"},
    "without input feeding": {"kind": "luong", **STACKED, "input_feeding": False},
    "not reversed": {"kind": "luong", **STACKED, "reverse": False},
    "without dropout": {"kind": "luong", **STACKED, "dropout": 0.0},
    "sutskever": {"kind": "sutskever", **STACKED},
}


def read_pairs(split: str) -> list[tuple[list[str], list[str]]]:
    """Short pairs, in lower case."""
    folder = Path(os.environ["HEADWISE_DATA"]) / "multi30k"
    sides = []
    for language in ("en", "de"):
        with gzip.open(folder / f"{split}.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.lower().replace(".", " .").replace(",", " ,").split() for line in file])
    return [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= LONGEST]


def number_words(pairs: list[tuple[list[str], list[str]]]) -> dict[str, int]:
    """The most frequent words; 0 is padding, 1 and 2 are begin and end, 3 is unknown."""
    counts = Counter(word for pair in pairs for side in pair for word in side)
    return {word: number for number, (word, _) in enumerate(counts.most_common(WORDS), start=4)}


def encode(pairs: list[tuple[list[str], list[str]]], ids: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Sources and targets with an end mark, padded: (B, T) each."""
    sides = []
    for side in (0, 1):
        rows = [[ids.get(word, 3) for word in pair[side]] + [2] for pair in pairs]
        sides.append(torch.tensor([row + [0] * (LONGEST + 1 - len(row)) for row in rows]))
    return sides[0], sides[1]


def trim(x: Tensor) -> Tensor:
    return x[:, : int((x != 0).sum(1).max())]


def compute_loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    source, target = trim(source), trim(target)
    begin = torch.ones_like(target[:, :1])
    loss = model(source, torch.cat((begin, target[:, :-1]), dim=1), labels=target)
    return loss.total / loss.count


def run(name: str, steps: int, seed: int, train: tuple[Tensor, Tensor], valid: tuple[Tensor, Tensor]) -> None:
    settings = dict(VARIANTS[name])
    torch.manual_seed(seed)
    model = headwise.build(settings.pop("kind"), vocab=WORDS + 4, **settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    started = time.process_time()
    print(f"{name:24}", end="", flush=True)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 0.002 * min(1.0, step / WARMUP)
        rows = torch.randint(len(train[0]), (BATCH,))
        loss = compute_loss(model.train(), train[0][rows], train[1][rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % (steps // 4) == 0:
            with torch.no_grad():
                right = compute_loss(model.eval(), *valid).item()
                wrong = compute_loss(model, valid[0].roll(1, 0), valid[1]).item()
            print(f"  {right:.2f} ({wrong - right:+.2f})", end="", flush=True)
    print(f"  {time.process_time() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    pairs = read_pairs("train")
    ids = number_words(pairs)
    train, valid = encode(pairs, ids), encode(read_pairs("val"), ids)
    print(f"{len(train[0]):,} pairs; validation loss (gain) after each quarter of {args.steps} steps", flush=True)
    for name in args.variants:
        run(name, args.steps, args.seed, train, valid)


if __name__ == "__main__":
    main()
