"""Universal Transformer: steps against torch's layers, adaptive computation time against a loop over tokens, gates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise import UserError
from headwise.blocks.gated_residual import GruGate
from headwise.blocks.record import collect, record
from headwise.blocks.recurrence import RecurrentStack
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.models.cost import count_flops
from headwise.testing import assert_parity, check_model, perturb_parameters

WIDTH, STEPS = 8, 4


def build_stack(task: str = "masked", **recurrence: Any) -> RecurrentStack:
    torch.manual_seed(0)
    settings = {"width": WIDTH, "heads": 2, "hidden": 12, "depth": STEPS, "dropout": 0.0}
    model = headwise.build("universal-transformer-tiny", vocab=9, task=task, recurrence=recurrence, **settings)
    perturb_parameters(model)  # in float64
    stack = (model.encoder if task == "masked" else model.decoder).stack
    assert isinstance(stack, RecurrentStack)
    return stack


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def compute_sinusoid(number: int) -> Tensor:
    """sin and cos of `number` / 10000^(2i / width), one pair after the other."""
    angles = [number / 10_000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
    return torch.tensor([angles, [angle + torch.pi / 2 for angle in angles]], dtype=torch.float64).sin().T.flatten()


def copy_layer(ours: Any) -> nn.TransformerEncoderLayer:
    """torch's post-norm layer with the weights of ours."""
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True).double()
    attention, feedforward = ours.parts
    for theirs, source in (
        (layer.self_attn.in_proj_weight, attention.qkv.project.weight),
        (layer.self_attn.in_proj_bias, attention.qkv.project.bias),
        (layer.self_attn.out_proj, attention.out),
        (layer.linear1, feedforward.inner),
        (layer.linear2, feedforward.outer),
        (layer.norm1, ours.norms[0]),
        (layer.norm2, ours.norms[1]),
    ):
        if isinstance(theirs, nn.Parameter):
            theirs.data.copy_(source)
        else:
            theirs.load_state_dict(source.state_dict())
    return layer


@pytest.mark.parametrize("settings", [{}, {"before": 1, "after": 2}, {"before": 2, "own_weights": False}], ids=str)
@torch.no_grad()
def test_fixed_steps_are_the_equations(settings: dict[str, Any]) -> None:
    stack, x = build_stack(**settings), draw(2, 5, WIDTH)
    layers = [copy_layer(layer) for layer in stack.layers]
    before, after = settings.get("before", 0), settings.get("after", 0)
    shared = layers[0 if settings.get("own_weights") is False else before]
    expected = x
    for number in range(before):
        expected = layers[number if settings.get("own_weights", True) else 0](expected)
    for step in range(1, STEPS + 1):
        signals = torch.stack([compute_sinusoid(step) + compute_sinusoid(position) for position in range(5)])
        expected = shared(expected + signals)
    for number in range(after):
        expected = layers[before + 1 + number](expected)
    assert_parity(stack(Stream.of(x), Context()).x, expected)


def run_loop(stack: RecurrentStack, x: Tensor, threshold: float) -> tuple[Tensor, list[float], list[float]]:
    """Adaptive computation time as a loop over tokens: outputs, and the steps and the remainder of each token."""
    halting, tokens = stack.halting, x.shape[1]
    assert halting is not None
    state, weights, states = x, [[] for _ in range(tokens)], []
    total, done, remainders = [0.0] * tokens, [False] * tokens, [0.0] * tokens
    for step in range(STEPS):
        state = state + torch.stack([compute_sinusoid(step + 1) + compute_sinusoid(t) for t in range(tokens)])
        for t in range(tokens):
            p = float(1 / (1 + torch.exp(-(state[0, t] @ halting.weight + halting.bias))))
            if done[t]:
                weights[t].append(0.0)
            elif total[t] + p > threshold:
                done[t], remainders[t] = True, 1 - total[t]
                weights[t].append(remainders[t])
            else:
                total[t] += p
                weights[t].append(p)
        state = stack.layers[0](Stream.of(state), Context()).x
        states.append(state)
    outputs = torch.zeros_like(x)
    for t in range(tokens):
        for step in range(STEPS):  # w_n, times 1 - w_m of the steps m after it
            later = torch.tensor([1 - weight for weight in weights[t][step + 1 :]], dtype=x.dtype).prod()
            outputs[0, t] += weights[t][step] * later * states[step][0, t]
    return outputs, [float(sum(weight > 0 for weight in row)) for row in weights], remainders


