"""RoPE scaling: inverse frequencies of a rotary position embedding for contexts longer than those of pretraining.

    linear     position interpolation: every frequency divided by `factor` (Chen et al. 2023)
    dynamic    NTK-aware: a larger base once a text is longer than `max_length`
    yarn       by parts: high frequencies kept, low ones interpolated, scores scaled (Peng et al. 2023)
    llama3     by parts, by wavelength (Grattafiori et al. 2024)
    longrope   one searched factor for each frequency, another set for long texts (Ding et al. 2024)

Each equals its entry in `ROPE_INIT_FUNCTIONS` of transformers. Letters: D rotated channels of a head, B rows.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headwise.config.base import Config
from headwise.errors import UserError


def inverse_frequencies(width: int, base: float) -> Tensor:
    """base^(-2i / D) for each pair i of channels: (D/2,) in float64."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


class RopeScalingConfig(Config):
    """RoPE scaling of one kind: inverse frequencies, and a factor on cosines and sines."""

    kind: str

    @property
    def limit(self) -> int:
        """The longest text of which `frequencies` are right; 0: any."""
        return 0

    @property
    def attention_factor(self) -> float:
        """What rotated queries and keys are multiplied by."""
        return 1.0

    def frequencies(self, width: int, base: float) -> Tensor:
        """The inverse frequencies (D/2,)."""
        return inverse_frequencies(width, base)

    def long_frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        """The inverse frequencies of texts of these lengths (..., 1), which are over the limit: (..., D/2)."""
        return self.frequencies(width, base).to(lengths.device)


class NoScalingConfig(RopeScalingConfig):
    """No RoPE scaling."""

    kind: Literal["none"] = "none"


class LinearScalingConfig(RopeScalingConfig):
    """Linear RoPE scaling, position interpolation (Chen et al. 2023): positions are divided by `factor`."""

    kind: Literal["linear"] = "linear"
    factor: float = Field(gt=0)

    def frequencies(self, width: int, base: float) -> Tensor:
        return inverse_frequencies(width, base) / self.factor


class DynamicScalingConfig(RopeScalingConfig):
    """Dynamic NTK-aware RoPE scaling: beyond `max_length` the base grows with the length of the text.

    A causal model with it is causal up to `max_length` alone: beyond it the rotation of every token depends on the
    length. Keys in a KV cache keep the rotation of the length at which they were cached, as in transformers.
    """

    kind: Literal["dynamic"] = "dynamic"
    factor: float = Field(ge=1)
    max_length: int = Field(gt=0)

    @property
    def limit(self) -> int:
        return self.max_length

    def long_frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        if width <= 2:
            return inverse_frequencies(width, base).to(lengths.device)  # one pair: its exponent is 0
        growth = self.factor * lengths.double() / self.max_length - (self.factor - 1)
        exponents = torch.arange(0, width, 2, dtype=torch.float64, device=lengths.device) / width
        return (base * growth ** (width / (width - 2))) ** -exponents


class YarnScalingConfig(RopeScalingConfig):
    """YaRN (Peng et al. 2023): frequencies that turn more than `beta_fast` times within `max_length` stay, those that
    turn less than `beta_slow` times are divided by `factor`, with a linear ramp in between; cosines and sines are
    multiplied by 0.1 ln(factor) + 1."""

    kind: Literal["yarn"] = "yarn"
    factor: float = Field(gt=0)
    max_length: int = Field(gt=0)  # of pretraining
    beta_fast: float = Field(32.0, gt=0)
    beta_slow: float = Field(1.0, gt=0)
    truncate: bool = True  # whether the ramp begins and ends at whole pairs of channels
    attention: float = Field(0.0, ge=0)  # the attention factor; 0: 0.1 ln(factor) + 1

    @property
    def attention_factor(self) -> float:
        return self.attention or (0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0)

    def frequencies(self, width: int, base: float) -> Tensor:
        if width % 2:
            raise UserError(
                f"rotary: the yarn scaling needs an even number of rotated channels, not {width}; change the fraction "
                "of the head that is rotated"
            )

        def pair_turning(turns: float) -> float:
            return width * math.log(self.max_length / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = pair_turning(self.beta_fast), pair_turning(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        high += 0.001 * (low == high)  # a ramp needs a length
        rates = inverse_frequencies(width, base)
        ramp = ((torch.arange(len(rates)) - low) / (high - low)).clamp(0, 1)
        return rates * (1 - ramp) + rates / self.factor * ramp


class Llama3ScalingConfig(RopeScalingConfig):
    """RoPE scaling of Llama 3.1: wavelengths over `max_length` / `low_factor` are multiplied by `factor`, those under
    `max_length` / `high_factor` stay, with a smooth transition in between."""

    kind: Literal["llama3"] = "llama3"
    factor: float = Field(8.0, gt=0)
    low_factor: float = Field(1.0, gt=0)
    high_factor: float = Field(4.0, gt=0)
    max_length: int = Field(8192, gt=0)  # of pretraining

    def frequencies(self, width: int, base: float) -> Tensor:
        rates = inverse_frequencies(width, base)
        if self.high_factor == self.low_factor:
            raise UserError("rotary: high_factor of the llama3 scaling must differ from low_factor")
        turns = self.max_length * rates / (2 * math.pi)
        smooth = (turns - self.low_factor) / (self.high_factor - self.low_factor)
        between = rates * ((1 - smooth) / self.factor + smooth)
        scaled = torch.where(turns < self.low_factor, rates / self.factor, between)
        return torch.where(turns > self.high_factor, rates, scaled)


class LongRopeScalingConfig(RopeScalingConfig):
    """LongRoPE (Ding et al. 2024): frequencies are divided by `short_factors`, in texts longer than `max_length` by
    `long_factors`, one for each pair of channels. Beyond `max_length` a causal model is not causal (see `dynamic`)."""

    kind: Literal["longrope"] = "longrope"
    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    max_length: int = Field(gt=0)  # of pretraining
    factor: float = Field(1.0, gt=0)  # how much longer texts may be
    attention: float = Field(0.0, ge=0)  # the attention factor; 0: sqrt(1 + ln(factor) / ln(max_length))

    @property
    def limit(self) -> int:
        return self.max_length

    @property
    def attention_factor(self) -> float:
        longer = self.factor > 1 and self.max_length > 1
        return self.attention or (math.sqrt(1 + math.log(self.factor) / math.log(self.max_length)) if longer else 1.0)

    def frequencies(self, width: int, base: float) -> Tensor:
        return self._divide(width, base, "short_factors")

    def long_frequencies(self, width: int, base: float, lengths: Tensor) -> Tensor:
        return self._divide(width, base, "long_factors").to(lengths.device)

    def _divide(self, width: int, base: float, name: str) -> Tensor:
        rates, factors = inverse_frequencies(width, base), torch.tensor(getattr(self, name), dtype=torch.float64)
        if len(factors) != len(rates):
            raise UserError(
                f"rotary: {name} of the longrope scaling are {len(factors)}, one for each of {len(rates)} pairs of "
                "channels is needed"
            )
        return rates / factors
