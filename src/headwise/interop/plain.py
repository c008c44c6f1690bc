"""What other programs can run: stacks whose layers are all alike and made of the parts of 2017."""

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
    """One stack of a `TransformerConfig`, with every number that was left open filled in.

    >>> plain_stack(TransformerConfig(), "decoder")
    PlainStack(depth=6, own=6, heads=8, head_width=64, hidden=2048, activation='relu')
    """

    depth: int
    own: int  # layers with weights of their own; layer i has those of i % own
    heads: int
    head_width: int
    hidden: int
    activation: str


def plain_stack(config: TransformerConfig, name: Side) -> PlainStack:
    """The numbers of a plain stack; any other is refused with the key that makes it special."""
    stack, usual = getattr(config, name), PARTS[name]
    pattern: tuple[tuple[Any, ...], ...] = stack.layers or config.pattern(name == "decoder")
    parts = pattern[0]
    if any(layer != parts for layer in pattern):
        raise UserError(f"{name}.layers: layers that differ from each other cannot be exported")
    if [(part.kind, getattr(part, "attend_to", "")) for part in parts] != [
        (u.kind, getattr(u, "attend_to", "")) for u in usual
    ]:
        raise UserError(f"{name}.layers: only {' + '.join(part.kind for part in usual)} can be exported")
    *attentions, mlp = parts
    if any(attention.score_mods for attention in attentions):
        raise UserError(f"{name}.layers: score terms of a single attention cannot be exported")
    if any(attention.score.kind != "scaled" for attention in attentions):
        raise UserError(f"{name}.layers: only attention with score = 'scaled' can be exported")
    if any(attention.memory_length or not attention.key_bias for attention in attentions):
        raise UserError(f"{name}.layers: attention that recalls segments or has no key_bias cannot be exported")
    counted = [(a.heads or config.heads, a.head_width or config.head_width) for a in attentions]
    shapes = {(heads, head_width or config.width // heads) for heads, head_width in counted}
    if len(shapes) > 1:
        raise UserError(f"{name}.layers: attentions of one layer with different heads cannot be exported")
    ((heads, head_width),) = shapes
    return PlainStack(
        depth=stack.depth,
        own=len(pattern) if stack.shared else stack.depth,
        heads=heads,
        head_width=head_width,
        hidden=mlp.hidden or round(mlp.expand * config.width) or config.hidden or 4 * config.width,
        activation=mlp.activation or config.activation,
    )
