"""Operator graphs by torch.export: all FLOPs and parameters, and steps that do not wait for each other."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headwise.errors import UserError
from headwise.models.build import build
from headwise.models.operator_graph import UnrolledLSTM, trace, trace_model
from headwise.placement.named import load_named


@pytest.mark.filterwarnings("ignore")  # of torch about its own export
def test_flops_and_parameters_are_those_of_the_model():
    model = build("transformer-tiny", vocab=50, device="meta")
    ids = torch.zeros(3, 6, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(ids, ids)
    graph = trace(model, [ids, ids], "tiny")
    products = sum(each.flops for each in graph.nodes if each.op in ("mm", "addmm", "bmm"))
    assert products == counter.get_total_flops()
    used = sum(each.numel() for each in model.parameters())
    assert graph.get_sizes("parameter_bytes").sum() == 4 * used
    assert [each.parameter_bytes for each in graph.nodes if each.op == "parameter"] == [
        50 * model.decoder.embed.table.weight.shape[1] * 4
    ]


def test_an_unrolled_lstm_is_that_of_torch():
    torch.manual_seed(0)
    net = nn.LSTM(5, 7, batch_first=True)
    x, state = torch.randn(2, 4, 5), (torch.randn(1, 2, 7), torch.randn(1, 2, 7))
    for given in (state, None):
        (out, (h, c)), (expected, (h2, c2)) = UnrolledLSTM(net)(x, given), net(x, given)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in ((out, expected), (h, h2), (c, c2)))


@pytest.mark.filterwarnings("ignore")
def test_steps_of_two_layers_form_a_wavefront():
    """The longest path through a recurrent network of two layers and T steps has T + 1 of its 2 T cells."""
    length = 5
    model = build("lstm-tiny", vocab=20, device="meta", task="language-model", depth=2)
    graph = trace(model, [torch.zeros(2, length, dtype=torch.long, device="meta")], "lstm")
    depth: dict[str, int] = {}
    cells = [each for each in graph.nodes if each.op == "tanh"]
    for each in graph.nodes:
        depth[each.id] = max((depth[source] for source in each.inputs), default=0) + (each.op == "tanh")
    assert len(cells) == 2 * 2 * length  # two for each cell
    assert max(depth.values()) == 2 * (length + 1)


def test_named_graphs_are_those_of_the_models():
    graph = load_named("rnnlm-2")
    width, vocab = 2048, 10_000
    expected = 2 * (8 * width * width + 8 * width) + vocab * width * 2 + vocab
    assert graph.get_sizes("parameter_bytes").sum() / 4 == pytest.approx(expected, rel=0.26)  # the table may be tied
    with pytest.raises(UserError, match="has no parameters"):
        trace_model("ngram-trigram")
