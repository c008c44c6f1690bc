"""Parts as values: what an experiment file may put into a stack. No torch here; `build` imports what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field

from headwise.config.base import Config, Table, slot
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from headwise.blocks.mixers.recurrent import Recurrence
    from headwise.blocks.scores import Score

PARTS = Table("part", default="attention")
SCORES = Table("score", default="scaled")
TERMS = Table("score term", default="window")
POSITIONS = Table("position", default="sinusoid")
NORMS = Table("norm", default="layer")
WIRINGS = Table("wiring", default="post")

if TYPE_CHECKING:  # to a type checker, what a slot holds
    AnyPart: TypeAlias = Any
    AnyScore: TypeAlias = Any
    AnyTerm: TypeAlias = Any
    AnyPosition: TypeAlias = Any
    AnyNorm: TypeAlias = Any
    AnyWiring: TypeAlias = Any
else:
    AnyPart, AnyTerm, AnyPosition = slot(PARTS), slot(TERMS), slot(POSITIONS)
    AnyScore, AnyNorm, AnyWiring = slot(SCORES), slot(NORMS), slot(WIRINGS)

Activation = Literal[
    "relu", "gelu", "gelu_tanh", "swish", "elu", "selu", "sigmoid", "softplus", "tanh", "identity",
    "glu", "geglu", "geglu_tanh", "reglu", "swiglu", "liglu",
]  # fmt: skip


Terms: TypeAlias = Callable[[int, int], tuple[Any, ...]]  # (heads, head_width) of an attention -> its terms


def no_terms(heads: int, head_width: int) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True)
class Site:
    """Where a part is put: what it must fit, and the model's defaults for what it leaves open."""

    width: int
    heads: int
    hidden: int
    activation: Activation = "relu"
    causal: bool = False
    memory_width: int = 0  # 0: there is no memory to attend to
    attention_dropout: float = 0.0
    attention_bias: bool = True
    mlp_bias: bool = True
    terms: Terms = no_terms  # of the stack's positions, for each self-attention


class PartConfig(Config):
    """A part: `kind` and `build(site) -> module`."""

    def build(self, site: Site) -> nn.Module:
        raise TypeError(f"{type(self).__name__} has no build method")


# ---- norms and wirings ----


@NORMS.add
class LayerNormConfig(Config):
    kind: Literal["layer"] = "layer"
    eps: float = 1e-5

    def build(self, width: int) -> nn.Module:
        from headwise.blocks.norm import LayerNorm

        return LayerNorm(width, self.eps)


@NORMS.add
class RMSNormConfig(Config):
    kind: Literal["rms"] = "rms"
    eps: float = 1e-6

    def build(self, width: int) -> nn.Module:
        from headwise.blocks.norm import RMSNorm

        return RMSNorm(width, self.eps)


@WIRINGS.add
class PostConfig(Config):
    """norm(x + f(x))"""

    kind: Literal["post"] = "post"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import Post

        return Post


@WIRINGS.add
class PreConfig(Config):
    """x + f(norm(x))"""

    kind: Literal["pre"] = "pre"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import Pre

        return Pre


@WIRINGS.add
class ChainConfig(Config):
    """f(x): no residual, no norm"""

    kind: Literal["chain"] = "chain"

    def build(self) -> type[nn.Module]:
        from headwise.blocks.residual import Chain

        return Chain


# ---- positions and score terms ----


class PositionConfig(Config):
    """Positions act on the embeddings, on the scores of every self-attention, or on neither."""

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.position import NoPosition

        return NoPosition()

    def terms(self, site: Site) -> Terms:
        """What makes the terms of each self-attention in a stack; called once for each."""
        return no_terms


@POSITIONS.add
class NoPositionConfig(PositionConfig):
    kind: Literal["none"] = "none"


@POSITIONS.add
class SinusoidConfig(PositionConfig):
    kind: Literal["sinusoid"] = "sinusoid"
    halves: bool = False

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.position import Sinusoid

        return Sinusoid(width, self.halves)


@POSITIONS.add
class LearnedConfig(PositionConfig):
    kind: Literal["learned"] = "learned"
    limit: int = Field(512, ge=1)

    def embedding(self, width: int) -> nn.Module:
        from headwise.blocks.position import Learned

        return Learned(width, self.limit)


class TermConfig(PositionConfig):
    """A score term: usable in one attention (`terms`) or, as positions, in all of a stack."""

    def build(self, site: Site, head_width: int) -> nn.Module:
        raise TypeError(f"{type(self).__name__} has no build method")

    def terms(self, site: Site) -> Terms:
        return lambda heads, head_width: (self.build(replace(site, heads=heads), head_width),)


