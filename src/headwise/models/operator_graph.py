"""Operator graphs of models, traced by `torch.export` on the meta device: nothing is allocated.

The exported program is decomposed, so that a recurrent layer becomes operators of single steps, and each operator gets
the FLOPs that torch counts (`torch.utils.flop_counter`; one for each output element of an operator that it does not
count), the bytes of its output and of the parameters that it alone reads. Views cost nothing and have no bytes of their
own. A parameter that several operators read, such as the weights of a recurrent layer, is an operator of its own.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.node import Node as FxNode
from torch.utils.flop_counter import flop_registry

from headwise import catalog
from headwise.errors import UserError
from headwise.models.build import build_entry
from headwise.models.cost import make_inputs
from headwise.placement.fuse import fuse
from headwise.placement.graph import Node, OperatorGraph

VIEWS = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "squeeze",
    "unsqueeze", "split", "split_with_sizes", "chunk", "unbind", "detach", "alias", "as_strided", "getitem",
    "lift_fresh_copy",
}  # fmt: skip


def trace_model(
    name: str,
    *,
    rows: int = 32,
    length: int = 0,
    most: int = 128,
    task: str = "",
    settings: Mapping[str, Any] | None = None,
) -> OperatorGraph:
    """The fused operator graph of a model of the catalogue, for a batch of `rows` texts of `length` tokens, or
    images."""
    entry, size = catalog.find(name)
    config = entry.configure(size, settings or {})
    model = build_entry(entry, size, device="meta", task=task, **dict(settings or {}))
    if not any(True for _ in model.parameters()):
        raise UserError(f"{name}: has no parameters, as it is counted; choose a model that is trained by gradients")
    image = getattr(config, "input_shape", ())
    inputs = make_inputs(model, rows, length or DEFAULT_LENGTH, image)
    what = f"{rows} images" if image else f"{rows} texts of {length or DEFAULT_LENGTH} tokens"
    return fuse(trace(model, inputs, name, f"torch.export of {name}, {what}"), most)


DEFAULT_LENGTH = 16  # tokens


def trace(model: nn.Module, inputs: Sequence[Any], name: str, source: str = "") -> OperatorGraph:
    """The operator graph of a module on the meta device, not fused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own export
        try:
            unroll_layers(model)
            program = torch.export.export(model.eval(), tuple(inputs), strict=False).run_decompositions()
        except Exception as error:
            reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
            raise UserError(f"{name}: cannot be traced by torch.export ({reason}); give a graph file") from None
    weights = set(program.graph_signature.inputs_to_parameters)
    return OperatorGraph.from_nodes(name, Tracer(weights).trace(program.graph.nodes), source)


def unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


class Tracer:
    """Turns the nodes of an exported program into operators that compute something."""

    def __init__(self, weights: set[str]):
        self.weights = weights
        self.owners: dict[FxNode, tuple[str, ...]] = {}  # operators whose outputs a node stands for, also a view
        self.parameters: dict[FxNode, FxNode] = {}  # a parameter, or a view of one -> the parameter
        self.operators: dict[str, Node] = {}

    def trace(self, nodes: Iterable[FxNode]) -> list[Node]:
        for node in nodes:
            if node.op == "placeholder":
                self.owners[node] = ()
                if node.name in self.weights:
                    self.parameters[node] = node
            elif node.op == "call_function":
                self.add(node)
            elif node.op == "output":
                return self.keep_ancestors([owner for each in node.all_input_nodes for owner in self.owners[each]])
        raise AssertionError("a program has an output")

    def add(self, node: FxNode) -> None:
        inputs = [each for each in node.all_input_nodes if each in self.owners]
        if part := find_part(node):
            self.owners[node] = self.owners[part]
        elif _get_name(node) in VIEWS:
            self.owners[node] = tuple(dict.fromkeys(owner for each in inputs for owner in self.owners[each]))
            if len(inputs) == 1 and inputs[0] in self.parameters:
                self.parameters[node] = self.parameters[inputs[0]]
        else:
            sources = [owner for each in inputs for owner in self.owners[each]]
            sources += [self.parameters[each].name for each in inputs if each in self.parameters]
            size = _count_bytes(node)
            self.operators[node.name] = Node(
                node.name, _get_name(node), _count_flops(node), size, inputs=unique(sources)
            )
            self.owners[node] = (node.name,)

    def keep_ancestors(self, outputs: Iterable[str]) -> list[Node]:
        """The operators that outputs depend on, and their parameters: one that a single operator reads is part of it,
        others are operators of their own, whose readers get the weights as they get outputs."""
        kept, waiting = dict[str, Node](), list(outputs)
        while waiting:
            name = waiting.pop()
            if name in self.operators and name not in kept:
                kept[name] = self.operators[name]
                waiting += kept[name].inputs
        weights = {node.name: _count_bytes(node) for node in self.parameters.values()}
        readers = Counter(source for node in kept.values() for source in node.inputs if source in weights)
        shared = {name for name, count in readers.items() if count > 1}
        nodes, made = list[Node](), set[str]()
        for name in self.operators:
            if name in kept:
                node = kept[name]
                first = [source for source in node.inputs if source in shared and source not in made]
                nodes += [Node(source, "parameter", 0, weights[source], weights[source]) for source in first]
                made.update(first)
                own = [source for source in node.inputs if source in weights and source not in shared]
                inputs = tuple(source for source in node.inputs if source not in own)
                nodes.append(replace(node, parameter_bytes=sum(weights[each] for each in own), inputs=inputs))
        return nodes


