"""Why deep Post-LN Transformers are hard to train: the two measurements of Liu et al. 2020.

Gradients: at the start of training, the norm of the gradient of each layer's parameters in an encoder-decoder.
Amplification: how far an encoder's output moves when small random noise is added to the weights of all its layers. In
theory its square is the sum over the parts of the square of their share in the stream: of N equal shares in Post-LN,
O(N); of shares 1, 1/2, 1/3, ... in Pre-LN, where the stream grows and is not divided, O(log N).

Random tokens, no dropout, weights as the models have them before training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.blocks.admin import Admin, profile
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context
from headwise.errors import UserError
from headwise.models.build import build
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.text_classifier import TokenClassifier

WIRINGS = {"post": "Post-LN", "pre": "Pre-LN", "admin": "Admin"}
HEADS, VOCAB, ROWS, LENGTH = 4, 100, 8, 16
NOISE, DRAWS = 1e-3, 2  # relative to each matrix: so small that the outputs change in proportion
FORMS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {"N": lambda n: n, "log N": np.log}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DepthSettings:
    """The depths to compare, the width of the models, and how many are averaged."""

    depths: tuple[int, ...] = (2, 4, 8, 16, 32)
    width: int = 64
    seeds: int = 3

    def __post_init__(self) -> None:
        if not 3 <= len(self.depths) <= 10 or any(one >= two for one, two in pairwise(self.depths)):
            raise UserError("--depths: give three to ten numbers of layers, each larger than the one before")
        if self.depths[0] < 2 or self.depths[-1] > 128:
            raise UserError("--depths: must be between 2 and 128 layers")
        if not 8 <= self.width <= 512 or self.width % HEADS:
            raise UserError(f"--width {self.width}: must be a multiple of {HEADS} between 8 and 512")
        if not 1 <= self.seeds <= 20:
            raise UserError(f"--seeds {self.seeds}: must be between 1 and 20")


@dataclass(frozen=True, eq=False)
class Sample:
    """The measurements of one seed: gradient norms by stack and layer, the encoder's output change, Admin's scales."""

    gradients: dict[str, Floats]
    change: float
    scales: Floats


@dataclass(frozen=True, eq=False)
class Growth:
    """The output change of one wiring at each depth, and the fit of two laws to its mean over seeds."""

    changes: Floats  # (depths, seeds)
    fits: Mapping[str, float]  # R² of a + b N and of a + b log N
    exponent: float  # of the power law through the same points

    @property
    def mean(self) -> Floats:
        return self.changes.mean(1)

    @property
    def better_fit(self) -> str:
        return max(self.fits, key=self.fits.__getitem__)


@dataclass(frozen=True, eq=False)
class DepthMeasurements:
    """Gradient norms by wiring, stack and depth; growth of the output change by wiring; Admin's scales."""

    gradients: dict[tuple[str, str, int], Floats]  # (wiring, stack, depth) -> (layers,)
    growth: dict[str, Growth]
    scales: Floats  # (residual sums of the deepest encoder,)


def build_model(task: str, wiring: str, depth: int, width: int) -> Any:
    """An untrained model without dropout."""
    stack = {"depth": depth}
    return build(
        "transformer-tiny",
        vocab=VOCAB,
        task=task,
        width=width,
        heads=HEADS,
        dropout=0.0,
        wiring=wiring,
        encoder=stack,
        decoder=stack,
    )


def gradient_norms(wiring: str, depth: int, width: int) -> dict[str, Floats]:
    """The norm of the gradient of each layer's parts, from the input on, in the encoder and in the decoder."""
    model: EncoderDecoder = build_model("transduce", wiring, depth, width)
    source, target, labels = torch.randint(4, VOCAB, (3, ROWS, LENGTH))

    def loss() -> Tensor:
        return model(source, target, labels=labels).total / labels.numel()

    profile(model, loss)
    loss().backward()
    return {"encoder": layer_gradient_norms(model.encoder.stack), "decoder": layer_gradient_norms(model.decoder.stack)}


