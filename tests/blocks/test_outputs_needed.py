"""`outputs_needed`: outputs of the last layer that are not read are not computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise import build, record
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.record import collect

SMALL = {"width": 16, "heads": 4, "depth": 2, "dropout": 0.0}
PIXELS = torch.randn(3, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
IDS = torch.tensor([[5, 6, 7, 8, 9, 2], [5, 9, 2, 0, 0, 0]])  # the second is padded; a mark is read before each


def build_classifier(name: str, **settings: Any) -> nn.Module:
    torch.manual_seed(1)
    model = build(name, outputs=7, vocab=20, task="" if "vit" in name else "classify", **SMALL, **settings)
    return model.double()


def compute_outputs(model: nn.Module, given: Tensor) -> list[Tensor]:
    """Logits and the gradients of all weights."""
    model.zero_grad()
    torch.manual_seed(2)  # hashes and routers draw
    logits = model(given)
    logits.square().sum().backward()
    return [logits.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


def count_tokens(model: nn.Module, given: Tensor) -> list[int]:
    """How many tokens of a row each feed-forward network reads."""
    counts: list[int] = []
    hooks = [
        part.inner.register_forward_pre_hook(lambda _, inputs: counts.append(inputs[0].shape[1]))
        for part in model.modules()
        if isinstance(part, FeedForward)
    ]
    model(given)
    for hook in hooks:
        hook.remove()
    return counts


@pytest.mark.parametrize("class_tokens", [1, 2])
@pytest.mark.parametrize("wiring", ["pre", "post", "respost", "sandwich", "parallel", "admin"])
def test_only_class_tokens_go_through_the_last_feed_forward(class_tokens: int, wiring: str) -> None:
    model = build_classifier("vit-tiny", class_tokens=class_tokens, wiring=wiring)
    assert count_tokens(model, PIXELS) == [
        16 + class_tokens,
        16 + class_tokens if wiring == "admin" else class_tokens,
    ]


@pytest.mark.parametrize(("pool", "counts"), [("first", [7, 1]), ("mean", [7, 7])])
def test_texts_that_are_classified_by_their_first_token(pool: str, counts: list[int]) -> None:
    assert count_tokens(build_classifier("bert-tiny", pool=pool), IDS) == counts


@pytest.mark.parametrize(
    "settings",
    [
        {"class_tokens": 2},
        {"wiring": "post"},
        {"wiring": "reversible"},
        {"mixer": {"kind": "performer", "features": 8}},
        {"mixer": {"kind": "lsh", "chunk": 4, "rounds": 2}},
        {"mixer": "fourier"},
        {"mixer": "workspace"},
        {"feedforward": {"kind": "experts", "count": 2}},
        {"key_value_heads": 2},
        {"positions": "rotary"},
        {"positions": "shaw"},
        {"positions": "alibi"},
    ],
    ids=str,
)
def test_outputs_and_gradients_stay_the_same(settings: dict[str, Any]) -> None:
    model = build_classifier("vit-tiny", **settings)
    short = compute_outputs(model, PIXELS)
    with collect("layer") as side:  # who wants whole layers gets them
        whole = compute_outputs(model, PIXELS)
    assert [stream.x.shape[1] for stream in side.list_values("layer")] == [16 + settings.get("class_tokens", 1)] * 2
    for one, other in zip(short, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"wiring": "pre"}, {"positions": "t5"}, {"positions": "rotary"}], ids=str)
def test_outputs_of_padded_texts_stay_the_same(settings: dict[str, Any]) -> None:
    model = build_classifier("bert-tiny", pool="first", **settings)
    short = compute_outputs(model, IDS)
    with collect("layer"):
        whole = compute_outputs(model, IDS)
    for one, other in zip(short, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_attention_maps_are_recorded_of_all_queries() -> None:
    model = build_classifier("vit-tiny").eval()
    with record() as maps:
        model(PIXELS)
    assert maps.stack_by_kind()["encoder"].shape == (2, 4, 17, 17)
