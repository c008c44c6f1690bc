"""The recurrent encoder-decoders against their equations, written out in float64 for one row and one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise.blocks.mixers.recurrent import ChoGru, Gru, Lstm, Recurrence
from headwise.models.encoder_decoder import EncoderDecoder

SOURCE, TARGET = torch.tensor([7, 4, 9, 5, 2]), torch.tensor([1, 8, 6, 6, 11, 5])
State = tuple[Tensor, ...]


def made(kind: str, **settings: Any) -> EncoderDecoder:
    """A tiny model in float64 with weights large enough that every gate matters."""
    model = headwise.build(f"{kind}-tiny", vocab=12, outputs=13, **{"width": 6, "embedding_width": 5, **settings})
    model = model.double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def agree(model: EncoderDecoder, expected: list[Tensor]) -> None:
    """With the row among others, one of them longer, so that it has padding."""
    source = torch.zeros(2, len(SOURCE) + 2, dtype=torch.long)
    source[0], source[1, : len(SOURCE)] = 6, SOURCE
    with torch.no_grad():
        found = model(source, torch.stack((TARGET.flip(0), TARGET)))[1]
    assert (found - torch.stack(expected)).abs().max() < 1e-9


def step(cell: Recurrence, x: Tensor, state: State) -> State:
    """One step of one recurrence, as the papers write it."""
    h = state[0]
    if isinstance(cell, Lstm):
        w, u, b, d = cell.net.all_weights[0]
        i, f, g, o = (w @ x + b + u @ h + d).chunk(4)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if isinstance(cell, Gru):
        w, u, b, d = (each.chunk(3) for each in cell.net.all_weights[0])
        r, z = ((w[k] @ x + b[k] + u[k] @ h + d[k]).sigmoid() for k in (0, 1))
        new = (w[2] @ x + b[2] + r * (u[2] @ h + d[2])).tanh()
    else:
        assert isinstance(cell, ChoGru)
        w, u, b = (each.chunk(3) for each in (cell.weight_ih, cell.weight_hh, cell.bias))
        r, z = ((w[k] @ x + u[k] @ h + b[k]).sigmoid() for k in (0, 1))
        new = (w[2] @ x + u[2] @ (r * h) + b[2]).tanh()
    return (z * h + (1 - z) * new,)


def zeros(cell: Recurrence) -> State:
    return tuple(torch.zeros(cell.hidden, dtype=torch.float64) for _ in range(cell.state_width // cell.hidden))


def run(cell: Recurrence, inputs: list[Tensor]) -> tuple[list[Tensor], State]:
    """Outputs from a state of zeros, and the last state."""
    state, outputs = zeros(cell), []
    for x in inputs:
        state = step(cell, x, state)
        outputs.append(state[0])
    return outputs, state


def climb(cells: Any, x: Tensor, states: list[State]) -> Tensor:
    """One step of all layers, whose states are replaced; the top's output."""
    for number, cell in enumerate(cells):
        states[number] = step(cell, x, states[number])
        x = states[number][0]
    return x


def embedded(model: EncoderDecoder) -> tuple[list[Tensor], list[Tensor]]:
    return list(model.encoder.embed.table.weight[SOURCE]), list(model.decoder.embed.table.weight[TARGET])


def logits(model: EncoderDecoder, x: Tensor) -> Tensor:
    head = model.decoder.head
    return head.table.weight @ x + head.bias


def parts(side: Any) -> list[Any]:
    return [layer.parts[0] for layer in side.stack.layers]


def read(model: EncoderDecoder) -> tuple[list[Tensor], list[State]]:
    """A stacked encoder of one direction: top outputs in the order of the source, and each layer's last state."""
    xs, finals = embedded(model)[0], []
    xs = xs[::-1] if model.encoder.reverse else xs
    for part in parts(model.encoder):
        xs, final = run(part.ahead, xs)
        finals.append(final)
    return xs[::-1] if model.encoder.reverse else xs, finals


def mixed(scores: list[Tensor], values: list[Tensor], allowed: Callable[[int], float] = lambda s: 1.0) -> Tensor:
    """sum_s softmax(scores)_s values_s over the places that are allowed, each weight times its allowance."""
    seen = [s for s in range(len(scores)) if allowed(s) > 0]
    total = sum(exp(scores[s]) for s in seen)
    return sum((exp(scores[s]) / total * allowed(s) * values[s] for s in seen), torch.zeros_like(values[0]))