@TERMS.add
class WindowConfig(TermConfig):
    kind: Literal["window"] = "window"
    left: int = Field(16, ge=0)
    right: int = Field(16, ge=0)

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.terms import Window

        return Window(self.left, self.right)


@TERMS.add
@POSITIONS.add
class AlibiConfig(TermConfig):
    kind: Literal["alibi"] = "alibi"

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.terms import Alibi

        return Alibi(site.heads)


@TERMS.add
@POSITIONS.add
class BucketsConfig(TermConfig):
    """T5's relative bias. As the positions of a stack, all its layers (of as many heads) share one table."""

    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=4)
    furthest: int = Field(128, ge=2)

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.terms import BucketBias

        return BucketBias(site.heads, self.buckets, self.furthest, both_ways=not site.causal)

    def terms(self, site: Site) -> Terms:
        shared = cache(lambda heads: (self.build(replace(site, heads=heads), 0),))
        return lambda heads, head_width: shared(heads)


@TERMS.add
@POSITIONS.add
class ShawConfig(TermConfig):
    kind: Literal["shaw"] = "shaw"
    furthest: int = Field(16, ge=1)

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.terms import Shaw

        return Shaw(head_width, self.furthest)


@TERMS.add
@POSITIONS.add
class RotaryConfig(TermConfig):
    kind: Literal["rotary"] = "rotary"
    base: float = Field(10_000.0, gt=1)

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.terms import Rotary

        if head_width % 2:
            raise UserError(f"rotary: pairs of channels need an even head_width, not {head_width}")
        return Rotary(head_width, self.base)


@TERMS.add
class HardConfig(TermConfig):
    """One key for each query: sampled in training, the heaviest in evaluation."""

    kind: Literal["hard"] = "hard"

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.hard import Hard

        return Hard()


@TERMS.add
class LocalConfig(TermConfig):
    """Luong's windows of a source: around the target's own position, or around a predicted place."""

    kind: Literal["local"] = "local"
    mode: Literal["monotonic", "predictive"] = "monotonic"
    reach: int = Field(10, ge=1)

    def build(self, site: Site, head_width: int) -> nn.Module:
        from headwise.blocks.hard import Local
        from headwise.blocks.terms import Window

        if self.mode == "monotonic":
            return Window(self.reach, self.reach)
        return Local(site.heads, head_width, self.reach)


# ---- alignment scores ----


class ScoreConfig(Config):
    """How a query and a key are compared: `build(width_q, width_k, heads) -> Score`, the widths those of one head."""

    kind: str

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        raise TypeError(f"{type(self).__name__} has no build method")

    def width(self, width_q: int, width_k: int) -> int:
        """The one width of both sides."""
        if width_q != width_k:
            raise UserError(
                f"score: '{self.kind}' needs queries and keys of one width, not {width_q} and {width_k}; use 'general'"
            )
        return width_q


@SCORES.add
class ScaledConfig(ScoreConfig):
    """q k / sqrt(D)"""

    kind: Literal["scaled"] = "scaled"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.scores import Scaled

        return Scaled(self.width(width_q, width_k))


@SCORES.add
class DotConfig(ScoreConfig):
    """q k"""

    kind: Literal["dot"] = "dot"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.scores import Dot

        self.width(width_q, width_k)
        return Dot()


@SCORES.add
class GeneralConfig(ScoreConfig):
    """q W k"""

    kind: Literal["general"] = "general"

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.scores import General

        return General(width_q, width_k, heads)


@SCORES.add
class AdditiveConfig(ScoreConfig):
    """v tanh(W q + U k), each head with `hidden` channels; 0: as many as a query has."""

    kind: Literal["additive"] = "additive"
    hidden: int = Field(0, ge=0)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.scores import Additive

        return Additive(width_q, width_k, heads, self.hidden or width_q)


@SCORES.add
class CosineConfig(ScoreConfig):
    """beta cos(q, k)"""

    kind: Literal["cosine"] = "cosine"
    beta: float = Field(1.0, gt=0)
    learned: bool = True

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.scores import Cosine

        self.width(width_q, width_k)
        return Cosine(heads, self.beta, self.learned)


@SCORES.add
class LocationConfig(ScoreConfig):
    """W q, one row for each place of a key; no key is looked at."""

    kind: Literal["location"] = "location"
    limit: int = Field(256, ge=1)

    def build(self, width_q: int, width_k: int, heads: int) -> Score:
        from headwise.blocks.scores import Location

        return Location(width_q, heads, self.limit)


# ---- parts ----


