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
class Depth:
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
    """What one seed gives: gradient norms of the layers by stack, the encoder's output change, and its scales."""

    gradients: dict[str, Floats]
    change: float
    scales: Floats


@dataclass(frozen=True, eq=False)
class Growth:
    """What one wiring's output change is at each depth, and how well two laws fit its mean over the seeds."""

    changes: Floats  # (depths, seeds)
    fits: Mapping[str, float]  # R² of a + b N and of a + b log N
    exponent: float  # of the power law through the same points

    @property
    def mean(self) -> Floats:
        return self.changes.mean(1)

    @property
    def better(self) -> str:
        return max(self.fits, key=self.fits.__getitem__)


@dataclass(frozen=True, eq=False)
class Findings:
    """By wiring: gradient norms of the layers by stack and depth, growth of the output change; and Admin's scales."""

    gradients: dict[tuple[str, str, int], Floats]  # (wiring, stack, depth) -> (layers,)
    growth: dict[str, Growth]
    scales: Floats  # (residual sums of the deepest encoder,)


def made(task: str, wiring: str, depth: int, width: int) -> Any:
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
    model: EncoderDecoder = made("transduce", wiring, depth, width)
    source, target, labels = torch.randint(4, VOCAB, (3, ROWS, LENGTH))

    def loss() -> Tensor:
        return model(source, target, labels=labels).total / labels.numel()

    profile(model, loss)
    loss().backward()
    return {"encoder": by_layer(model.encoder.stack), "decoder": by_layer(model.decoder.stack)}


def by_layer(stack: Stack) -> Floats:
    """Norms over the parts alone: what every wiring has."""
    parts = [layer.get_submodule("parts") for layer in stack.layers]
    gradients = [[weight.grad for weight in part.parameters() if weight.grad is not None] for part in parts]
    return torch.stack([nn.utils.get_total_norm(each) for each in gradients]).double().numpy()


def output_change(wiring: str, depth: int, width: int) -> tuple[float, Floats]:
    """How far an encoder's output moves, squared and relative to the square of output and noise; and Admin's scales."""
    model: TokenClassifier = made("tag", wiring, depth, width)
    ids = torch.randint(4, VOCAB, (ROWS, LENGTH))
    profile(model, lambda: model(ids))
    stack, stream = model.encoder.stack, model.encoder.embed(ids)
    with torch.no_grad():
        before = stack(stream, Context()).x
        moved = [torch.func.functional_call(stack, noisy(stack), (stream, Context())).x for _ in range(DRAWS)]
    change = torch.stack([(x - before).square().mean() for x in moved]).mean() / before.square().mean()
    return float(change) / NOISE**2, scales(stack)


def noisy(module: nn.Module) -> dict[str, Tensor]:
    """Its matrices with noise in proportion to the size of their entries."""
    return {
        name: weight + NOISE * weight.square().mean().sqrt() * torch.randn_like(weight)
        for name, weight in module.named_parameters()
        if weight.ndim == 2
    }


def scales(stack: Stack) -> Floats:
    """The mean of each ω down a stack; nothing where there are none."""
    found = [
        float(scale.detach().mean()) for layer in stack.layers if isinstance(layer, Admin) for scale in layer.scales
    ]
    return np.array(found)


def grown(depths: tuple[int, ...], changes: Floats) -> Growth:
    """Fit a + b N, a + b log N and c N^k to the mean of changes (depths, seeds)."""
    layers, mean = np.array(depths, dtype=np.float64), changes.mean(1)
    fits = {}
    for name, form in FORMS.items():
        x = form(layers)
        left = mean - np.polyval(np.polyfit(x, mean, 1), x)
        fits[name] = float(1 - np.square(left).sum() / np.square(mean - mean.mean()).sum())
    return Growth(changes, fits, float(np.polyfit(np.log(layers), np.log(mean), 1)[0]))


def sample(wiring: str, depth: int, width: int, seed: int) -> Sample:
    """The same weights and tokens for all wirings of a seed."""
    torch.manual_seed(seed)
    gradients = gradient_norms(wiring, depth, width)
    return Sample(gradients, *output_change(wiring, depth, width))


def measure(given: Depth) -> Findings:
    """All wirings at all depths; torch's own random numbers are left as they were."""
    with torch.random.fork_rng(devices=[]):
        samples = {
            (wiring, depth): [sample(wiring, depth, given.width, seed) for seed in range(given.seeds)]
            for wiring in WIRINGS
            for depth in given.depths
        }
    gradients = {
        (wiring, stack, depth): np.mean([one.gradients[stack] for one in each], axis=0)
        for (wiring, depth), each in samples.items()
        for stack in ("encoder", "decoder")
    }
    growth = {
        wiring: grown(
            given.depths, np.array([[one.change for one in samples[wiring, depth]] for depth in given.depths])
        )
        for wiring in WIRINGS
    }
    scales = np.mean([one.scales for one in samples["admin", given.depths[-1]]], axis=0)
    return Findings(gradients, growth, scales)


def to_json(given: Depth, found: Findings) -> dict[str, Any]:
    """Everything the story tells, as plain data."""
    return {
        "depths": list(given.depths),
        "width": given.width,
        "seeds": given.seeds,
        "gradients": [
            {"wiring": wiring, "stack": stack, "depth": depth, "norms": norms.tolist()}
            for (wiring, stack, depth), norms in found.gradients.items()
        ],
        "amplification": [
            {"wiring": wiring, "changes": each.changes.tolist(), "fits": dict(each.fits), "exponent": each.exponent}
            for wiring, each in found.growth.items()
        ],
        "scales": found.scales.tolist(),
    }
