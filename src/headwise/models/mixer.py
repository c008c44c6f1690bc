"""MLP-Mixer (Tolstikhin et al. 2021): pre-norm layers of two networks, one along the patches and one along the
channels; no attention, no positions, no class token; a final norm and the mean of all patches.

Texts are mixed in the same way by `model.mixer = "tokens"` in any encoder. Reference: timm's mixer_*.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.images import ImageStem
from headwise.blocks.mixers.token_mixing import TokensConfig
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.stems import FixedPatches
from headwise.blocks.tables import AnyPart, AnyPosition
from headwise.models.entry import Check, Entry
from headwise.models.transformer_base import Parts
from headwise.models.vit import PatchModelConfig


class MixerConfig(PatchModelConfig):
    kind: Literal["mixer"] = "mixer"
    class_tokens: int = Field(0, ge=0)
    mixer: AnyPart = TokensConfig()
    positions: AnyPosition = NoPositionsConfig()

    def layer(self, memory: bool) -> Parts:
        mixer, *others = super().layer(memory)
        if isinstance(mixer, TokensConfig):  # the image says how many there are
            rows, columns = self.grid(self.patch)
            mixer = mixer.changed(max_length=self.class_tokens + rows * columns)
        return mixer, *others

    def stem(self) -> nn.Module:
        stem = super().stem()
        if isinstance(self.mixer, TokensConfig) and isinstance(stem, ImageStem):
            stem.patches = FixedPatches(self.channels, self.width, self.patch, self.grid(self.patch))
        return stem

    def init_weights(self, model: nn.Module) -> None:
        """Matrices N(0, 1 / fan-in), biases zero, as in the released code."""
        super().init_weights(model)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5)


SIZES: dict[str, dict[str, Any]] = {
    "b16": {},
    "s32": {"width": 512, "depth": 8, "patch": 32},
    "s16": {"width": 512, "depth": 8},
    "b32": {"patch": 32},
    "l32": {"width": 1024, "depth": 24, "patch": 32},
    "l16": {"width": 1024, "depth": 24},
    "h14": {"width": 1280, "depth": 32, "patch": 14},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="mixer",
    paper="Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision",
    year=2021,
    family="vision",
    config=MixerConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={
        "s32": "19M",
        "s16": "18M",
        "b32": "60M",
        "b16": "59M",
        "l32": "206M",
        "l16": "207M",
        "h14": "431M",
    },
    checks=(
        Check(
            "the equation of token mixing",
            "tests/blocks/mixers/test_token_mixing.py::test_it_is_a_network_along_the_tokens_that_all_channels_share",
        ),
        Check("timm mixer_* (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