@PARTS.add
class AttentionConfig(PartConfig):
    """Softmax attention. 0 leaves a number to the model."""

    kind: Literal["attention"] = "attention"
    see: Literal["self", "memory"] = "self"
    heads: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    score: AnyScore = ScaledConfig()
    terms: tuple[AnyTerm, ...] = ()
    kernel: Literal["auto", "plain", "sdpa", "chunked"] = "auto"

    def build(self, site: Site) -> nn.Module:
        from headwise.blocks.attention import Attention, Itself, Memory
        from headwise.blocks.terms import Causal

        heads = self.heads or site.heads
        if not self.head_width and site.width % heads:
            raise UserError(f"heads: a width of {site.width} cannot be divided among {heads} heads; choose a divisor")
        head_width = self.head_width or site.width // heads
        chosen = tuple(term.build(replace(site, heads=heads), head_width) for term in self.terms)
        see: nn.Module
        if self.see == "memory":
            if not site.memory_width:
                raise UserError("see: there is no memory to attend to in this stack; use see = 'self'")
            see = Memory(site.width, heads, head_width, site.attention_bias, site.memory_width)
        else:
            see = Itself(site.width, heads, head_width, site.attention_bias)
            chosen += site.terms(heads, head_width) + ((Causal(),) if site.causal else ())
        return Attention(
            site.width,
            heads,
            see=see,
            head_width=head_width,
            score=self.score.build(head_width, head_width, heads),
            terms=chosen,
            kernel=self.kernel,
            dropout=site.attention_dropout,
            bias=site.attention_bias,
        )


@PARTS.add
class MlpConfig(PartConfig):
    """The feed-forward network: `hidden` channels, or `expand` times the width; 0 leaves it to the model."""

    kind: Literal["mlp"] = "mlp"
    expand: float = Field(0.0, ge=0)
    hidden: int = Field(0, ge=0)
    activation: Activation | Literal[""] = ""

    def build(self, site: Site) -> nn.Module:
        from headwise.blocks.feedforward import FeedForward

        hidden = self.hidden or round(self.expand * site.width) or site.hidden
        return FeedForward(site.width, hidden, self.activation or site.activation, site.mlp_bias)


# ---- recurrent ----


class RecurrentConfig(PartConfig):
    """A recurrent network with `hidden` channels in each direction; 0: as many as the site is wide."""

    hidden: int = Field(0, ge=0)
    bidirectional: bool = False
    begin: Literal["zeros", "memory"] = "zeros"  # memory: from the final states of another stack

    def build(self, site: Site) -> nn.Module:
        from headwise.blocks.mixers.recurrent import Recurrent

        if self.bidirectional and site.causal:
            raise UserError("bidirectional: this stack must not see the future; use bidirectional = false")
        if self.bidirectional and self.begin == "memory":
            raise UserError("begin: a bidirectional part reads a whole text from zeros; use begin = 'zeros'")
        hidden = self.hidden or site.width
        back = self.direction(site.width, hidden) if self.bidirectional else None
        return Recurrent(site.width, self.direction(site.width, hidden), back, self.begin)

    def direction(self, width: int, hidden: int) -> Recurrence:
        """The network of one direction."""
        raise TypeError(f"{type(self).__name__} has no direction method")


@PARTS.add
class RnnConfig(RecurrentConfig):
    """Elman's network."""

    kind: Literal["rnn"] = "rnn"
    activation: Literal["tanh", "relu"] = "tanh"

    def direction(self, width: int, hidden: int) -> Recurrence:
        from headwise.blocks.mixers.recurrent import Elman

        return Elman(width, hidden, self.activation)


@PARTS.add
class LstmConfig(RecurrentConfig):
    kind: Literal["lstm"] = "lstm"
    forget_bias: float = 1.0  # where the bias of the forget gate starts

    def direction(self, width: int, hidden: int) -> Recurrence:
        from headwise.blocks.mixers.recurrent import Lstm

        return Lstm(width, hidden, self.forget_bias)


@PARTS.add
class GruConfig(RecurrentConfig):
    """The GRU in torch's form."""

    kind: Literal["gru"] = "gru"

    def direction(self, width: int, hidden: int) -> Recurrence:
        from headwise.blocks.mixers.recurrent import Gru

        return Gru(width, hidden)


@PARTS.add
class ChoGruConfig(RecurrentConfig):
    """The GRU as it was published: the state is reset before it is multiplied."""

    kind: Literal["gru_cho"] = "gru_cho"

    def direction(self, width: int, hidden: int) -> Recurrence:
        from headwise.blocks.mixers.recurrent import ChoGru

        return ChoGru(width, hidden)
