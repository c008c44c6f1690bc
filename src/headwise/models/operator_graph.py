"""Operator graphs of models, traced by `torch.export` on the meta device: nothing is allocated.

The exported program is decomposed, so that a recurrent layer becomes operators of single steps, and each operator gets
the FLOPs that torch counts (`torch.utils.flop_counter`; one for each output element of an operator that it does not
count), the bytes of its output and of the parameters that it reads. Views cost nothing and have no bytes of their own.
A parameter that several operators read is with the first one, and the others read that one's output, so that weights
are sent as outputs are.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
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
    "unsqueeze", "split", "split_with_sizes", "chunk", "unbind", "detach", "alias", "as_strided", "getitem", "lift_fresh_copy",
}  # fmt: skip


def trace_model(
    name: str, *, rows: int = 32, length: int = 0, most: int = 128, task: str = "", settings: Mapping[str, Any] | None = None
) -> OperatorGraph:
    """The fused operator graph of a model of the catalogue, for a batch of `rows` texts of `length` tokens, or images."""
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
            program = torch.export.export(model.eval(), tuple(inputs), strict=False).run_decompositions()
        except Exception as error:
            reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
            raise UserError(f"{name}: cannot be traced by torch.export ({reason}); give a graph file") from None
    signature = program.graph_signature
    weights = set(signature.inputs_to_parameters)
    return OperatorGraph.from_nodes(name, list(_list_nodes(program.graph.nodes, weights)), source)


def _list_nodes(nodes: Any, weights: set[str]) -> Iterator[Node]:
    """The operators that compute something. `owners` are those whose outputs a node of the trace stands for: of a view,
    that of what it views."""
    owners: dict[FxNode, tuple[str, ...]] = {}
    parameters: dict[FxNode, FxNode] = {}  # a view of a parameter -> the parameter
    holders: dict[FxNode, str] = {}  # a parameter -> the operator that has it
    for node in nodes:
        if node.op == "placeholder":
            if node.name in weights:
                parameters[node] = node
            owners[node] = ()
        if node.op != "call_function":
            continue
        inputs = [each for each in node.all_input_nodes if each in owners]
        read = [parameters[each] for each in inputs if each in parameters]
        if _get_name(node) in VIEWS:
            owners[node] = tuple(dict.fromkeys(owner for each in inputs for owner in owners[each]))
            if read and len(inputs) == len(read) == 1:
                parameters[node] = read[0]
            continue
        sources = [owner for each in inputs for owner in owners[each]]
        held = 0
        for parameter in dict.fromkeys(read):
            if parameter in holders:
                sources.append(holders[parameter])
            else:
                holders[parameter] = node.name
                held += _count_bytes(parameter.meta.get("val"))
        value = node.meta.get("val")
        owners[node] = (node.name,)
        yield Node(
            node.name, _get_name(node), _count_flops(node), _count_bytes(value), held, tuple(dict.fromkeys(sources))
        )


def _get_name(node: FxNode) -> str:
    """
    >>> _get_name(torch.fx.Graph().call_function(operator.getitem, ()))
    'getitem'
    """
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


def _count_bytes(value: Any) -> int:
    return int(sum(each.numel() * each.element_size() for each in _list_tensors(value)))


def _list_tensors(value: Any) -> list[Tensor]:
    values = value if isinstance(value, list | tuple) else [value]
    return [each for each in values if isinstance(each, Tensor)]
