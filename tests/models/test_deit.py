"""DeiT: published sizes, class and distillation token with a head each."""

import pytest
import torch

import headwise
from headwise.models.deit import SIZES, DeiTConfig


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("ti-distilled", 5_910_800),
        ("s-distilled", 22_436_432),
        ("b-distilled", 87_338_192),
        ("b-distilled-384", 87_630_032),
        ("ti", 5_717_416),
        ("s", 22_050_664),
        ("b", 86_567_656),
        ("b-384", 86_859_496),
    ],
)
def test_parameters_are_those_of_the_paper(size: str, count: int) -> None:
    model = headwise.build(f"deit-{size}", device="meta")
    assert sum(weight.numel() for weight in model.parameters()) == count


def test_predictions_average_both_heads() -> None:
    torch.manual_seed(0)
    model = DeiTConfig(**SIZES["tiny"]).build(0, 5).eval()
    pixels = torch.randn(2, 1, 16, 16)
    first, second = model.head_logits(pixels)
    torch.testing.assert_close(model(pixels), (first + second) / 2)
    assert not torch.allclose(first, second)


def test_a_class_token_without_a_head_is_still_attended_to() -> None:
    torch.manual_seed(0)
    model = DeiTConfig(**SIZES["tiny"], class_heads=1).build(0, 5).eval()
    pixels = torch.randn(1, 1, 16, 16)
    (before,) = model.head_logits(pixels)
    model.encoder.stem.class_tokens.data[1] = torch.randn(32)
    assert not torch.allclose(model(pixels), before)