@pytest.mark.parametrize("threshold", [0.3, 0.7, 0.9, 0.9999])
@torch.no_grad()
def test_halting_is_the_loop_of_the_paper(threshold: float) -> None:
    stack, x = build_stack(kind="act", threshold=threshold, ponder_loss=0.5), draw(1, 6, WIDTH)
    assert stack.halting is not None
    stack.halting.bias.fill_(-0.5)
    outputs, steps, remainders = run_loop(stack, x, threshold)
    if threshold in (0.7, 0.9):
        assert len(set(steps)) > 1  # tokens differ
    with collect("aux", "ponder") as side:
        assert_parity(stack.train()(Stream.of(x), Context()).x, outputs)
    (updates,), (cost,) = side.list_values("ponder"), side.list_values("aux")
    assert updates[0].tolist() == steps
    assert float(cost) == pytest.approx(0.5 * (sum(steps) + sum(remainders)) / len(steps))


@torch.no_grad()
def test_the_ponder_cost_counts_real_tokens_of_training_alone() -> None:
    stack, x = build_stack(kind="act", threshold=0.7), draw(2, 6, WIDTH)
    keep = torch.arange(6) < torch.tensor([[6], [3]])
    costs = []
    for rows in (Stream.of(x[:1]), Stream.of(x[1:, :3]), Stream.of(x, keep)):
        with collect("aux") as side:
            stack.train()(rows, Context())
        costs += side.list_values("aux")
    assert float(costs[2]) == pytest.approx(float(6 * costs[0] + 3 * costs[1]) / 9)
    with collect("aux") as side:
        stack.eval()(Stream.of(x), Context())
    assert not side.list_values("aux")


def test_the_ponder_cost_teaches_the_halting_unit() -> None:
    stack = build_stack(kind="act", threshold=0.9)
    assert stack.halting is not None
    with collect("aux") as side:
        stack.train()(Stream.of(draw(2, 5, WIDTH)), Context())
    sum(side.list_values("aux")).backward()
    assert stack.halting.weight.grad is not None and (stack.halting.weight.grad != 0).any()


@torch.no_grad()
def test_steps_end_when_all_tokens_have_halted_and_change_no_output() -> None:
    stack, x, calls = build_stack(kind="act", threshold=0.5), Stream.of(draw(2, 5, WIDTH)), []
    assert stack.halting is not None
    stack.halting.bias.fill_(9.0)  # every token halts in the first step
    stack.layers[0].register_forward_hook(lambda *_: calls.append(1))
    outputs = stack(x, Context()).x
    assert len(calls) == 1
    with record():  # a recorder sees every step
        assert_parity(stack(x, Context()).x, outputs)
    assert len(calls) == 1 + STEPS


@pytest.mark.parametrize(
    ("task", "recurrence"),
    [
        ("language-model", {"before": 1, "after": 1}),
        ("language-model", {"kind": "act", "threshold": 0.7, "steps": "learned"}),
        ("transduce", {"kind": "act", "threshold": 0.4, "after": 1, "positions": False}),
    ],
    ids=str,
)
def test_decoders_decode_with_a_cache(task: str, recurrence: dict[str, Any]) -> None:
    torch.manual_seed(0)
    settings = {"width": WIDTH, "heads": 2, "hidden": 12, "depth": 3, "dropout": 0.0}
    check_model(headwise.build("universal-transformer-tiny", vocab=12, task=task, recurrence=recurrence, **settings))


