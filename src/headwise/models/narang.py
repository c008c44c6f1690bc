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
    sentinels: int = 128  # tokens of the vocabulary that stand for spans, the last ones
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
    change: Change
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


ATTENTION: Settings = {"kind": "attention", "score": "dot"}
CROSS_ATTENTION: Settings = {**ATTENTION, "attend_to": "memory"}


def cluster(sizes: Sizes, sentinels: bool) -> Settings:
    """Clusters of the vocabulary by frequency: 2500, 6000 and 23,500 tokens of 32,000, in the width, a third and a
    twelfth of it; with `sentinels`, which are as frequent as the first, in a cluster of their own."""
    words = sizes.vocab - sizes.sentinels
    cutoffs = [round(words * 2500 / 32_000), round(words * 8500 / 32_000)]
    widths = [sizes.width, sizes.scale("width", Fraction(1, 3)), sizes.scale("width", Fraction(1, 12))]
    if sentinels:
        cutoffs, widths = [*cutoffs, words], [*widths, sizes.width]
    return {"kind": "adaptive", "cutoffs": cutoffs, "widths": widths}


def adapt_input(sizes: Sizes) -> Settings:
    """Adaptive input embeddings, to which the softmax is tied."""
    return {"token_embedding": cluster(sizes, sentinels=False)}


def adapt_softmax(sizes: Sizes) -> Settings:
    """An adaptive softmax, tied to adaptive input embeddings."""
    clusters = cluster(sizes, sentinels=True)
    return {"token_embedding": clusters, "output_layer": clusters}


def adapt_softmax_without_projection(sizes: Sizes) -> Settings:
    """An adaptive softmax whose clusters have the model's width, tied to an ordinary table."""
    cutoffs = cluster(sizes, sentinels=True)["cutoffs"]
    return {"output_layer": {"kind": "adaptive", "cutoffs": cutoffs, "div_value": 1}}


def convolve(kind: str, ratio: Fraction = Fraction(1)) -> Change:
    """Convolution in the place of self-attention, with a kernel of 9 tokens for each channel, as in the released code;
    and so many times the hidden channels."""
    mixer = {"kind": kind, "kernel": 9, "per_channel": True, "pointwise": True}
    return lambda sizes: {"mixer": mixer, "hidden": sizes.scale("hidden", ratio)}


def evolve(sizes: Sizes) -> Settings:
    """Blocks of the Evolved Transformer, each for two layers."""
    depth = sizes.scale("depth", Fraction(1, 2))
    wide = {**ATTENTION, "heads": 2 * sizes.heads}
    encoder = ["glu", "conv_branches", ATTENTION, "mlp"]
    first = {"kind": "sum", "parts": [wide, CROSS_ATTENTION]}
    decoder = [first, "conv_branches", ATTENTION, CROSS_ATTENTION, {"kind": "mlp", "activation": "swish"}]
    return {"encoder": {"depth": depth, "layers": [encoder]}, "decoder": {"depth": depth, "layers": [decoder]}}


def synthesize(kind: str, plus: bool = False, alpha: bool = False, **settings: Any) -> Change:
    """Scores of a Synthesizer in self-attention; with `plus`, added to those of queries and keys; with `alpha`, in
    proportions that are learned."""

    def change(sizes: Sizes) -> Settings:
        score: Settings = {"kind": kind, "max_length": sizes.length, **settings}
        if plus:
            score = {"kind": "mixture", "scores": ["dot", score], "gated": alpha}
        return {"mixer": {"kind": "attention", "score": score}}

    return change


def recur(sizes: Sizes) -> Settings:
    """Universal Transformer: twice as many steps of one layer with gates, and two of it before and after them. The
    softmax has a table of its own."""
    recurrence = {"before": 2, "after": 2, "own_weights": False, "steps": "learned", "positions": False}
    stack = {"depth": sizes.scale("depth", Fraction(2)), "recurrence": recurrence}
    return {"wiring": "gru", "tie": "inputs", "encoder": stack, "decoder": dict(stack)}


def add_experts(top_k: int, ratio: Fraction, capacity_factor: float) -> Change:
    """32 experts in every fourth layer of twelve, with so many times the hidden channels."""

    def change(sizes: Sizes) -> Settings:
        interval = sizes.scale("depth", Fraction(1, 3))
        experts = {
            "kind": "experts",
            "count": 32,
            "top_k": top_k,
            "hidden": sizes.scale("hidden", ratio),
            "capacity_factor": capacity_factor,
            "eval_capacity_factor": capacity_factor,
        }
        override = {"layers": [interval, 2 * interval, 3 * interval], "feedforward": experts}
        return {"encoder": {"overrides": [override]}, "decoder": {"overrides": [override]}}

    return change


def funnel(sizes: Sizes) -> Settings:
    """Three blocks of layers in the encoder, of which the second and third begin with pooling."""
    block = sizes.scale("depth", Fraction(1, 3))
    return {"encoder": {"pooled_layers": [block + 1, 2 * block + 1]}}


def weigh(sizes: Sizes) -> Settings:
    """Branched attention, in which each head has the feed-forward network that all share."""
    branched, cross = ({**part, "kind": "branched"} for part in (ATTENTION, CROSS_ATTENTION))
    return {"encoder": {"layers": [[branched]]}, "decoder": {"layers": [[branched, cross]]}}


def remember(sizes: Sizes) -> Settings:
    """A product-key memory as the feed-forward network of the last decoder layer but one: 512 sub-keys of each half at
    the published size, in proportion to the hidden channels."""
    memory = {
        "kind": "product_keys",
        "sub_keys": sizes.scale("hidden", Fraction(1, 6)),
        "heads": 8,
        "nearest": 32,
        "key_width": sizes.scale("width", Fraction(1, 6)),
        "query_norm": "layer",
    }
    return {"decoder": {"overrides": [{"layers": [sizes.depth - 1], "feedforward": memory}]}}


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
    Row("Adaptive input embeddings", adapt_input),
    Row("Adaptive softmax", adapt_softmax),
    Row("Adaptive softmax without projection", adapt_softmax_without_projection),
    Row("Mixture of softmaxes", fix(output_layer="mixture")),
    Row("Transparent attention", fix(transparent_attention=True)),
    Row("Dynamic convolution", convolve("dynamic_conv", Fraction(1, 6))),
    Row("Lightweight convolution", convolve("lightweight_conv")),
    Row("Evolved Transformer", evolve),
    Row("Synthesizer (dense)", synthesize("dense")),
    Row("Synthesizer (dense plus)", synthesize("dense", plus=True)),
    Row("Synthesizer (dense plus alpha)", synthesize("dense", plus=True, alpha=True)),
    Row("Synthesizer (factorized)", synthesize("factorised", rank=16)),
    Row("Synthesizer (random)", synthesize("random")),
    Row("Synthesizer (random plus)", synthesize("random", plus=True)),
    Row("Synthesizer (random plus alpha)", synthesize("random", plus=True, alpha=True)),
    Row("Universal Transformer", recur),
    Row("Mixture of experts", add_experts(2, Fraction(1, 2), 2.0)),
    Row("Switch Transformer", add_experts(1, Fraction(1), 1.2)),
    Row("Funnel Transformer", funnel),
    Row("Weighted Transformer", weigh),
    Row("Product key memory", remember),
)


def find_row(name: str) -> Row:
    """The row of this name, or slug."""
    rows = {key: row for row in ROWS for key in (row.slug, row.name)}
    if name not in rows:
        raise UserError(f"narang: no row is called '{name}'; {nearest(name, [row.name for row in ROWS])}")
    return rows[name]
