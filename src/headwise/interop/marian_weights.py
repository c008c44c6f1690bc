"""Weights of Hugging Face Marian <-> ours: key maps as tables.

Letters: V vocab, C width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.blocks.position import sinusoid
from headwise.errors import UserError
from headwise.interop.marian_config import MarianConfig
from headwise.interop.plain import Side, plain_stack
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS

State = Mapping[str, Tensor]

Leaves = dict[str, tuple[str, int | None]]  # our leaf -> (their leaf, the axis along the residual stream)
READS: Leaves = {"weight": ("weight", 1), "bias": ("bias", None)}
WRITES: Leaves = {"weight": ("weight", 0), "bias": ("bias", 0)}
NORM: Leaves = {"gain": ("weight", 0), "shift": ("bias", 0)}

# Our module in a layer -> (their modules, in the order in which ours fuses them; their leaves).
LAYERS: dict[Side, dict[str, tuple[tuple[str, ...], Leaves]]] = {
    "encoder": {
        "parts.0.see.project": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), READS),
        "parts.0.out": (("self_attn.out_proj",), WRITES),
        "parts.1.inner": (("fc1",), READS),
        "parts.1.outer": (("fc2",), WRITES),
        "norms.0": (("self_attn_layer_norm",), NORM),
        "norms.1": (("final_layer_norm",), NORM),
    },
    "decoder": {
        "parts.0.see.project": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), READS),
        "parts.0.out": (("self_attn.out_proj",), WRITES),
        "parts.1.see.query": (("encoder_attn.q_proj",), READS),
        "parts.1.see.project": (("encoder_attn.k_proj", "encoder_attn.v_proj"), READS),
        "parts.1.out": (("encoder_attn.out_proj",), WRITES),
        "parts.2.inner": (("fc1",), READS),
        "parts.2.outer": (("fc2",), WRITES),
        "norms.0": (("self_attn_layer_norm",), NORM),
        "norms.1": (("encoder_attn_layer_norm",), NORM),
        "norms.2": (("final_layer_norm",), NORM),
    },
}
SOURCE, TARGET, HEAD = "encoder.embed.table.weight", "decoder.embed.table.weight", "decoder.head.table.weight"
BIAS, OUR_BIAS = "final_logits_bias", "decoder.head.bias"
# Tied tables are stored once: the first name that a file has holds the table, and is written.
SHARED_NAMES = ("model.shared.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
OWN_NAMES = {
    SOURCE: ("model.encoder.embed_tokens.weight",),
    TARGET: ("model.decoder.embed_tokens.weight", "lm_head.weight"),
    HEAD: ("lm_head.weight", "model.decoder.embed_tokens.weight"),
}
NEVER = -100.0  # added to the logit of a copied start row: P below e^-100 changes no other P


class Rows(NamedTuple):
    """Which row of Marian's tables each of our ids has.

    Marian puts the end mark first and the padding last, and starts from the padding. Ours are PAD, BOS, EOS, UNK,
    then the rest in Marian's order. BOS gets a copy of the row that Marian starts from, where that row has
    another use already.

    >>> Rows.arranged(6, pad=5, start=5, eos=0, unk=1)
    Rows(order=[5, 5, 0, 1, 2, 3, 4], copied=True)
    """

    order: list[int]
    copied: bool

    @classmethod
    def arranged(cls, vocab: int, pad: int, start: int, eos: int, unk: int | None = None) -> Rows:
        marks = [pad, eos, *([] if unk is None else [unk])]
        if len(set(marks)) < len(marks) or not all(0 <= mark < vocab for mark in (*marks, start)):
            raise UserError(
                f"config.json: pad {pad}, eos {eos}, unk {unk} and start {start} must be ids below {vocab}, "
                "the first three different; correct them"
            )
        taken = {*marks, start}
        rest = [row for row in range(vocab) if row not in taken]
        return cls([pad, start, *marks[1:], *rest], start in marks)


class Link(NamedTuple):
    """One tensor of ours, and those of theirs that it fuses along its first axis."""

    ours: str
    theirs: list[str]
    residual: int | None


def links(config: TransformerConfig) -> Iterator[Link]:
    """All tensors but the tables, layer by layer; layers that share our weights get copies."""
    for side, modules in LAYERS.items():
        stack = plain_stack(config, side)
        for layer in range(stack.depth):
            ours, theirs = f"{side}.stack.layers.{layer % stack.own}", f"model.{side}.layers.{layer}"
            for module, (names, leaves) in modules.items():
                for leaf, (their_leaf, residual) in leaves.items():
                    fused = [f"{theirs}.{name}.{their_leaf}" for name in names]
                    yield Link(f"{ours}.{module}.{leaf}", fused, residual)


def weights_from_hf(
    state: State, theirs: MarianConfig, config: TransformerConfig, source: Rows, target: Rows
) -> dict[str, Tensor]:
    """Our state dict from theirs; `config` is `config_from_hf` of `theirs`."""
    _check_positions(state, theirs)
    ours = {link.ours: torch.cat([_get(state, name) for name in link.theirs]).float() for link in links(config)}
    unscaled = 1.0 if theirs.scale_embedding else theirs.d_model**-0.5
    target_vocab = theirs.decoder_vocab_size or theirs.vocab_size
    ours[SOURCE] = _table(state, SOURCE, theirs, theirs.vocab_size)[source.order] * unscaled
    ours[TARGET] = _table(state, TARGET, theirs, target_vocab)[target.order] * unscaled
    ours[HEAD] = _table(state, HEAD, theirs, target_vocab)[target.order]
    bias = _shaped(state.get(BIAS, torch.zeros(1, target_vocab)), BIAS, (1, target_vocab))
    ours[OUR_BIAS] = bias[0, target.order]
    if target.copied:
        ours[OUR_BIAS][BOS] += NEVER
    return ours


def weights_to_hf(state: State, config: TransformerConfig, theirs: MarianConfig) -> dict[str, Tensor]:
    """Their state dict from ours; the rows keep our order, which their config can tell.

    Interleaved sinusoids become sines first by reordering the channels of the whole residual stream, which
    changes nothing that leaves it.
    """
    channels = torch.arange(config.width)
    if not config.positions.halves:
        channels = torch.cat((channels[0::2], channels[1::2]))
    found: dict[str, Tensor] = {}
    for link in links(config):
        for name, part in zip(link.theirs, state[link.ours].cpu().chunk(len(link.theirs)), strict=True):
            chosen = part if link.residual is None else part.index_select(link.residual, channels)
            found[name] = chosen.clone()  # safetensors refuses views of one another
    for key in (SOURCE, TARGET, HEAD):
        found[_table_names(key, theirs)[0]] = state[key].cpu()[:, channels]  # tied ones meet under one name
    found[BIAS] = state.get(OUR_BIAS, torch.zeros(len(state[HEAD]))).cpu()[None].clone()  # (V,) -> (1, V)
    return found


def _get(state: State, name: str) -> Tensor:
    if name not in state:
        raise UserError(f"model.safetensors: has no {name}; it is not the model that config.json describes")
    return state[name]


def _table(state: State, key: str, theirs: MarianConfig, vocab: int) -> Tensor:
    names = _table_names(key, theirs)
    name = next((name for name in names if name in state), names[0])
    return _shaped(_get(state, name), name, (vocab, theirs.d_model))


def _shaped(tensor: Tensor, name: str, shape: tuple[int, int]) -> Tensor:
    if tensor.shape != shape:
        raise UserError(
            f"model.safetensors: {name} is {tuple(tensor.shape)}, config.json says {shape}; take both from one model"
        )
    return tensor.float()


def _table_names(key: str, theirs: MarianConfig) -> tuple[str, ...]:
    """Where a table may be; tied ones are in a file only once."""
    if theirs.one_table:
        return SHARED_NAMES
    return OWN_NAMES[key][: None if theirs.tie_word_embeddings else 1] + SHARED_NAMES[:1]


def _check_positions(state: State, theirs: MarianConfig) -> None:
    for side in ("encoder", "decoder"):
        table = state.get(f"model.{side}.embed_positions.weight")
        if table is None:
            continue
        expected = sinusoid(torch.arange(len(table)), theirs.d_model, halves=True)
        if table.shape != expected.shape or (table - expected).abs().max() > 1e-2:
            raise UserError(f"model.safetensors: positions of the {side} are no sinusoids, which is not supported")