def test_gates_are_the_equations_of_the_unit() -> None:
    torch.manual_seed(0)
    gate = perturb_parameters(GruGate(WIDTH))
    x, y = draw(2, 3, WIDTH), draw(3, 2, 3, WIDTH)[2]

    def normalise(value: Tensor, norm: Any) -> Tensor:
        centred = value - value.mean(-1, keepdim=True)
        return norm.weight * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() + norm.bias

    def sigmoid(weight: Tensor, bias: Tensor, *inputs: Tensor) -> Tensor:
        return 1 / (1 + (-(torch.cat(inputs, -1) @ weight.T + bias)).exp())

    inputs = normalise(x, gate.stream_norm), normalise(y, gate.branch_norm)
    update = sigmoid(gate.gates.weight[:WIDTH], gate.gates.bias[:WIDTH], *inputs)
    reset = sigmoid(gate.gates.weight[WIDTH:], gate.gates.bias[WIDTH:], *inputs)
    again = normalise(reset * x, gate.reset_norm), inputs[1]
    candidate = sigmoid(gate.candidate.weight, gate.candidate.bias, *again)
    assert_parity(gate(x, y), y - update * y + update * candidate)


def test_a_gated_layer_adds_the_gate_of_each_part_to_the_stream() -> None:
    torch.manual_seed(0)
    model = headwise.build("transformer-tiny", vocab=9, task="masked", wiring="gru", dropout=0.0)
    layer, x = perturb_parameters(model).encoder.stack.layers[0], draw(2, 3, 32)
    expected = x
    for part, norm, add in zip(layer.parts, layer.norms, layer.adds, strict=True):
        expected = expected + add.gate(expected, part(norm(expected)))
    assert_parity(layer(Stream.of(x), Context()).x, expected)


NARANG = {"before": 2, "after": 2, "own_weights": False, "steps": "learned", "positions": False}


def test_the_size_of_narang() -> None:
    """One layer of each stack with gates for each part is used 28 times; inputs and outputs are not tied."""
    stacks = {side: {"depth": 24, "recurrence": NARANG} for side in ("encoder", "decoder")}
    model = headwise.build("t5-base", device="meta", wiring="gru", tie="inputs", scale_outputs=False, **stacks)
    matrices = [
        w for n, w in model.named_parameters() if w.dim() > 1 and "score_mods" not in n and "embedding" not in n
    ]
    width, hidden, vocab = 768, 3072, 32_128
    layers = 4 * width**2 + 2 * width * hidden, 8 * width**2 + 2 * width * hidden
    gates = (2 + 3) * 3 * 2 * width * width
    assert sum(weight.numel() for weight in matrices) == 2 * vocab * width + sum(layers) + gates
    assert count_parameters(model) == pytest.approx(84e6, rel=0.01)


@pytest.mark.parametrize("recurrence", [{}, {"kind": "act", "after": 1, "own_weights": False}], ids=str)
def test_flops_are_those_of_all_steps(recurrence: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"vocab": 9, "task": "masked", "device": "meta"}
    none, one, six = (
        count_flops(headwise.build("universal-transformer-tiny", depth=depth, recurrence=recurrence, **settings), 8, ())
        for depth in (1, 2, 7)
    )
    assert six - none == 6 * (one - none)


def test_the_size_of_the_paper() -> None:
    model = headwise.build("universal-transformer-base", device="meta")
    assert count_parameters(model) == pytest.approx(65e6, rel=0.04)
    halting = headwise.build("universal-transformer-act-base", device="meta")
    assert count_parameters(halting) - count_parameters(model) == 2 * (1024 + 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recurrence": {}, "shared": True, "groups": 2}, "recurrence: steps share one layer; leave out groups"),
        ({"recurrence": {}, "wiring": "reversible"}, "recurrence: steps cannot be added to reversible layers"),
        ({"recurrence": {}, "wiring": "admin"}, "wiring: 'admin' scales a plain stack of layers"),
        ({"recurrence": {"threshold": 1.5}}, "threshold"),
        ({"recurrence": {}, "pooled_layers": [2]}, "recurrence: steps share one layer"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        headwise.build("bert-tiny", vocab=9, **settings)


def test_stacks_that_wrap_another_refuse_recurrence() -> None:
    with pytest.raises(UserError, match="cannot be combined with recurrence or pooled_layers; leave one out"):
        headwise.build("cait-tiny", recurrence={})
