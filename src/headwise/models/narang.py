"""The 52 modifications of T5 of Narang et al. 2021, "Do Transformer Modifications Transfer Across Implementations and
Applications?", table 1, as settings of `t5-narang`. No torch here.

A row's settings are a function of the base model's sizes, so that the same row can be built at the published and at a
small size. What the paper leaves open is as in its released settings (google-research, transformer_modifications).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from headwise.errors import UserError, nearest

Settings = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """The sizes of the base model. By default the published ones."""

    width: int = 768
    heads: int = 12
    head_width: int = 64
    hidden: int = 3072
    depth: int = 12  # of the encoder, and of the decoder
    vocab: int = 32_128
    length: int = 512  # tokens of a source

    @property
    def settings(self) -> Settings:
        """Keys of `[model]`."""
        return {key: getattr(self, key) for key in ("width", "heads", "head_width", "hidden", "depth")}

    def scale(self, key: str, ratio: Fraction) -> int:
        """A size times `ratio`, which must be a whole number."""
        size = getattr(self, key) * ratio
        if size.denominator != 1:
            raise UserError(f"{key}: {ratio} of {getattr(self, key)} is no whole number; choose another {key}")
        return int(size)


Change = Callable[[Sizes], Settings]  # sizes of the base model -> keys of `[model]` that a row changes


@dataclass(frozen=True)
class Figures:
    """The published figures of a row, with the units of the paper's table."""

    parameters: str  # such as 223M
    ops: str  # FLOPs of a forward and a backward pass, such as 11.1T
    steps_per_second: float
    early_loss: float  # mean of 5 runs after 65,536 steps
    early_loss_std: float
    final_loss: float  # after 524,288 steps
    super_glue: float
    xsum_rouge_2: float
    webq_accuracy: float
    wmt_en_de_bleu: float


@dataclass(frozen=True)
class Row:
    """One row of the table: a change of the base model's settings."""

    name: str  # as in the paper
    change: Change | None  # None: a part of it is not written yet
    adam: bool = False  # trained with Adam; the others with Adafactor

    @property
    def slug(self) -> str:
        """The name as that of a size: `t5-narang-SLUG`. Rows that begin with + add to block sharing.

        >>> ROWS[17].slug, ROWS[22].slug
        ('24-layers-ff1536-h6', 'block-sharing-factorized-embeddings')
        """
        name = self.name.lower().replace("d_ff=", "ff").replace("h=", "h")
        name = f"block sharing {name}" if name.startswith("+") else name
        return re.sub(r"[^a-z0-9]+", "-", name).strip("-")

    @property
    def figures(self) -> Figures:
        return read_figures()[self.name]

    def configure(self, sizes: Sizes) -> Settings:
        """The keys of `[model]`, without `kind`."""
        if self.change is None:
            raise UserError(
                f"narang: '{self.name}' cannot be built yet, as a part of it is missing; choose another row"
            )
        return {**sizes.settings, **self.change(sizes)}


@cache
def read_figures() -> Mapping[str, Figures]:
    """The published figures, by row."""
    text = resources.files("headwise.models").joinpath("narang2021.tsv").read_text("utf-8")
    figures = {}
    for line in csv.DictReader(text.splitlines(), delimiter="\t"):
        values: dict[str, Any] = {key: line[key] if kind == "str" else float(line[key]) for key, kind in list_columns()}
        figures[line["row"]] = Figures(**values)
    return figures


def list_columns() -> list[tuple[str, str]]:
    """Names and types of the figures."""
    return [(field.name, str(field.type)) for field in fields(Figures)]


def keep(sizes: Sizes) -> Settings:
    """The base model."""
    return {}


def fix(**settings: Any) -> Change:
    """A change that is the same at all sizes."""
    return lambda sizes: dict(settings)


def gate(activation: str) -> Change:
    """A gated linear unit: of the hidden channels two thirds, for as many parameters with three matrices."""
    return lambda sizes: {"activation": activation, "hidden": sizes.scale("hidden", Fraction(2, 3))}


def deepen(ratio: Fraction) -> Change:
    """So many times the layers, and as many times fewer hidden channels and heads."""
    return lambda sizes: {
        "depth": sizes.scale("depth", ratio),
        "hidden": sizes.scale("hidden", 1 / ratio),
        "heads": sizes.scale("heads", 1 / ratio),
    }


def share(encoder: bool = True, decoder: bool = True) -> Change:
    """Block sharing: one layer for the whole depth of a stack. The softmax has a table of its own."""
    sides = {"encoder": encoder, "decoder": decoder}
    return fix(tie="inputs", **{side: {"shared": True} for side, is_shared in sides.items() if is_shared})


