"""Contrastive losses: equations written out, chance, gradients of keys, masking; target networks."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.contrast import BilinearContrast, MaskedContrast, Views
from headwise.blocks.target_network import TargetNetwork
from headwise.models.curl import MCurlConfig

WIDTH = 6


def make_views(windows: tuple[int, int] = (3, 4), rows: int = 8) -> Views:
    torch.manual_seed(0)
    keep = torch.ones(windows, dtype=torch.bool)
    keep[-1, -1] = False
    return Views(
        torch.randn(rows, WIDTH, requires_grad=True), torch.randint(256, (rows, 3, 8, 8)),
        torch.randint(1, 256, (*windows, 3, 8, 8)), keep, lambda frames: frames.float() / 255,
    )  # fmt: skip


def make_masked(depth: int = 1, **settings: Any) -> MaskedContrast:
    config = MCurlConfig(
        features=WIDTH, width=WIDTH, hidden=12, depth=depth, windows=3, window=4, observation=(3, 8, 8), **settings
    )
    contrast = config.build_contrast(WIDTH)
    assert isinstance(contrast, MaskedContrast)
    return contrast


def make_encoder() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, WIDTH))


def test_curl_is_the_equation() -> None:
    """-log exp(q_i W k_i) / Σ_j exp(q_i W k_j), the mean over rows."""
    views, contrast, encoder = make_views(), BilinearContrast(WIDTH), make_encoder()
    keys = encoder(views.frames.float() / 255)
    scores = torch.stack([torch.stack([q @ contrast.weight @ k for k in keys]) for q in views.features])
    wanted = -torch.stack([(scores[i, i].exp() / scores[i].exp().sum()).log() for i in range(8)]).mean()
    torch.testing.assert_close(contrast(views, encoder, encoder), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [2, 32])
def test_the_loss_at_chance_is_the_logarithm_of_the_batch(rows: int) -> None:
    contrast = BilinearContrast(WIDTH)
    nn.init.zeros_(contrast.weight)
    loss = contrast(make_views(rows=rows), make_encoder(), make_encoder())
    assert loss.item() == pytest.approx(log(rows), rel=1e-6)


def test_m_curl_at_chance_is_the_logarithm_of_all_frames() -> None:
    views, contrast = make_views(), make_masked()
    loss = contrast(views, make_encoder(), lambda frames: torch.zeros(len(frames), WIDTH))
    assert loss.item() == pytest.approx(log(11), rel=1e-6)  # 12 frames, of which one is padding


def test_m_curl_is_the_equation() -> None:
    """One layer of the released code: post-norm attention of one head and a network of twice the width, with sinusoids;
    the output projection, which it does not have, is the identity."""
    views, contrast, encoder = make_views(), make_masked(), make_encoder()
    keep = torch.ones_like(views.keep)
    layer = contrast.stack.layers[0]
    attention, network = layer.parts
    with torch.no_grad():
        attention.out.weight.copy_(torch.eye(WIDTH))
        attention.out.bias.zero_()
    weights = dict(attention.named_parameters())
    features = torch.randn(3, 4, WIDTH)
    table = torch.zeros(4, WIDTH)
    for position in range(4):
        for i in range(0, WIDTH, 2):
            angle = torch.tensor(position / 10000 ** (i / WIDTH))
            table[position, i], table[position, i + 1] = angle.sin(), angle.cos()
    x = features + table
    q, k, v = F.linear(x, weights["qkv.project.weight"], weights["qkv.project.bias"]).chunk(3, -1)
    x = layer.norms[0](x + (q @ k.mT / WIDTH**0.5).softmax(-1) @ v)
    x = layer.norms[1](x + network.outer(network.inner(x).relu()))
    torch.testing.assert_close(contrast.contextualise(features, keep), x, rtol=1e-4, atol=1e-5)
    torch.manual_seed(3)
    loss = contrast(views, encoder, encoder)
    torch.manual_seed(3)
    frames, masked = contrast.mask(views.windows, views.keep)
    queries = contrast.contextualise(encoder(frames.flatten(0, 1) / 255).unflatten(0, (3, 4)), views.keep)
    keys = encoder(views.windows.flatten(0, 1) / 255)[views.keep.flatten()]
    numbers = iter(range(12))
    losses = []
    for window, row in enumerate(views.keep.tolist()):
        for place, kept in enumerate(row):
            number = next(numbers) if kept else -1
            if masked[window, place]:
                scores = keys @ queries[window, place]
                losses.append(scores.logsumexp(0) - scores[number])
    torch.testing.assert_close(loss, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def test_a_quarter_of_the_frames_is_masked_and_most_of_them_blank() -> None:
    contrast, frames = make_masked(), torch.arange(1, 4001).reshape(200, 20, 1, 1, 1)
    changed, masked = contrast.mask(frames, torch.ones(200, 20, dtype=torch.bool))
    blank, same = (changed == 0).flatten(1), (changed == frames).flatten(1)
    other = ~blank & ~same
    assert bool(same[~masked].all()) and abs(float(masked.float().mean()) - 0.25) < 0.03
    shares = [float(part[masked].float().mean()) for part in (blank, other, same)]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.05)
    keep = torch.zeros(3, 4, dtype=torch.bool)
    keep[:, 0] = True
    assert all(
        contrast.mask(torch.ones(3, 4, 1, 1, 1), keep)[1].sum() >= 1 for _ in range(20)
    )  # so that there is a loss


def test_nothing_reaches_the_encoder_of_keys() -> None:
    encoder, views = make_encoder(), make_views()
    target = TargetNetwork(encoder)
    for contrast in (BilinearContrast(WIDTH), make_masked()):
        encoder.zero_grad()
        keys: list[Tensor] = []

        def encode_keys(frames: Tensor, keys: list[Tensor] = keys) -> Tensor:
            keys.append(target(encoder, frames))
            return keys[-1]

        contrast(views, encoder, encode_keys).backward()
        assert not keys[0].requires_grad and not list(target.parameters())
        reached = encoder[1].weight.grad
        assert (reached is None) == isinstance(contrast, BilinearContrast)  # whose queries are features


def test_a_target_network_is_a_moving_average() -> None:
    network = make_encoder()
    target, first = TargetNetwork(network), network[1].weight.detach().clone()
    frames = torch.rand(2, 3, 8, 8)
    assert torch.equal(target(network, frames), network(frames))
    with torch.no_grad():
        network[1].weight.add_(1.0)
    target.follow(network, 0.25)
    torch.testing.assert_close(dict(target.named_buffers())["1_weight"], first + 0.25)
    target.follow(network, 1.0)
    assert torch.equal(target(network, frames), network(frames))
