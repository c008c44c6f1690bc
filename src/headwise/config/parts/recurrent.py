"""Recurrent parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.site import PARTS, BuildContext, PartConfig
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from headwise.blocks.mixers.recurrent import Recurrence


class RecurrentConfig(PartConfig):
    """A recurrent network with `hidden` channels in each direction; 0: as many as the site is wide."""

    hidden: int = Field(0, ge=0)
    bidirectional: bool = False
    initial_state: Literal["zeros", "memory"] = "zeros"  # memory: from the final states of another stack

    def build(self, site: BuildContext) -> nn.Module:
        from headwise.blocks.mixers.recurrent import Recurrent

        if self.bidirectional and site.causal:
            raise UserError("bidirectional: this stack must not see the future; use bidirectional = false")
        if self.bidirectional and self.initial_state == "memory":
            raise UserError("begin: a bidirectional part reads a whole text from zeros; use begin = 'zeros'")
        hidden = self.hidden or site.width
        back = self.direction(site.width, hidden) if self.bidirectional else None
        return Recurrent(site.width, self.direction(site.width, hidden), back, self.initial_state)

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
