"""Shared workspace: its equations, top-k competition, and slots across layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import headwise
from headwise import UserError
from headwise.blocks.mixers.workspace import Workspace
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream


def build_mixer(**settings: Any) -> Workspace:
    torch.manual_seed(0)
    return Workspace(8, heads=2, slots=3, **settings).double().eval()


def make_tokens(length: int = 6) -> torch.Tensor:
    return torch.randn(2, length, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def project_heads(mixer: Workspace, x: torch.Tensor) -> list[torch.Tensor]:
    """Queries, keys and values of each head, 3 x (H, T, D)."""
    return [x.unflatten(-1, (2, 4)).transpose(0, 1) for x in mixer.qkv.project(x).chunk(3, dim=-1)]


@torch.no_grad()
def test_two_layers_are_the_equations_written_out() -> None:
    mixer, x = build_mixer(), make_tokens()
    ctx = Context()
    first = mixer(Stream.of(x), ctx.at("encoder").at(0))
    second = mixer(Stream.of(first), ctx.at("encoder").at(1))
    slots, rows = torch.eye(3, 8, dtype=torch.float64), x[0]
    for output in (first[0], second[0]):
        q, k, v = project_heads(mixer, rows)
        asks = project_heads(mixer, slots)[0]
        written = mixer.out(((asks @ k.mT / 2).softmax(-1) @ v).transpose(0, 1).flatten(1))
        heard = (mixer.stress * rows).relu().mean(0)
        gates = heard @ mixer.heed.weight.T + mixer.heed.bias + slots.tanh() @ mixer.hold.weight.T
        slots = gates[:, :8].sigmoid() * written.tanh() + (gates[:, 8:] + 1).sigmoid() * slots
        _, keys, values = project_heads(mixer, slots)
        rows = mixer.out(((q @ keys.mT / 2).softmax(-1) @ values).transpose(0, 1).flatten(1))
        torch.testing.assert_close(output, rows)


@torch.no_grad()
def test_top_k_of_all_tokens_is_soft_competition() -> None:
    x = make_tokens()
    soft = build_mixer()(x)
    torch.testing.assert_close(build_mixer(top_k=6)(x), soft)
    torch.testing.assert_close(build_mixer(top_k=99, renormalise=True)(x), soft)
    assert not torch.allclose(build_mixer(top_k=2)(x), soft)


@torch.no_grad()
def test_top_k_weights_are_renormalised_on_request() -> None:
    sums = {}
    for renormalise in (False, True):
        with headwise.record() as maps:
            build_mixer(top_k=2, renormalise=renormalise)(make_tokens())
        (weights,) = maps.select().values()
        sums[renormalise] = weights[0].sum(-1)
        assert ((weights[0] > 0).sum(-1) <= 2 * 3).all()  # two tokens for each of three slots
    assert (sums[False] < 0.99).all()
    torch.testing.assert_close(sums[True], torch.ones_like(sums[True]))


@torch.no_grad()
def test_padding_never_writes() -> None:
    mixer, x = build_mixer(top_k=4), make_tokens()
    loud = torch.cat((x, 50 * torch.ones(2, 3, 8, dtype=torch.float64)), dim=1)
    keep = torch.tensor([[True] * 6 + [False] * 3] * 2)
    torch.testing.assert_close(mixer(Stream.of(loud, keep))[:, :6], mixer(x))
    few = Stream.of(loud, torch.tensor([[True] * 2 + [False] * 7] * 2))  # fewer tokens than winners
    torch.testing.assert_close(mixer(few)[:, :2], mixer(x[:, :2]))


@torch.no_grad()
def test_it_is_permutation_equivariant() -> None:
    for mixer in (build_mixer(), build_mixer(top_k=2)):
        order = torch.tensor([3, 1, 5, 0, 4, 2])
        torch.testing.assert_close(mixer(make_tokens()[:, order]), mixer(make_tokens())[:, order])


@torch.no_grad()
def test_the_cost_is_linear_in_the_length() -> None:
    counts = []
    for length in (256, 512, 1024):
        with FlopCounterMode(display=False) as counter:
            build_mixer(top_k=5)(make_tokens(length))
        counts.append(counter.get_total_flops())
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


@torch.no_grad()
def test_slots_are_shared_by_the_layers_of_one_call() -> None:
    model = headwise.build("workspace-tiny", vocab=12, outputs=9, task="tag", dropout=0.0, depth=3).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    first = model(ids)
    model(torch.tensor([[9, 10, 11]]))
    assert torch.equal(model(ids), first)
    ctx = Context()
    model.encoder(ids, ctx)
    assert len(ctx.shared) == 1  # one workspace, whatever the depth
    deeper = headwise.build("workspace-tiny", vocab=12, outputs=9, task="tag", depth=9)
    assert count_parameters(deeper) == count_parameters(model)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="workspace: would see the future in a decoder"):
        headwise.build("gpt2-tiny", vocab=12, mixer="workspace")
    with pytest.raises(UserError, match="slots: 40 slots need a width of at least as many, not 32; use fewer"):
        headwise.build("workspace-tiny", vocab=12, mixer={"slots": 40})
