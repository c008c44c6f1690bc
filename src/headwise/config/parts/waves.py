"""Places of an image as waves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from headwise.config.parts.score_mods import PositionConfig
from headwise.config.parts.site import POSITIONS
from headwise.errors import UserError

if TYPE_CHECKING:
    from torch import nn


@POSITIONS.add
class FourierPositionsConfig(PositionConfig):
    """Coordinates of a pixel and `bands` sines and cosines of each, up to half the image's side: nothing is learned."""

    kind: Literal["waves"] = "waves"
    bands: int = Field(64, ge=1)

    @property
    def width(self) -> int:
        return 2 * (2 * self.bands + 1)

    def embedding(self, width: int) -> nn.Module:
        raise UserError("positions: 'waves' are of images; texts have learned, sinusoid, rotary and others")

    def on_grid(self, width: int, grid: tuple[int, int], class_tokens: int) -> nn.Module:
        from headwise.blocks.latent_images import FourierPlaces

        if width != self.width or class_tokens:
            raise UserError(
                f"positions: {self.bands} bands are {self.width} channels of each place, to stand beside its pixel; "
                "they cannot be added to patches and class_tokens; use grid"
            )
        return FourierPlaces(grid, self.bands)
