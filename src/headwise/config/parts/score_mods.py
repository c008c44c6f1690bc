"""Positions and score mods (attention masks, biases) as values."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from headwise.config.base import Config
from headwise.config.parts.site import POSITIONS, SCORE_MODS, BuildContext, ScoreMods, no_score_mods
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from headwise.blocks.embed import Embedding


class PositionConfig(Config):
    """Positions act on the embeddings, on the scores of every self-attention, or on neither."""

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.positions.absolute import NoPositions

        return NoPositions()

    def embed(self, table: nn.Embedding, width: int, **settings: Any) -> Embedding:
        """Tokens to vectors with these positions."""
        from headwise.blocks.embed import Embedding

        return Embedding(table, self.embedding(width), **settings)

    def on_grid(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        """Positions of patches on a grid, with class_tokens before them."""
        from headwise.blocks.images import SequencePositions

        return SequencePositions(self.embedding(width))

    def score_mods(self, site: BuildContext) -> ScoreMods:
        """What makes the score mods of each self-attention in a stack; called once for each."""
        return no_score_mods


@POSITIONS.add
class NoPositionsConfig(PositionConfig):
    kind: Literal["none"] = "none"


@POSITIONS.add
class SinusoidalPositionsConfig(PositionConfig):
    kind: Literal["sinusoid"] = "sinusoid"
    halves: bool = False

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.positions.absolute import SinusoidalPositions

        return SinusoidalPositions(width, self.halves)


@POSITIONS.add
class LearnedPositionsConfig(PositionConfig):
    kind: Literal["learned"] = "learned"
    max_length: int = Field(512, ge=1)
    offset: int = Field(0, ge=0)  # rows that stand before the first position's; BART has two

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.positions.absolute import LearnedPositions

        return LearnedPositions(width, self.max_length, self.offset)


@POSITIONS.add
class LearnedGridPositionsConfig(PositionConfig):
    """A learned vector for each place of an image's grid, interpolated for another grid."""

    kind: Literal["grid"] = "grid"
    std: float = Field(0.0, ge=0)  # what the vectors begin with; 0: what all weights do, 0.02 or little more

    def embedding(self, width: int) -> nn.Module:
        raise UserError("positions: 'grid' is of images; texts have learned, sinusoid, rotary and others")

    def on_grid(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        from headwise.blocks.images import LearnedGridPositions

        return LearnedGridPositions(width, grid, class_tokens, self.std)


@POSITIONS.add
class AxialPositionsConfig(PositionConfig):
    """Learned vectors for the rows and the columns of a grid of places, with `widths` channels each; 0: a quarter of
    the model's for rows, the rest for columns."""

    kind: Literal["axial"] = "axial"
    shape: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (64, 64)
    widths: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 0)

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.positions.absolute import AxialPositions

        first, second = self.widths if any(self.widths) else (width // 4, width - width // 4)
        if first + second != width:
            raise UserError(f"positions.widths: {first} and {second} channels do not make the width of {width}")
        return AxialPositions(self.shape, (first, second))


class ScoreModConfig(PositionConfig):
    """A score mod: usable in one attention (`score_mods`) or, as positions, in all of a stack."""

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        raise TypeError(f"{type(self).__name__} has no build method")

    def score_mods(self, site: BuildContext) -> ScoreMods:
        return lambda heads, head_width: (self.build(replace(site, heads=heads), head_width),)


@SCORE_MODS.add
class WindowConfig(ScoreModConfig):
    kind: Literal["window"] = "window"
    left: int = Field(16, ge=0)
    right: int = Field(16, ge=0)

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.score_mods import Window

        return Window(self.left, self.right)


@SCORE_MODS.add
@POSITIONS.add
class AlibiConfig(ScoreModConfig):
    kind: Literal["alibi"] = "alibi"

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.score_mods import Alibi

        return Alibi(site.heads)


@SCORE_MODS.add
@POSITIONS.add
class T5BiasConfig(ScoreModConfig):
    """T5's relative bias. As the positions of a stack, all its layers (of as many heads) share one table."""

    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=4)
    max_distance: int = Field(128, ge=2)

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.score_mods import T5Bias

        return T5Bias(site.heads, self.buckets, self.max_distance, both_ways=not site.causal)

    def score_mods(self, site: BuildContext) -> ScoreMods:
        shared = cache(lambda heads: (self.build(replace(site, heads=heads), 0),))
        return lambda heads, head_width: shared(heads)


