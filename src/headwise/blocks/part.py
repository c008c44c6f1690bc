"""What every part has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from headwise.blocks.stream import Context, Stream


@dataclass(frozen=True)
class Properties:
    """What a part promises. The conformance suite checks each claim, and that each denial is true.

    causal             an output never depends on later inputs
    steppable          fed one by one through a cache it gives the same outputs as fed at once
    length_free        takes any length
    batch_independent  a row's outputs do not depend on the other rows
    padding            padding on the right changes no real output
    exact              the same inputs give the same outputs in evaluation mode
    """

    causal: bool = False
    steppable: bool = False
    length_free: bool = True
    batch_independent: bool = True
    padding: bool = True
    exact: bool = True


class Part(nn.Module, ABC):
    """`part(stream, ctx) -> x` of the same length; outputs after the first `ctx.asked` may be left out. Used alone it
    takes a plain tensor, too."""

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
