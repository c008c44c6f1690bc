"""The recurrent captioners against their equations, written out in float64 for one image and one word at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.blocks.record import collect
from headwise.blocks.stream import Context
from headwise.models.encoder_decoder import EncoderDecoder

WORDS = torch.tensor([1, 8, 6, 6, 11, 5])


def made(kind: str, **settings: Any) -> tuple[EncoderDecoder, Tensor, Tensor]:
    """A tiny captioner in float64 with weights large enough that every gate matters, images, and the annotations."""
    torch.manual_seed(3)
    model = headwise.build(f"{kind}-tiny", outputs=13, width=6, embedding_width=5, **settings).double().eval()
    for name, parameter in model.named_parameters():
        if not name.startswith("encoder.st"):
            torch.nn.init.normal_(parameter, std=0.5)
    images = torch.randn(2, 1, 16, 16, dtype=torch.double)
    with torch.no_grad():
        annotations = model.encoder(images, Context()).x
    return model, images, annotations


def lstm_step(net: Any, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    w, u, b, d = net.all_weights[0]
    i, f, g, o = (w @ x + b + u @ h + d).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def unroll_attention(model: EncoderDecoder, annotations: Tensor, hard: bool) -> tuple[Tensor, Tensor]:
    """Logits (T, V) and attention weights (T, L) of one image with annotations (L, D)."""
    part, head = model.decoder.stack.layers[0].parts[0], model.decoder.head
    score, bridge = part.glimpse.score, model.encoder.bridge
    h, c = (bridge.weight @ annotations.mean(0) + bridge.bias).tanh().chunk(2)
    logits, weights = [], []
    for word in WORDS:
        e = [
            float((h @ score.query[0] + annotation @ score.key[0]).tanh() @ score.out[0, :, 0])
            for annotation in annotations
        ]
        a = torch.tensor(e, dtype=torch.double).softmax(0)
        weights.append(a)
        seen = annotations[a.argmax()] if hard else (a[:, None] * annotations).sum(0)
        z = torch.sigmoid(part.gate.weight[0] @ h + part.gate.bias[0]) * seen
        y = model.decoder.embed.table.weight[word]
        h, c = lstm_step(part.tower.recurrences[0].net, torch.cat((y, z)), h, c)
        output = y + part.from_state.weight @ h + part.from_image.weight @ z
        logits.append(head.table.weight @ output + head.bias)
    return torch.stack(logits), torch.stack(weights)


@pytest.mark.parametrize("hard", [False, True])
@torch.no_grad()
def test_show_attend_tell(hard: bool) -> None:
    model, images, annotations = made("show-attend-tell", score_mods=["hard"] if hard else [])
    found = model(images, torch.stack((WORDS.flip(0), WORDS)))[1]
    expected = unroll_attention(model, annotations[1], hard)[0]
    assert (found - expected).abs().max() < 1e-9


@torch.no_grad()
def test_show_and_tell() -> None:
    model, images, annotations = made("show-and-tell")
    part, head, bridge = model.decoder.stack.layers[0].parts[0], model.decoder.head, model.encoder.bridge
    zeros = torch.zeros(6, dtype=torch.double)
    h, c = lstm_step(part.recurrence.net, bridge.weight @ annotations[1].mean(0) + bridge.bias, zeros, zeros)
    expected = []
    for word in WORDS:
        h, c = lstm_step(part.recurrence.net, model.decoder.embed.table.weight[word], h, c)
        expected.append(head.table.weight @ h + head.bias)
    found = model(images, torch.stack((WORDS.flip(0), WORDS)))[1]
    assert (found - torch.stack(expected)).abs().max() < 1e-9


@torch.no_grad()
def test_the_regulariser_is_doubly_stochastic() -> None:
    """lambda * sum_i (1 - sum_t a_ti)^2 of each image, without the steps of the padding."""
    model, images, _ = made("show-attend-tell", doubly_stochastic=0.7, dropout=0.0)
    words = torch.stack((WORDS, WORDS))
    words[0, 4:] = 0
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    with collect("aux") as side:
        annotations = model.encoder(images, Context()).x
        model(images, words)
    (found,) = side.list_values("aux")
    expected = sum(
        (1 - unroll_attention(model, rows, False)[1][:length].sum(0)).square().sum()
        for rows, length in zip(annotations, (4, 6), strict=True)
    )
    assert float(found) == pytest.approx(0.7 * float(expected) / 10, rel=1e-9)
    model.eval()
    with collect("aux") as side:
        model(images, words)
    assert not side.list_values("aux")
