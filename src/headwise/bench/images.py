"""Engines that classify the same random images, or train on them, with one shape of ViT or Swin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.bench.jobs import ImageJob
from headwise.decode.int8 import quantize
from headwise.errors import UserError
from headwise.models.build import build
from headwise.train.hardware import tune_allocator

LABELS = 1000


def build_ours(job: ImageJob) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    tune_allocator()  # as every command of ours does; the peers run as they come
    model = build(job.model, outputs=LABELS, image=job.image, channels=3)
    return model, model


def build_int8(job: ImageJob) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """Ours with dynamic 8-bit quantisation, for inference only."""
    if job.train:
        raise UserError("8-bit weights cannot be trained")
    model = quantize(build_ours(job)[0].eval().requires_grad_(False))
    return model, model


def build_transformers(job: ImageJob) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The same shape by `transformers`, without dropout and stochastic depth, as ours."""
    from transformers import SwinConfig, SwinForImageClassification, ViTConfig, ViTForImageClassification

    from headwise.catalog import find

    entry, size = find(job.model)
    config = entry.configure(size)
    shape: dict[str, Any] = {"image_size": job.image, "patch_size": config.patch, "num_labels": LABELS}
    model: Any
    if entry.name == "vit":
        shape |= {
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
        }
        model = ViTForImageClassification(ViTConfig(**shape))
    else:
        shape |= {
            "embed_dim": config.width,
            "depths": list(config.depths),
            "num_heads": list(config.heads),
            "window_size": config.window,
            "drop_path_rate": 0.0,
        }
        model = SwinForImageClassification(SwinConfig(**shape))
    return model, lambda pixels: model(pixel_values=pixels).logits


ENGINES: dict[str, Callable[[ImageJob], tuple[nn.Module, Callable[[Tensor], Tensor]]]] = {
    "headwise": build_ours,
    "headwise-int8": build_int8,
    "transformers": build_transformers,
}


def build_benchmark(job: ImageJob) -> Callable[[], int]:
    """The function to time."""
    torch.manual_seed(1)
    model, label = ENGINES[job.engine](job)
    pixels = torch.randn(job.rows, 3, job.image, job.image)
    return (build_training_run if job.train else build_inference_run)(model, label, pixels)


def build_inference_run(model: nn.Module, label: Callable[[Tensor], Tensor], pixels: Tensor) -> Callable[[], int]:
    model.eval().requires_grad_(False)

    @torch.inference_mode()
    def run() -> int:
        label(pixels)
        return len(pixels)

    return run


def build_training_run(model: nn.Module, label: Callable[[Tensor], Tensor], pixels: Tensor) -> Callable[[], int]:
    """Forward, backward and a step of fused AdamW."""
    labels = torch.arange(len(pixels)) % LABELS
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)

    def run() -> int:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(label(pixels), labels).backward()
        optimizer.step()
        return len(pixels)

    return run