def factorise(tied: bool, change: Change = keep) -> Change:
    """A factorised embedding, of a sixth of the width, with one projection; tied to the softmax or with a full one."""
    outputs: Settings = {"tie": "all"} if tied else {"tie": "inputs", "factorise_outputs": False}
    return lambda sizes: {
        **change(sizes),
        "embedding_width": sizes.scale("width", Fraction(1, 6)),
        "tie_projection": True,
        **outputs,
    }


def rewire(wiring: Mapping[str, Any], **settings: Any) -> Change:
    """Another wiring, trained with Adam: scores are divided by sqrt(head_width) instead of the initial queries, and
    tables are initialised like other matrices, with embeddings times sqrt(width)."""
    scaled = {"kind": "attention", "score": "scaled"}
    return fix(
        wiring=dict(wiring),
        mixer=scaled,
        cross_attention={**scaled, "attend_to": "memory"},
        scale_embeddings=True,
        scale_outputs=False,
        **settings,
    )


ROWS: tuple[Row, ...] = (
    Row("Vanilla Transformer", keep),
    Row("GeLU", fix(activation="gelu_tanh")),
    Row("Swish", fix(activation="swish")),
    Row("ELU", fix(activation="elu")),
    Row("GLU", gate("glu")),
    Row("GeGLU", gate("geglu_tanh")),
    Row("ReGLU", gate("reglu")),
    Row("SeLU", fix(activation="selu")),
    Row("SwiGLU", gate("swiglu")),
    Row("LiGLU", gate("liglu")),
    Row("Sigmoid", fix(activation="sigmoid")),
    Row("Softplus", fix(activation="softplus")),
    Row("RMS Norm", fix(norm="rms")),
    Row("Rezero", rewire({"kind": "rezero"}), adam=True),
    Row("Rezero + LayerNorm", rewire({"kind": "rezero", "norm": True}), adam=True),
    Row("Rezero + RMS Norm", rewire({"kind": "rezero", "norm": True}, norm="rms"), adam=True),
    Row("Fixup", rewire({"kind": "fixup"}), adam=True),
    Row("24 layers, d_ff=1536, H=6", deepen(Fraction(2))),
    Row("18 layers, d_ff=2048, H=8", deepen(Fraction(3, 2))),
    Row("8 layers, d_ff=4608, H=18", deepen(Fraction(2, 3))),
    Row("6 layers, d_ff=6144, H=24", deepen(Fraction(1, 2))),
    Row("Block sharing", share()),
    Row("+ Factorized embeddings", factorise(tied=False, change=share())),
    Row("+ Factorized & shared embeddings", factorise(tied=True, change=share())),
    Row("Encoder only block sharing", share(decoder=False)),
    Row("Decoder only block sharing", share(encoder=False)),
    Row("Factorized Embedding", factorise(tied=False)),
    Row("Factorized & shared embeddings", factorise(tied=True)),
    Row("Tied encoder/decoder input embeddings", fix(tie="inputs")),
    Row("Tied decoder input and output embeddings", fix(tie="target")),
    Row("Untied embeddings", fix(tie="none")),
    # A row whose parts are not written yet has no settings; tests/models/test_narang.py lists these.
    Row("Adaptive input embeddings", None),
    Row("Adaptive softmax", None),
    Row("Adaptive softmax without projection", None),
    Row("Mixture of softmaxes", None),
    Row("Transparent attention", None),
    Row("Dynamic convolution", None),
    Row("Lightweight convolution", None),
    Row("Evolved Transformer", None),
    Row("Synthesizer (dense)", None),
    Row("Synthesizer (dense plus)", None),
    Row("Synthesizer (dense plus alpha)", None),
    Row("Synthesizer (factorized)", None),
    Row("Synthesizer (random)", None),
    Row("Synthesizer (random plus)", None),
    Row("Synthesizer (random plus alpha)", None),
    Row("Universal Transformer", None),
    Row("Mixture of experts", None),
    Row("Switch Transformer", None),
    Row("Funnel Transformer", None),
    Row("Weighted Transformer", None),
    Row("Product key memory", None),
)


def list_rows() -> list[Row]:
    """The rows that can be built, in the order of the paper."""
    return [row for row in ROWS if row.change is not None]


def find_row(name: str) -> Row:
    """The row of this name, or slug."""
    rows = {key: row for row in ROWS for key in (row.slug, row.name)}
    if name not in rows:
        raise UserError(f"narang: no row is called '{name}'; {nearest(name, [row.name for row in ROWS])}")
    return rows[name]
