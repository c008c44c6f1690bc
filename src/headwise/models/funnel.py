"""Funnel-Transformer (Dai et al. 2020): an encoder that halves the length of a text from block to block.

Token embeddings and a norm; blocks of post-norm layers with relative positions, the first layer of each attending from
pooled tokens to unpooled ones; for outputs of every token, a decoder of a few layers over the upsampled outputs of the
last block plus those of the first. A text classifier needs no decoder.

Sizes are those of the released models: `small` is B4-4-4H768 of the paper, `medium` B6-3x2-3x2H768 (each layer of the
last two blocks is used twice).

DISCREPANCY: the released code drops the last token before pooling and averages padding with tokens, so that outputs
depend on the padding (`truncate` and `pool_padding`); here they do not.
DISCREPANCY: it initialises embeddings with N(0, 1) and matrices by their shape; we initialise with N(0, 0.02^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headwise.blocks.attention.multihead import AttentionConfig
from headwise.blocks.feedforward import Activation
from headwise.blocks.funnel import FunnelEncoder, FunnelStack, Pooling, SequencePool
from headwise.blocks.norm import LayerNormConfig
from headwise.blocks.positions.funnel import FunnelRelativeConfig
from headwise.blocks.stack import Stack
from headwise.blocks.tables import AnyNorm, AnyPart, AnyPosition
from headwise.config.base import Problems
from headwise.models.assemble import HeadTransformConfig, TextFields, assemble, build_text_parts
from headwise.models.config import ModelConfig, PoolKind
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import TextInitFields, init_normal
from headwise.models.layers import StackConfig, build_stack
from headwise.text import BOS

Count = Annotated[int, Field(ge=1)]


class FunnelConfig(TextFields, TextInitFields, ModelConfig):
    tasks = ("masked", "tag", "classify", "answer", "encode")
    kind: Literal["funnel"] = "funnel"
    width: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    head_width: int = Field(64, ge=0)
    activation: Activation = "gelu_tanh"
    mixer: AnyPart = AttentionConfig(attend_to="unpooled")
    positions: AnyPosition = FunnelRelativeConfig()
    norm: AnyNorm = LayerNormConfig(eps=1e-9)
    block_depths: tuple[Count, ...] = Field((4, 4, 4), min_length=1)  # layers of each block
    block_repeats: tuple[Count, ...] = ()  # how often each layer of a block is used in a row; empty: once
    decoder_depth: int = Field(2, ge=1)
    pooling: Pooling = "mean"
    separate_first: bool = True  # the first token is not pooled with others
    truncate: bool = False  # drop the last token of a row before pooling
    pool_padding: bool = False  # pool padding as any other token, and mask what it is in
    pool_keys: bool = False  # pooled tokens attend to each other from the first layer of a block on
    upsample: bool = True  # an encoder without a head gives a vector to every token, through the decoder
    scale_embeddings: bool = False
    embedding_norm: bool = True
    head_transform: HeadTransformConfig = HeadTransformConfig(dense=False)
    pool: PoolKind = "pooler"

    @model_validator(mode="before")
    @classmethod
    def _spread_depth(cls, data: Any) -> Any:
        """Apply `depth` to the blocks: their layers in all, in proportion to `block_depths`."""
        without_depth = super()._spread_depth(data)  # type: ignore[operator]
        depths = data.get("block_depths", cls.model_fields["block_depths"].default) if "depth" in data else ()
        if not isinstance(depths, list | tuple) or not depths or not all(type(n) is int and n > 0 for n in depths):
            return without_depth  # without a depth, or refused by the field
        depth = StackConfig.model_validate({"depth": data["depth"]}).depth
        if depth < len(depths):
            message = f"{depth} is fewer than the {len(depths)} blocks, which need a layer each; set block_depths"
            raise Problems([(("depth",), message)])
        return {**without_depth, "block_depths": scale_depths(depths, depth)}

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        return (*super().known_keys(), "depth")

    @property
    def depth(self) -> int:
        """Layers of all blocks."""
        return sum(self.block_depths)

    @model_validator(mode="after")
    def _check_repeats(self) -> Self:
        if self.block_repeats and len(self.block_repeats) != len(self.block_depths):
            raise ValueError(
                f"block_repeats: has {len(self.block_repeats)} numbers for {len(self.block_depths)} blocks; correct one"
            )
        return self

    def stacks(self) -> tuple[StackConfig, StackConfig]:
        return StackConfig(depth=self.depth), StackConfig(depth=self.decoder_depth)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        task = self.resolve_task(task)
        upsample = task != "classify" and (task != "encode" or self.upsample)
        parts = build_text_parts(
            self,
            encoder=lambda embedding: FunnelEncoder(
                embedding, self._build_stack(upsample), prefix_id=BOS, pairs=self.pair_types
            ),
        )
        model = assemble(task, parts, vocab, outputs)
        init_normal(model, self.init)
        return model

    def _build_stack(self, upsample: bool) -> FunnelStack:
        repeats = self.block_repeats or (1,) * len(self.block_depths)
        blocks = [self._build_block(depth, repeat) for depth, repeat in zip(self.block_depths, repeats, strict=True)]
        pool = SequencePool(self.pooling, self.separate_first, self.truncate, self.pool_padding)
        return FunnelStack(blocks, pool, self._build_block(self.decoder_depth) if upsample else None, self.pool_keys)

    def _build_block(self, depth: int, repeats: int = 1) -> Stack:
        """A block of `depth` layers, each used `repeats` times in a row."""
        stack = build_stack(self, StackConfig(depth=depth))
        order = [number for number in range(depth) for _ in range(repeats)]
        return Stack(list(stack.layers), stack.final, order, pattern_length=depth)


def scale_depths(depths: Sequence[int], total: int) -> tuple[int, ...]:
    """Depths of blocks in the same proportion, as far as possible, with `total` layers and at least one in each.

    >>> scale_depths((6, 3, 3), 5)
    (3, 1, 1)
    """
    scaled = [1] * len(depths)
    for _ in range(total - len(depths)):
        missing = [total * depth / sum(depths) - count for depth, count in zip(depths, scaled, strict=True)]
        scaled[missing.index(max(missing))] += 1
    return tuple(scaled)


SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "medium": {"block_depths": (6, 3, 3), "block_repeats": (1, 2, 2)},
    "intermediate": {"block_depths": (6, 6, 6)},
    "large": {"width": 1024, "heads": 16, "block_depths": (8, 8, 8)},
    "xlarge": {"width": 1024, "heads": 16, "block_depths": (10, 10, 10)},
    "tiny": {"width": 32, "heads": 4, "head_width": 8, "block_depths": (1, 2), "decoder_depth": 1},
}

ENTRY = Entry(
    name="funnel",
    paper="Dai et al., Funnel-Transformer: Filtering out Sequential Redundancy for Efficient Language Processing",
    year=2020,
    family="encoder",
    config=FunnelConfig,
    sizes=SIZES,
    vocab=30_522,
    published={"small": "130M", "medium": "130M", "intermediate": "177M", "large": "386M", "xlarge": "468M"},
    checks=(
        Check(
            "transformers.FunnelForMaskedLM",
            "tests/parity/test_funnel.py::test_outputs_are_equal_both_ways",
            "transformers",
        ),
    ),
)
