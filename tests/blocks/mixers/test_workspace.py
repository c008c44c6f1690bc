"""Writing to slots and reading from them: the equations, the competition, and what stays from layer to layer."""

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


def part(**settings: Any) -> Workspace:
    torch.manual_seed(0)
    return Workspace(8, heads=2, slots=3, **settings).double().eval()


def tokens(length: int = 6) -> torch.Tensor:
    return torch.randn(2, length, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def projected(mixer: Workspace, x: torch.Tensor) -> list[torch.Tensor]:
    """Queries, keys and values of each head, 3 x (H, T, D)."""
    return [each.unflatten(-1, (2, 4)).transpose(0, 1) for each in mixer.qkv.project(x).chunk(3, dim=-1)]


@torch.no_grad()
def test_two_layers_are_the_equations_written_out() -> None:
    mixer, x = part(), tokens()
    ctx = Context()
    first = mixer(Stream.of(x), ctx.at("encoder").at(0))
    second = mixer(Stream.of(first), ctx.at("encoder").at(1))
    slots, rows = torch.eye(3, 8, dtype=torch.float64), x[0]
    for found in (first[0], second[0]):
        q, k, v = projected(mixer, rows)
        asks = projected(mixer, slots)[0]
        written = mixer.out(((asks @ k.mT / 2).softmax(-1) @ v).transpose(0, 1).flatten(1))
        heard = (mixer.stress * rows).relu().mean(0)
        gates = heard @ mixer.heed.weight.T + mixer.heed.bias + slots.tanh() @ mixer.hold.weight.T
        slots = gates[:, :8].sigmoid() * written.tanh() + (gates[:, 8:] + 1).sigmoid() * slots
        _, keys, values = projected(mixer, slots)
        rows = mixer.out(((q @ keys.mT / 2).softmax(-1) @ values).transpose(0, 1).flatten(1))
        torch.testing.assert_close(found, rows)


@torch.no_grad()
def test_where_all_may_win_hard_is_soft() -> None:
    x = tokens()
    soft = part()(x)
    torch.testing.assert_close(part(top_k=6)(x), soft)
    torch.testing.assert_close(part(top_k=99, renormalise=True)(x), soft)
    assert not torch.allclose(part(top_k=2)(x), soft)


@torch.no_grad()
def test_the_weights_of_winners_stay_or_are_made_to_sum_to_one() -> None:
    sums = {}
    for renormalise in (False, True):
        with headwise.record() as maps:
            part(top_k=2, renormalise=renormalise)(tokens())
        (found,) = maps.select().values()
        sums[renormalise] = found[0].sum(-1)
        assert ((found[0] > 0).sum(-1) <= 2 * 3).all()  # two winners for each of three slots
    assert (sums[False] < 0.99).all()
    torch.testing.assert_close(sums[True], torch.ones_like(sums[True]))


@torch.no_grad()
def test_padding_never_wins() -> None:
    mixer, x = part(top_k=4), tokens()
    loud = torch.cat((x, 50 * torch.ones(2, 3, 8, dtype=torch.float64)), dim=1)
    keep = torch.tensor([[True] * 6 + [False] * 3] * 2)
    torch.testing.assert_close(mixer(Stream.of(loud, keep))[:, :6], mixer(x))
    few = Stream.of(loud, torch.tensor([[True] * 2 + [False] * 7] * 2))  # fewer tokens than winners
    torch.testing.assert_close(mixer(few)[:, :2], mixer(x[:, :2]))


@torch.no_grad()
def test_tokens_in_another_order_give_the_outputs_in_that_order() -> None:
    for mixer in (part(), part(top_k=2)):
        order = torch.tensor([3, 1, 5, 0, 4, 2])
        torch.testing.assert_close(mixer(tokens()[:, order]), mixer(tokens())[:, order])


@torch.no_grad()
def test_the_cost_is_linear_in_the_length() -> None:
    counts = []
    for length in (256, 512, 1024):
        with FlopCounterMode(display=False) as counter:
            part(top_k=5)(tokens(length))
        counts.append(counter.get_total_flops())
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


@torch.no_grad()
def test_slots_live_for_one_call_and_all_its_layers() -> None:
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


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="workspace: would see the future in a decoder"):
        headwise.build("gpt2-tiny", vocab=12, mixer="workspace")
    with pytest.raises(UserError, match="slots: 40 cannot be told apart at a width of 32; use fewer"):
        headwise.build("workspace-tiny", vocab=12, mixer={"slots": 40})
