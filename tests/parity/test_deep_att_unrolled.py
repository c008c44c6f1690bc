"""Deep-Att against its equations, written out in float64 for one row and one step at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.blocks.mixers.recurrent import Lstm
from headwise.models.encoder_decoder import EncoderDecoder

SOURCE, TARGET = torch.tensor([7, 4, 9, 5, 2]), torch.tensor([1, 8, 6, 6, 11, 5])
WIDTH = 6
State = tuple[Tensor, Tensor]
ZEROS = torch.zeros(WIDTH, dtype=torch.float64)


def build_model(**settings: Any) -> EncoderDecoder:
    """A tiny model in float64 with weights large enough that every gate matters."""
    model = headwise.build("deep-att-tiny", vocab=12, outputs=13, **{"width": WIDTH, "embedding_width": 5, **settings})
    model = model.double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def step(lstm: Lstm, f: Tensor, state: State) -> State:
    """One step of a layer whose gates have the inputs f, i.e. the r block and the sum of the paper."""
    _, u, b, d = lstm.net.all_weights[0]
    h, c = state
    i, forget, g, o = (f + u @ h + b + d).chunk(4)
    c = forget.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def project(lstm: Lstm, x: Tensor) -> Tensor:
    """f = W x."""
    return lstm.net.all_weights[0][0] @ x


def read_column(layers: Any, xs: list[Tensor], backward: bool) -> tuple[list[Tensor], list[Tensor]]:
    """h and f of the highest layer; the direction changes from layer to layer."""
    hs: list[Tensor] = []
    fs = [project(layers[0], x) for x in xs]
    for number, lstm in enumerate(layers):
        if number:
            fs = [project(lstm, torch.cat((f[: 2 * WIDTH], h))) for f, h in zip(fs, hs, strict=True)]
        order = range(len(xs) - 1, -1, -1) if backward else range(len(xs))
        state, outputs = (ZEROS, ZEROS), {}
        for t in order:
            state = step(lstm, fs[t], state)
            outputs[t] = state[0]
        hs = [outputs[t] for t in range(len(xs))]
        backward = not backward
    return hs, fs


def encode(model: EncoderDecoder) -> list[Tensor]:
    """e_t = W_p [h; h'; f; f']."""
    part = model.encoder.stack.layers[0].parts[0]
    xs = list(model.encoder.embed.table.weight[SOURCE])
    ahead, back = part.columns
    (h1, f1), (h2, f2) = read_column(ahead.layers, xs, False), read_column(back.layers, xs, True)
    return [part.out.weight @ torch.cat(outputs) for outputs in zip(h1, h2, f1, f2, strict=True)]


def decode(model: EncoderDecoder) -> tuple[Tensor, Tensor]:
    """Logits (T, V) and attention weights (T, S)."""
    annotations, part, head = encode(model), model.decoder.stack.layers[0].parts[0], model.decoder.head
    layers = [*part.tower.recurrences, *part.upper]
    score = part.glimpse.score
    w, u, v = score.query[0], score.key[0], score.out[0]
    states: list[State] = [(ZEROS, ZEROS) for _ in layers]
    logits, alignments = [], []
    for y in model.decoder.embed.table.weight[TARGET]:
        weights = torch.stack([((states[0][0] @ w + e @ u).tanh() @ v)[0] for e in annotations]).softmax(0)
        c = sum((weight * e for weight, e in zip(weights, annotations, strict=True)), torch.zeros(()))
        f = project(layers[0], torch.cat((y, c)))
        states[0] = step(layers[0], f, states[0])
        for number in range(1, len(layers)):
            f = project(layers[number], torch.cat((f[: 2 * WIDTH], states[number - 1][0])))
            states[number] = step(layers[number], f, states[number])
        logits.append(head.table.weight @ states[-1][0] + head.bias)
        alignments.append(weights)
    return torch.stack(logits), torch.stack(alignments)


@pytest.mark.parametrize(("depth", "decoder_depth"), [(1, 1), (2, 1), (3, 2), (4, 3)])
@torch.no_grad()
def test_deep_att(depth: int, decoder_depth: int) -> None:
    """With the row among others, one of them longer, so that it has padding."""
    model = build_model(depth=depth, decoder_depth=decoder_depth)
    logits, alignments = decode(model)
    source = torch.zeros(2, len(SOURCE) + 2, dtype=torch.long)
    source[0], source[1, : len(SOURCE)] = 6, SOURCE
    with headwise.record() as maps:
        outputs = model(source, torch.stack((TARGET.flip(0), TARGET)))[1]
    assert (outputs - logits).abs().max() < 1e-9
    (weights,) = maps.select("decoder").values()
    assert (weights[1, 0, :, : len(SOURCE)] - alignments).abs().max() < 1e-9
