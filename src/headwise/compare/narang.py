"""The comparison of Narang et al. 2021 at a small size: `python -m headwise.compare.narang` writes its tables, from the
rows in `headwise.models.narang`: pretraining, and a table of fine-tuning for each column of the paper's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from headwise.compare.config import SHIPPED
from headwise.models.narang import ROWS, Figures, Row, Sizes
from headwise.utils.files import write

FOLDER = SHIPPED[1]  # in a source checkout
PRETRAINING = "narang-pretraining"
RECORDS = "../records/narang.json"  # of all tables
SENTINELS = 100
SMALL = Sizes(width=72, heads=6, head_width=12, hidden=288, depth=6, vocab=1100, sentinels=SENTINELS, length=64)
STEPS = 512
EARLY = 1 / 8  # share of the steps after which the paper reports its early loss
HEADER = """\
# Do modifications of the Transformer transfer? The rows of Narang et al. 2021, table 1, at a small size: span
# corruption on docstrings of installed packages, the same steps and tokens for every row. `headwise compare narang` is
# this table and its fine-tuning columns.
#
#   headwise compare narang-pretraining --dry-run
#   headwise compare narang-pretraining --arm "Vanilla Transformer" --arm GeGLU --seeds 1
#
# Published figures are losses after 65,536 and 524,288 steps of 65,536 tokens of C4. ReZero and Fixup are trained with
# Adam, the others with Adafactor, as published. This file is written by `python -m headwise.compare.narang`.

"""
COLUMN_HEADER = """\
# A column of Narang et al. 2021, table 1: the rows of `narang-pretraining` fine-tuned on
# {what}; published: {figure}.
# Each cell starts from the run of its row and seed there.
#
#   headwise compare {name} --dry-run
#   headwise compare {name} --arm "Vanilla Transformer" --arm GeGLU
#
# This file is written by `python -m headwise.compare.narang`.

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


FINE_TUNING: dict[str, Any] = {  # constant, as T5's; tried with the baseline
    "optimizer": {"kind": "adafactor"},
    "schedule": {"kind": "constant", "lr": 0.02},
}
FINE_TUNING_ADAM: dict[str, Any] = {
    "train.optimizer": {"kind": "adam"},
    "train.schedule": {"kind": "constant", "lr": 0.001},
}


@dataclass(frozen=True)
class Column:
    """A column of the paper's table: a task of fine-tuning, text to text, whose score is `score`."""

    name: str
    what: str  # it is fine-tuned on
    figure: str  # that is published
    get: Callable[[Figures], float]
    score: str
    task: dict[str, Any]
    data: dict[str, Any]
    steps: int
    language: str = "en"
    batch_size: int = 32

    @property
    def analysis(self) -> dict[str, Any]:
        """Perplexity tells rows apart where the decoded texts of so short a training do not."""
        perplexity = {"against": {"perplexity": self.score}} if self.task["kind"] == "transduce" else {}
        return {"published": [self.score, *perplexity.get("against", {})], **perplexity}


COLUMNS = (
    Column(
        "narang-polarity", "the sentiment of a sentence (for SuperGLUE)", "average of SuperGLUE",
        lambda figures: figures.super_glue, "accuracy", {"kind": "classify", "scores": ["accuracy"]},
        {"name": "sentence-polarity"}, 200,
    ),
    Column(
        "narang-docstrings", "the first line of a docstring from its body (for XSum)", "ROUGE-2 of XSum",
        lambda figures: figures.xsum_rouge_2, "ROUGE-2", {"kind": "transduce", "score": "rouge", "sample": 0},
        {"name": "docstrings"}, 80,
    ),
    Column(
        "narang-questions", "closed-book questions about geography (for WebQuestions)", "accuracy of WebQuestions",
        lambda figures: figures.webq_accuracy, "exact match", {"kind": "transduce", "score": "answers", "sample": 0},
        {"name": "questions"}, 100, batch_size=64,
    ),
    Column(
        "narang-multi30k", "captions from English to German (for WMT 2014)", "BLEU of WMT 2014 English-German",
        lambda figures: figures.wmt_en_de_bleu, "BLEU", {"kind": "transduce", "score": "bleu", "sample": 0},
        {"name": "multi30k"}, 80, language="de",
    ),
)  # fmt: skip


def build_table() -> dict[str, Any]:
    """The table of pretraining."""
    experiment = {
        "task": {"kind": "denoise", "context": SMALL.length},
        "data": {"name": "docstrings", "columns": [1]},
        "tokeniser": {"kind": "bpe", "size": SMALL.vocab - SENTINELS},
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
        "name": "narang",
        "title": f"Narang et al. 2021 at {SMALL.depth} + {SMALL.depth} layers of width {SMALL.width}: span corruption",
        "seeds": [1, 2, 3],
        "score": "final loss",
        "lower": True,
        "quick": list(QUICK),
        "checkpoint": "last",
        "records": RECORDS,
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


def build_column(column: Column) -> dict[str, Any]:
    """The table of a column: all rows fine-tuned for one task, with inputs and outputs as long as in pretraining."""
    experiment = {
        "task": {**column.task, "extra_tokens": SENTINELS},
        "data": {**column.data, "max_length": SMALL.length - 1, "truncate": True},
        **({"decode": {"max_length": SMALL.length - 1}} if column.task["kind"] == "transduce" else {}),
        "train": {
            "threads": 1, "batch_size": column.batch_size, **FINE_TUNING, "label_smoothing": 0.0, "samples": 0,
        },
    }  # fmt: skip
    return {
        "title": f"Narang et al. 2021, small: {column.what}",
        "start_from": PRETRAINING,
        "seeds": [1],
        "score": column.score,
        "checkpoint": "last",
        "records": RECORDS,
        **({"evaluate": {"language": column.language}} if column.language != "en" else {}),
        "budget": {"steps": column.steps},
        "analysis": {**column.analysis, "baseline": ANALYSIS["baseline"], "claim": ANALYSIS["claim"]},
        "experiment": experiment,
        "arm": [build_column_arm(column, row) for row in ROWS],
    }


def build_column_arm(column: Column, row: Row) -> dict[str, Any]:
    arm = {"name": row.name, "published": {column.score: column.get(row.figures)}}
    return arm | ({"set": FINE_TUNING_ADAM} if row.adam else {})


def render_tables() -> dict[str, str]:
    """The tables as TOML, by name."""
    columns = {
        column.name: COLUMN_HEADER.format(what=column.what, figure=column.figure, name=column.name)
        + tomli_w.dumps(build_column(column))
        for column in COLUMNS
    }
    return {PRETRAINING: HEADER + tomli_w.dumps(build_table()), **columns}


def main() -> None:
    for name, text in render_tables().items():
        print(write(Path(FOLDER) / f"{name}.toml", text))


if __name__ == "__main__":
    main()