def find_part(node: FxNode) -> FxNode | None:
    """Of a step that is selected from a stack, the tensor that was stacked: a step of an unrolled layer does not wait
    for the later ones of the layer before. Decomposed, `torch.stack(steps, 1)` is a view of a concatenation."""
    if _get_name(node) != "select" or node.args[1] != 1:
        return None
    view, number = node.args[0], node.args[2]
    if not isinstance(view, FxNode) or _get_name(view) != "view" or not isinstance(view.args[0], FxNode):
        return None
    joined = view.args[0]
    if _get_name(joined) != "cat" or joined.args[1:] not in ((1,), (-1,)):
        return None
    steps: Any = joined.args[0]
    shape = tuple(view.meta["val"].shape)
    whole = len(shape) == 3 and isinstance(steps, list | tuple) and len(steps) == shape[1]
    if not whole or not isinstance(number, int) or any(_shape(step) != (shape[0], shape[2]) for step in steps):
        return None
    part = steps[number]
    return part if isinstance(part, FxNode) else None


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape) if isinstance(node, FxNode) else ()


class UnrolledLSTM(nn.Module):
    """An LSTM step by step with products of its own, as static graphs of recurrent networks have them: a step of the
    next layer need not wait for the whole layer before."""

    def __init__(self, net: nn.LSTM):
        super().__init__()
        self.net = net

    @property
    def all_weights(self) -> Any:
        return self.net.all_weights

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        w_ih, w_hh, b_ih, b_hh = self.net.all_weights[0]
        zeros = x.new_zeros(len(x), self.net.hidden_size)
        h, c = (each.squeeze(0) for each in state) if state else (zeros, zeros)
        outputs = []
        for step in range(x.shape[1]):
            gates = F.linear(x[:, step], w_ih, b_ih) + F.linear(h, w_hh, b_hh)  # (B, 4H)
            i, f, g, o = gates.chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs, 1), (h.unsqueeze(0), c.unsqueeze(0))


def unroll_layers(model: nn.Module) -> None:
    """Replace the LSTM layers of a model by unrolled ones."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if not isinstance(child, nn.LSTM) or isinstance(module, UnrolledLSTM):
                continue
            plain = child.num_layers == 1 and child.batch_first and not child.bidirectional and not child.proj_size
            if plain:
                setattr(module, name, UnrolledLSTM(child))


def _get_name(node: FxNode) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    return getattr(target, "__name__", str(target))


def _count_flops(node: FxNode) -> int:
    """The FLOPs that torch counts for an operator, else one for each element that it writes."""
    value, target = node.meta.get("val"), node.target
    elements = sum(each.numel() for each in _list_tensors(value))
    packet = target.overloadpacket if isinstance(target, torch._ops.OpOverload) else None
    if packet not in flop_registry:
        return int(elements)
    take = lambda each: each.meta["val"] if isinstance(each, FxNode) else each  # noqa: E731
    args = torch.fx.node.map_aggregate(node.args, take)
    kwargs = torch.fx.node.map_aggregate(node.kwargs, take)
    return int(flop_registry[packet](*args, **kwargs, out_val=value))


def _count_bytes(node: FxNode) -> int:
    return sum(each.numel() * each.element_size() for each in _list_tensors(node.meta.get("val")))


def _list_tensors(value: Any) -> list[Tensor]:
    values = value if isinstance(value, list | tuple) else [value]
    return [each for each in values if isinstance(each, Tensor)]
