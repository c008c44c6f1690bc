"""The comparison of Narang et al. 2021 at a small size: `python -m headwise.compare.narang` writes its table, from the
rows in `headwise.models.narang`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from headwise.compare.config import SHIPPED
from headwise.models.narang import ROWS, Row, Sizes
from headwise.utils.files import write

FILE = SHIPPED[1] / "narang.toml"  # in a source checkout
SMALL = Sizes(width=72, heads=6, head_width=12, hidden=288, depth=6, vocab=1100, sentinels=100, length=64)
STEPS = 512
EARLY = 1 / 8  # share of the steps after which the paper reports its early loss
HEADER = """\
# Do modifications of the Transformer transfer? The rows of Narang et al. 2021, table 1, at a small size: span
# corruption on docstrings of installed packages, the same steps and tokens for every row.
#
#   headwise compare narang --dry-run
#   headwise compare narang --jobs 2 --plot narang.svg
#   headwise compare narang --quick --jobs 2
#   headwise compare narang --arm "Vanilla Transformer" --arm GeGLU --seeds 1
#
# Published figures are losses after 65,536 and 524,288 steps of 65,536 tokens of C4. ReZero and Fixup are trained with
# Adam, the others with Adafactor, as published. This file is written by `python -m headwise.compare.narang`.

"""
# ten rows over the whole range of published losses, none of them slow
QUICK = (
    "Vanilla Transformer", "SwiGLU", "GeGLU", "RMS Norm", "Untied embeddings", "Rezero + LayerNorm", "ELU", "SeLU",
    "Lightweight convolution", "Block sharing",
)  # fmt: skip
ANALYSIS = {
    "published": ["early loss", "final loss"],
    "baseline": "Vanilla Transformer",
    "without_worst": 10,
    "claim": "most modifications do not meaningfully improve performance",
}
RUNS = 5  # of which the published early losses are means
ADAM: dict[str, Any] = {
    "train.optimizer": {"kind": "adam"},
    "train.schedule": {"kind": "inverse_sqrt", "lr": 0.002, "warmup": 64},
}


def build_table() -> dict[str, Any]:
    """The table of all rows."""
    experiment = {
        "task": {"kind": "denoise", "context": SMALL.length},
        "data": {"name": "docstrings", "columns": [1]},
        "tokeniser": {"kind": "bpe", "size": SMALL.vocab - 100},  # and 100 sentinels
        "model": {"kind": "t5-narang", **SMALL.settings},
        "train": {
            "threads": 1,
            "batch_size": 32,
            "optimizer": {"kind": "adafactor"},
            "schedule": {"kind": "inverse_sqrt", "lr": 0.03, "warmup": 64},
            "label_smoothing": 0.0,
            "validate_every": round(EARLY * STEPS),
            "samples": 0,
        },
    }
    return {
        "title": f"Narang et al. 2021 at {SMALL.depth} + {SMALL.depth} layers of width {SMALL.width}: span corruption",
        "seeds": [1, 2, 3],
        "score": "final loss",
        "lower": True,
        "quick": list(QUICK),
        "checkpoint": "last",
        "curve": {"early loss": EARLY, "final loss": 1.0},
        "budget": {"steps": STEPS},
        "analysis": ANALYSIS,
        "experiment": experiment,
        "arm": [build_arm(row) for row in ROWS],
    }


def build_arm(row: Row) -> dict[str, Any]:
    """One row as an arm: its changes of the base model, and the published losses."""
    base, settings = SMALL.settings, row.configure(SMALL)
    changes = {f"model.{key}": value for key, value in settings.items() if base.get(key) != value}
    figures = row.figures
    published = {
        "early loss": figures.early_loss,
        "final loss": figures.final_loss,
        "runs": RUNS,
        "std": {"early loss": figures.early_loss_std},
    }
    arm = {"name": row.name, "set": changes | (ADAM if row.adam else {}), "published": published}
    return {key: value for key, value in arm.items() if value}


def render_table() -> str:
    """The table as TOML."""
    return HEADER + tomli_w.dumps(build_table())


def main() -> None:
    print(write(Path(FILE), render_table()))


if __name__ == "__main__":
    main()