def layer_gradient_norms(stack: Stack) -> Floats:
    """Gradient norms of each layer's parts, which every wiring has; norms and scales are excluded."""
    parts = [layer.get_submodule("parts") for layer in stack.layers]
    gradients = [[weight.grad for weight in part.parameters() if weight.grad is not None] for part in parts]
    return torch.stack([nn.utils.get_total_norm(each) for each in gradients]).double().numpy()


def output_change(wiring: str, depth: int, width: int) -> tuple[float, Floats]:
    """The squared change of an encoder's output relative to output² and noise², and Admin's scales."""
    model: TokenClassifier = build_model("tag", wiring, depth, width)
    ids = torch.randint(4, VOCAB, (ROWS, LENGTH))
    profile(model, lambda: model(ids))
    stack, stream = model.encoder.stack, model.encoder.embed(ids)
    with torch.no_grad():
        output = stack(stream, Context()).x
        outputs = [torch.func.functional_call(stack, add_noise(stack), (stream, Context())).x for _ in range(DRAWS)]
    change = torch.stack([(x - output).square().mean() for x in outputs]).mean() / output.square().mean()
    return float(change) / NOISE**2, get_admin_scales(stack)


def add_noise(module: nn.Module) -> dict[str, Tensor]:
    """The module's matrices with noise proportional to their RMS."""
    return {
        name: weight + NOISE * weight.square().mean().sqrt() * torch.randn_like(weight)
        for name, weight in module.named_parameters()
        if weight.ndim == 2
    }


def get_admin_scales(stack: Stack) -> Floats:
    """The mean of each ω of a stack; empty if it has none."""
    means = [
        float(scale.detach().mean()) for layer in stack.layers if isinstance(layer, Admin) for scale in layer.scales
    ]
    return np.array(means)


def fit_growth(depths: tuple[int, ...], changes: Floats) -> Growth:
    """Fit a + b N, a + b log N and c N^k to the mean of changes (depths, seeds)."""
    layers, mean = np.array(depths, dtype=np.float64), changes.mean(1)
    fits = {}
    for name, form in FORMS.items():
        x = form(layers)
        residuals = mean - np.polyval(np.polyfit(x, mean, 1), x)
        fits[name] = float(1 - np.square(residuals).sum() / np.square(mean - mean.mean()).sum())
    return Growth(changes, fits, float(np.polyfit(np.log(layers), np.log(mean), 1)[0]))


def measure_seed(wiring: str, depth: int, width: int, seed: int) -> Sample:
    """Measure one seed; all wirings of a seed get the same weights and tokens."""
    torch.manual_seed(seed)
    gradients = gradient_norms(wiring, depth, width)
    return Sample(gradients, *output_change(wiring, depth, width))


def measure(settings: DepthSettings) -> DepthMeasurements:
    """Measure all wirings at all depths; the state of torch's random generator is restored."""
    with torch.random.fork_rng(devices=[]):
        samples = {
            (wiring, depth): [measure_seed(wiring, depth, settings.width, seed) for seed in range(settings.seeds)]
            for wiring in WIRINGS
            for depth in settings.depths
        }
    gradients = {
        (wiring, stack, depth): np.mean([one.gradients[stack] for one in each], axis=0)
        for (wiring, depth), each in samples.items()
        for stack in ("encoder", "decoder")
    }
    growth = {
        wiring: fit_growth(
            settings.depths, np.array([[one.change for one in samples[wiring, depth]] for depth in settings.depths])
        )
        for wiring in WIRINGS
    }
    scales = np.mean([one.scales for one in samples["admin", settings.depths[-1]]], axis=0)
    return DepthMeasurements(gradients, growth, scales)


def to_json(settings: DepthSettings, measured: DepthMeasurements) -> dict[str, Any]:
    """All values of the story, as plain data."""
    return {
        "depths": list(settings.depths),
        "width": settings.width,
        "seeds": settings.seeds,
        "gradients": [
            {"wiring": wiring, "stack": stack, "depth": depth, "norms": norms.tolist()}
            for (wiring, stack, depth), norms in measured.gradients.items()
        ],
        "amplification": [
            {
                "wiring": wiring,
                "changes": growth.changes.tolist(),
                "fits": dict(growth.fits),
                "exponent": growth.exponent,
            }
            for wiring, growth in measured.growth.items()
        ],
        "scales": measured.scales.tolist(),
    }
