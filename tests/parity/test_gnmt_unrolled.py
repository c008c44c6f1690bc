"""GNMT against its equations, written out in float64 with the cells of torch, for one row and one step at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise.blocks.mixers.recurrent import Lstm
from headwise.models.encoder_decoder import EncoderDecoder

SOURCE, TARGET = torch.tensor([7, 4, 9, 5, 2]), torch.tensor([1, 8, 6, 6, 11, 5])
WIDTH = 6
EXPERTS = {"count": 3, "top_k": 2, "hidden": 7, "drop": False}
State = tuple[Tensor, Tensor]


def build_model(**settings: Any) -> EncoderDecoder:
    """A tiny model in float64 with weights large enough that every gate matters."""
    model = headwise.build("gnmt-tiny", vocab=12, outputs=13, **{"width": WIDTH, "embedding_width": 5, **settings})
    model = model.double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def copy_cell(recurrence: Lstm) -> nn.LSTMCell:
    """torch's LSTM cell with the weights of a recurrence."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = recurrence.net.all_weights[0]
    cell = nn.LSTMCell(weights[0].shape[1], recurrence.hidden, dtype=torch.float64)
    cell.load_state_dict(dict(zip(names, weights, strict=True)))
    return cell


def run(recurrence: Lstm, inputs: list[Tensor]) -> tuple[list[Tensor], State]:
    """Outputs from a state of zeros, and the last state."""
    zeros = torch.zeros(WIDTH, dtype=torch.float64)
    cell, state, outputs = copy_cell(recurrence), (zeros, zeros), []
    for x in inputs:
        state = cell(x, state)
        outputs.append(state[0])
    return outputs, state


def mix_experts(part: Any, x: Tensor) -> Tensor:
    """sum_j g_j E_j(x) over the two experts with the largest logits, with the softmax over those two as gates."""
    logits = part.router.weight @ x
    chosen = sorted(range(3), key=lambda number: -float(logits[number]))[:2]
    gates = logits[chosen].softmax(0)
    y = torch.zeros_like(x)
    for gate, number in zip(gates, chosen, strict=True):
        w, v = part.inner.weight[number], part.outer.weight[number]
        b, d = part.inner.bias.chunk(3)[number], part.outer.bias.chunk(3)[number]
        y = y + gate * (v @ (w @ x + b).relu() + d)
    return y


def encode(model: EncoderDecoder, experts: bool) -> tuple[list[Tensor], list[State]]:
    """Annotations of the source, and the final states of all layers, of the lowest that of the backward direction."""
    xs = list(model.encoder.embed.table.weight[SOURCE])
    lowest, *others = [layer.parts[0] for layer in model.encoder.stack.layers]
    ahead, _ = run(lowest.ahead, xs)
    back, first_word = run(lowest.back, xs[::-1])
    xs, finals = [torch.cat(pair) for pair in zip(ahead, back[::-1], strict=True)], [first_word]
    for number, part in enumerate(others):
        if experts and number == len(others) - 2:
            xs = [x + mix_experts(part, x) for x in xs]
            continue
        ms, final = run(part.ahead, xs)
        xs = ms if number == 0 else [m + x for m, x in zip(ms, xs, strict=True)]
        finals.append(final)
    return xs, finals


def attend(score: Any, query: Tensor, annotations: list[Tensor]) -> Tensor:
    """The weights of the annotations: a feed-forward network with one hidden layer, and a softmax."""
    w, u, v = score.query[0], score.key[0], score.out[0]
    return torch.stack([((query @ w + h @ u).tanh() @ v)[0] for h in annotations]).softmax(0)


def decode(model: EncoderDecoder, experts: bool, from_zeros: bool) -> tuple[Tensor, Tensor]:
    """Logits (T, V) and attention weights (T, S)."""
    annotations, states = encode(model, experts)
    if from_zeros:
        states = [(torch.zeros_like(h), torch.zeros_like(c)) for h, c in states]
    part = model.decoder.stack.layers[0].parts[0]
    cells = [copy_cell(recurrence) for recurrence in (*part.tower.recurrences, *part.upper)]
    head, logits, alignments = model.decoder.head, [], []
    for y in model.decoder.embed.table.weight[TARGET]:
        weights = attend(part.glimpse.score, states[0][0], annotations)
        a = sum((weight * h for weight, h in zip(weights, annotations, strict=True)), torch.zeros(()))
        x = y
        for number, cell in enumerate(cells):
            if experts and number == len(cells) - 1:
                x = x + mix_experts(part.experts, x)
            states[number] = cell(torch.cat((x, a)), states[number])
            x = states[number][0] + (x if number >= 2 else 0)
        logits.append(head.table.weight @ x + head.bias)
        alignments.append(weights)
    return torch.stack(logits), torch.stack(alignments)


@pytest.mark.parametrize("initial_state", ["zeros", "memory"])
@pytest.mark.parametrize(
    "settings",
    [{"depth": 2}, {"depth": 5}, {"depth": 4, "decoder_depth": 3}, {"depth": 3, "decoder_depth": 2, "experts": EXPERTS},
     {"depth": 5, "experts": EXPERTS}],
)  # fmt: skip
@torch.no_grad()
def test_gnmt(settings: dict[str, Any], initial_state: str) -> None:
    """With the row among others, one of them longer, so that it has padding."""
    model = build_model(initial_state=initial_state, **settings)
    logits, alignments = decode(model, "experts" in settings, initial_state == "zeros")
    source = torch.zeros(2, len(SOURCE) + 2, dtype=torch.long)
    source[0], source[1, : len(SOURCE)] = 6, SOURCE
    with headwise.record() as maps:
        outputs = model(source, torch.stack((TARGET.flip(0), TARGET)))[1]
    assert (outputs - logits).abs().max() < 1e-9
    (weights,) = maps.select("decoder").values()
    assert (weights[1, 0, :, : len(SOURCE)] - alignments).abs().max() < 1e-9
