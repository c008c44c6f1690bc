"""Configs of parts, and the context in which they build modules. The contract of the modules is in `stream.py`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

from torch import nn

from headwise.config.base import Config, describe_config
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.blocks.attention.score_mods import ScoreMod
    from headwise.blocks.feedforward import Activation

Shared = TypeVar("Shared")

# (heads, head_width) of an attention -> its score mods
ScoreModBuilder: TypeAlias = "Callable[[int, int], tuple[ScoreMod, ...]]"


def build_no_score_mods(heads: int, head_width: int) -> tuple[ScoreMod, ...]:
    return ()


@dataclass(frozen=True)
class BuildContext:
    """The build context of a part, its place in a model: the sizes that it must fit, and the model's defaults.

    It is named `build_ctx`, and belongs to the construction of a model; `ctx` (`stream.Context`) belongs to one forward
    call.
    """

    width: int  # of the token vectors
    heads: int
    hidden: int  # width of the feed-forward network
    head_width: int = 0  # 0: the width divided among the heads
    key_value_heads: int = 0  # 0: as many as query heads
    activation: Activation = "relu"
    causal: bool = False  # in a decoder, where no token may attend to a later one
    memory_width: int = 0  # 0: there is no memory to attend to
    dropout: float = 0.0
    attention_dropout: float = 0.0  # on the attention weights
    hidden_dropout: float = 0.0  # inside the feed-forward network
    attention_bias: bool = True
    mlp_bias: bool = True
    build_score_mods: ScoreModBuilder = build_no_score_mods  # of the stack's positions, for each self-attention
    shared: dict[Hashable, Any] = field(default_factory=dict, compare=False)  # modules that parts of a stack share

    def build_once(self, key: Hashable, build: Callable[[], Shared]) -> Shared:
        """A value that all parts of the stack share under `key`: built at the first call."""
        if key not in self.shared:
            self.shared[key] = build()
        return self.shared[key]

    def refuse_causal(self, kind: str) -> None:
        """Refuse a part that cannot be causal in a decoder."""
        if self.causal:
            raise UserError(f"{kind}: would see the future in a decoder; use it in an encoder, or 'attention' here")


class PartConfig(Config):
    """A part: `kind` and `build(build_ctx) -> module`."""

    kind: str
    fixed_length: ClassVar[bool] = False  # its weights run over `max_length` tokens: an image model sets that number
    with_feedforward: ClassVar[bool] = False  # a mixer that is a whole layer, without a feed-forward network behind it

    def fit_length(self, tokens: int) -> Self:
        """The config for inputs of this many tokens, such as the patches of an image."""
        fitted: Self = self.replace(max_length=tokens) if self.fixed_length else self
        return fitted

    def build(self, build_ctx: BuildContext) -> nn.Module:
        raise UserError(f"{self.kind}: {type(self).__name__} has no build method; write one that returns the part")

    def check_built(self, built: Any, *arguments: Any) -> Any:
        from headwise.blocks.interface import check_part_interface, check_part_outputs

        where, (build_ctx, *_) = describe_config(self), arguments
        part = check_part_interface(super().check_built(built), where)
        build_ctx.build_once(("outputs of", self), lambda: check_part_outputs(part, build_ctx, where))
        return part
