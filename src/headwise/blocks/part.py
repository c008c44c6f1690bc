"""What every part has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

from torch import Tensor, nn

from headwise.blocks.activations import Activation
from headwise.blocks.step import LayerStep
from headwise.blocks.stream import Context, Stream
from headwise.config.base import Config
from headwise.errors import UserError


@dataclass(frozen=True)
class Properties:
    """What a part promises. `headwise.testing.check_part` checks each claim, and that each denial is true.

    causal             an output never depends on later inputs
    steppable          fed one by one through a cache it gives the same outputs as fed at once
    length_free        takes any length
    batch_independent  a row's outputs do not depend on the other rows
    padding            padding on the right changes no real output
    packing            documents packed into one row (`Stream.segment`) do not depend on one another
    exact              the same inputs give the same outputs in evaluation mode
    joins              rows of different lengths may share a decoding state: what grows along the tokens is stored with
                       `cache.extend` and masked by `cache.extend_keep`, the rest has a fixed size for each row
    ragged             joins, and a row with padding on the right leaves the state that it leaves without it
    unbounded          its state has a fixed size and forgets: it reads on where a text outgrows those of training
    """

    causal: bool = False
    steppable: bool = False
    length_free: bool = True
    batch_independent: bool = True
    padding: bool = True
    packing: bool = False
    exact: bool = True
    joins: bool = False
    ragged: bool = False
    unbounded: bool = False


class Part(nn.Module, LayerStep, ABC):
    """`part(stream, ctx) -> x` of the same length; outputs after the first `ctx.outputs_needed` may be left out. Used
    alone it takes a plain tensor, too."""

    by_token: ClassVar[bool] = False  # whether a token's output depends on that token alone

    @property
    def properties(self) -> Properties:
        return Properties()

    def forward(self, stream: Stream | Tensor, ctx: Context | None = None) -> Tensor:
        if isinstance(stream, Tensor):
            stream = Stream.of(stream)
        ctx = ctx if ctx is not None else Context()
        return ctx.record.edit_output(ctx.path, self.transform(stream, ctx))

    @abstractmethod
    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        """The part's own work: (B, T, C) -> (B, T, C)."""


Made = TypeVar("Made")


ScoreMods: TypeAlias = Callable[[int, int], tuple[Any, ...]]  # (heads, head_width) of an attention -> its score mods


def no_score_mods(heads: int, head_width: int) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True)
class BuildContext:
    """Where a part is put: what it must fit, and the model's defaults for what it leaves open."""

    width: int
    heads: int
    hidden: int
    head_width: int = 0  # 0: the width divided among the heads
    key_value_heads: int = 0  # 0: as many as of queries
    activation: Activation = "relu"
    causal: bool = False
    memory_width: int = 0  # 0: there is no memory to attend to
    dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    attention_bias: bool = True
    mlp_bias: bool = True
    score_mods: ScoreMods = no_score_mods  # of the stack's positions, for each self-attention
    shared: dict[Any, Any] = field(default_factory=dict, compare=False)  # what parts of one stack have in common

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What all parts of the stack share under a key, made for the first that asks."""
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def must_look_ahead(self, kind: str) -> None:
        """Refuse a part that mixes all places at once where the future must stay hidden."""
        if self.causal:
            raise UserError(f"{kind}: would see the future in a decoder; use it in an encoder, or 'attention' here")


class PartConfig(Config):
    """A part: `kind` and `build(site) -> module`."""

    kind: str

    def build(self, site: BuildContext) -> nn.Module:
        raise TypeError(f"{type(self).__name__} has no build method")
