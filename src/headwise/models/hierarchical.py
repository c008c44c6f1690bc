"""What networks in stages have in common: each stage reads a coarser grid than the one before, and the mean of the last
is what heads judge by."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from headwise.blocks.batchnorm import ConvNorm
from headwise.blocks.convolution import Residual
from headwise.blocks.pool import Pool
from headwise.models.image_base import ImageModelConfig
from headwise.models.image_classifier import ImageClassifier, ImageHead


class HierarchicalConfig(ImageModelConfig):
    """A pyramid: `encoder` makes its stages."""

    pool: ClassVar[str] = "mean"

    def build_heads(self, outputs: int) -> list[nn.Module]:
        """The heads."""
        return [ImageHead(Pool(self.pool), nn.Linear(self.outer, outputs))]

    def init_weights(self, model: nn.Module) -> None:
        """Convolutions N(0, 2 / fan-out) (He et al. 2015), and the last gain of each residual branch 0, so that every
        layer begins as the identity (Goyal et al. 2017)."""
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Residual):
                last = module.body[-1]
                if isinstance(last, ConvNorm) and isinstance(last.norm, nn.BatchNorm2d):  # a frozen gain would stay 0
                    nn.init.zeros_(last.norm.weight)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        model = ImageClassifier(self.encoder(), self.build_heads(outputs or 1000))
        self.init_weights(model)
        return model
