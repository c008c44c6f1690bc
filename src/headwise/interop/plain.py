"""Stacks that other programs can run: all layers equal, with the parts of the Transformer of 2017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import MlpConfig
from headwise.errors import UserError
from headwise.models.transformer import TransformerConfig

Side = Literal["encoder", "decoder"]
ATTENTION, CROSS, MLP = AttentionConfig(), AttentionConfig(attend_to="memory"), MlpConfig()
PARTS: dict[Side, tuple[AttentionConfig | MlpConfig, ...]] = {
    "encoder": (ATTENTION, MLP),
    "decoder": (ATTENTION, CROSS, MLP),
}


@dataclass(frozen=True)
class PlainStack:
    """One stack of a `TransformerConfig`, with derived defaults filled in.

    >>> read_plain_stack(TransformerConfig(), "decoder")
    PlainStack(layer_numbers=(0, 1, 2, 3, 4, 5), heads=8, head_width=64, hidden=2048, activation='relu')
    """

    layer_numbers: tuple[int, ...]  # the layer whose weights each place of the stack has
    heads: int
    head_width: int
    hidden: int
    activation: str

    @property
    def depth(self) -> int:
        return len(self.layer_numbers)


def read_plain_stack(config: TransformerConfig, name: Side) -> PlainStack:
    """The sizes of a plain stack; any other stack is refused with the key that differs."""
    stack, plain_parts = getattr(config, name), PARTS[name]
    plain = type(stack)()
    if special := [key for key in stack.VARIANTS if getattr(stack, key) != getattr(plain, key)]:
        raise UserError(f"{name}.{special[0]}: cannot be exported; train without it")
    pattern: tuple[tuple[Any, ...], ...] = stack.layers or config.pattern(name == "decoder")
    parts = pattern[0]
    if any(layer != parts for layer in pattern):
        raise UserError(f"{name}.layers: layers that differ from each other cannot be exported")
    if [(part.kind, getattr(part, "attend_to", "")) for part in parts] != [
        (part.kind, getattr(part, "attend_to", "")) for part in plain_parts
    ]:
        raise UserError(f"{name}.layers: only {' + '.join(part.kind for part in plain_parts)} can be exported")
    *attentions, mlp = parts
    if any(attention.score_mods for attention in attentions):
        raise UserError(f"{name}.layers: score mods of a single attention cannot be exported")
    if any(attention.score.kind != "scaled" for attention in attentions):
        raise UserError(f"{name}.layers: only attention with score = 'scaled' can be exported")
    if any(attention.memory_length or not attention.key_bias for attention in attentions):
        raise UserError(f"{name}.layers: attention with memory_length or without key_bias cannot be exported")
    if any(attention.shared_key_value for attention in attentions):
        raise UserError(f"{name}.layers: attention with shared_key_value cannot be exported")
    if getattr(mlp, "hidden_norm", False):
        raise UserError(f"{name}.layers: a feed-forward network with hidden_norm cannot be exported")
    settings = [(part.heads or config.heads, part.head_width or config.head_width) for part in attentions]
    shapes = {(heads, head_width or config.width // heads) for heads, head_width in settings}
    if len(shapes) > 1:
        raise UserError(f"{name}.layers: attentions of one layer with different heads cannot be exported")
    ((heads, head_width),) = shapes
    return PlainStack(
        layer_numbers=tuple(stack.list_layer_numbers(len(pattern))),
        heads=heads,
        head_width=head_width,
        hidden=mlp.hidden or round(mlp.expand * config.width) or config.hidden or 4 * config.width,
        activation=mlp.activation or config.activation,
    )
