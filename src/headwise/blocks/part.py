"""Configs of parts, and the build context in which they make their modules. The modules' contract is in `stream.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from torch import nn

from headwise.config.base import Config
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.blocks.feedforward import Activation

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