@SCORE_MODS.add
@POSITIONS.add
class ShawRelativeConfig(ScoreModConfig):
    kind: Literal["shaw"] = "shaw"
    max_distance: int = Field(16, ge=1)

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.score_mods import ShawRelative

        return ShawRelative(head_width, self.max_distance)


@POSITIONS.add
class DisentangledAttentionConfig(PositionConfig):
    """DeBERTa's: one table of distances for all layers of a stack, of which each makes keys and queries."""

    kind: Literal["deberta"] = "deberta"
    max_distance: int = Field(512, ge=1)

    def score_mods(self, site: BuildContext) -> ScoreMods:
        from torch import nn

        from headwise.blocks.positions.relative import DisentangledAttention

        table = cache(lambda: nn.Embedding(2 * self.max_distance, site.width))
        return lambda heads, head_width: (DisentangledAttention(table(), heads, head_width, site.dropout),)


@POSITIONS.add
class TransformerXLRelativeConfig(PositionConfig):
    """Transformer-XL's: sinusoids of distances, projected by each layer. `shared`: all layers (of as many heads) lean
    to the same contents and distances."""

    kind: Literal["xl"] = "xl"
    shared: bool = True

    def score_mods(self, site: BuildContext) -> ScoreMods:
        from headwise.blocks.positions.relative import ContentBiases, DistanceSinusoids, TransformerXLRelative

        distances = cache(lambda: DistanceSinusoids(site.width, both_ways=not site.causal))
        leanings = cache(ContentBiases) if self.shared else ContentBiases
        return lambda heads, head_width: (
            TransformerXLRelative(
                site.width, heads, head_width, distances(), leanings(heads, head_width), dropout=site.dropout
            ),
        )


@SCORE_MODS.add
@POSITIONS.add
class RotaryConfig(ScoreModConfig):
    kind: Literal["rotary"] = "rotary"
    base: float = Field(10_000.0, gt=1)

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.score_mods import Rotary

        if head_width % 2:
            raise UserError(f"rotary: pairs of channels need an even head_width, not {head_width}")
        return Rotary(head_width, self.base)


@SCORE_MODS.add
class HardAttentionConfig(ScoreModConfig):
    """One key for each query: sampled in training, the heaviest in evaluation."""

    kind: Literal["hard"] = "hard"

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.hard import HardAttention

        return HardAttention()


@SCORE_MODS.add
class LocalAttentionConfig(ScoreModConfig):
    """Luong's windows of a source: around the target's own position, or around a predicted place."""

    kind: Literal["local"] = "local"
    mode: Literal["monotonic", "predictive"] = "monotonic"
    half_window: int = Field(10, ge=1)

    def build(self, site: BuildContext, head_width: int) -> nn.Module:
        from headwise.blocks.attention.hard import LocalAttention
        from headwise.blocks.attention.score_mods import Window

        if self.mode == "monotonic":
            return Window(self.half_window, self.half_window)
        return LocalAttention(site.heads, head_width, self.half_window)


@POSITIONS.add
class TreeConfig(PositionConfig):
    """Places in a dependency tree beside those in the sentence; for tokens that carry them (tokeniser `parsed`)."""

    kind: Literal["tree"] = "tree"
    absolute: bool = True  # depths, joined with places
    relative: bool = True  # relations of words, as Shaw's distances
    max_distance: int = Field(16, ge=1)

    def embed(self, table: nn.Embedding, width: int, **settings: Any) -> Embedding:
        from headwise.blocks.positions.absolute import NoPositions
        from headwise.blocks.positions.tree import Apart, Fusion, TreeEmbedding

        embedding = TreeEmbedding(table, NoPositions(), **settings)
        widen = settings.get("widen")
        width = widen.out_features if widen is not None else width  # places are added to what leaves the embedding
        embedding.absolute = Fusion(width) if self.absolute else Apart(width)
        return embedding

    def score_mods(self, site: BuildContext) -> ScoreMods:
        from headwise.blocks.positions.tree import TreeRelations

        if site.causal:
            raise UserError("positions: a tree is known when a sentence is whole; only encoders can have one")
        return lambda heads, head_width: (TreeRelations(head_width, self.max_distance),) if self.relative else ()