def maxout(module: Any, x: Tensor) -> Tensor:
    pre = module.inner.weight @ x + module.inner.bias
    return torch.stack([max(pre[2 * i], pre[2 * i + 1]) for i in range(len(pre) // 2)])


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru_cho"])
@pytest.mark.parametrize("reverse", [True, False])
@torch.no_grad()
def test_sutskever(cell: str, reverse: bool) -> None:
    model = made("sutskever", cell=cell, reverse=reverse)
    states, cells = read(model)[1], [part.ahead for part in parts(model.decoder)]
    agree(model, [logits(model, climb(cells, y, states)) for y in embedded(model)[1]])


@pytest.mark.parametrize(("cell", "depth"), [("gru_cho", 1), ("gru_cho", 2), ("lstm", 2), ("gru", 1)])
@torch.no_grad()
def test_cho(cell: str, depth: int) -> None:
    model = made("cho", cell=cell, depth=depth)
    bridge, part = model.encoder.bridge, parts(model.decoder)[0]
    c = (bridge.summary.weight @ torch.cat(read(model)[1][-1]) + bridge.summary.bias).tanh()
    first = (bridge.first.weight @ c + bridge.first.bias).tanh()
    states = [tuple(layer.split(6)) for layer in first.chunk(depth)]
    expected = []
    for y in embedded(model)[1]:
        h = climb(part.recurrences, torch.cat((y, c)), states)
        expected.append(logits(model, maxout(part.output, torch.cat((h, y, c)))))
    agree(model, expected)


@pytest.mark.parametrize(("cell", "depth"), [("gru_cho", 1), ("gru_cho", 2), ("lstm", 2), ("gru", 1)])
@torch.no_grad()
def test_bahdanau(cell: str, depth: int) -> None:
    model = made("bahdanau", cell=cell, depth=depth)
    bridge, part = model.encoder.bridge, parts(model.decoder)[0]
    annotations = embedded(model)[0]
    for layer in parts(model.encoder):
        ahead, _ = run(layer.ahead, annotations)
        back, first_word = run(layer.back, annotations[::-1])
        annotations = [torch.cat(both) for both in zip(ahead, back[::-1], strict=True)]
    first = (bridge.first.weight @ torch.cat(first_word) + bridge.first.bias).tanh()
    states = [tuple(layer.split(6)) for layer in first.chunk(depth)]
    w, u, v = (each[0] for each in (part.glimpse.score.query, part.glimpse.score.key, part.glimpse.score.out))
    expected = []
    for y in embedded(model)[1]:
        s = states[-1][0]
        c = mixed([(v.T @ (w.T @ s + u.T @ h).tanh())[0] for h in annotations], annotations)
        s = climb(part.tower.recurrences, torch.cat((y, c)), states)
        expected.append(logits(model, maxout(part.output, torch.cat((s, y, c)))))
    agree(model, expected)


SCORES: dict[str, Callable[[Any, Tensor, Tensor, int], Tensor]] = {
    "dot": lambda score, q, k, s: q @ k,
    "scaled": lambda score, q, k, s: q @ k / 6**0.5,
    "general": lambda score, q, k, s: k @ score.weight[0] @ q,
    "additive": lambda score, q, k, s: ((q @ score.query[0] + k @ score.key[0]).tanh() @ score.out[0])[0],
    "cosine": lambda score, q, k, s: score.beta[0, 0, 0] * (q @ k) / (q.norm() * k.norm()),
    "location": lambda score, q, k, s: (q @ score.weight[0])[s],
}
WINDOWS: dict[str, tuple[Any, ...]] = {
    "global": (),
    "monotonic": ({"kind": "local", "mode": "monotonic", "half_window": 1},),
    "predictive": ({"kind": "local", "mode": "predictive", "half_window": 2},),
}


def allowance(window: str, score_mods: Any, t: int, h: Tensor) -> Callable[[int], float]:
    """What the weight at each place of the source is multiplied with (Luong et al., eqs. 9-10)."""
    if window == "monotonic":
        return lambda s: float(abs(s - t) <= 1)
    if window == "predictive":
        mod = score_mods[0]
        p = len(SOURCE) * float(((h @ mod.inner[0]).tanh() @ mod.outer[0]).sigmoid())
        return lambda s: exp(-((s - p) ** 2) / 2) if abs(s - p) <= 2 else 0.0  # sigma = reach / 2 = 1
    return lambda s: 1.0


@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize(
    ("score", "window", "cell"),
    [*((score, "global", "lstm") for score in SCORES), ("general", "monotonic", "gru"), ("dot", "predictive", "lstm"),
     ("general", "predictive", "gru_cho")],
)  # fmt: skip
@torch.no_grad()
def test_luong(score: str, window: str, cell: str, input_feeding: bool) -> None:
    model = made("luong", score=score, score_mods=WINDOWS[window], cell=cell, input_feeding=input_feeding)
    annotations, states = read(model)
    last = parts(model.decoder)[-1]
    attend = last.attend if input_feeding else last
    cells = last.tower.recurrences if input_feeding else [part.ahead for part in parts(model.decoder)[:-1]]
    fed, expected = torch.zeros(6, dtype=torch.float64), []
    for t, y in enumerate(embedded(model)[1]):
        h = climb(cells, torch.cat((y, fed)) if input_feeding else y, states)
        scores = [SCORES[score](attend.glimpse.score, h, k, s) for s, k in enumerate(annotations)]
        c = mixed(scores, annotations, allowance(window, attend.glimpse.score_mods, t, h))
        fed = (attend.out.weight @ torch.cat((c, h))).tanh()
        expected.append(logits(model, fed))
    agree(model, expected)
