"""One training step of a model, operation by operation, without computing it.

The model lives on torch's meta device, where tensors have shapes and no contents. Forward and backward pass run there;
every operation is counted with its FLOPs and the bytes that it reads and writes, and every tensor for as long as it
lives, so that the peak of memory is that of the program, not of a formula.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from headwise.blocks.stack import count_parameters, enable_checkpointing
from headwise.catalog import find
from headwise.errors import UserError
from headwise.models.build import build_entry
from headwise.models.cost import Fused, Learning, make_inputs

FLOAT = 4
BATCHED = ("bmm", "baddbmm", "attention")  # parts of the names of products of many small matrices
# what autocast computes in the lower precision; the rest follows the precision of its inputs
LOWERED = {
    torch.nn.functional.linear, torch.nn.functional.scaled_dot_product_attention, torch.matmul, torch.bmm, torch.mm,
    torch.addmm, torch.baddbmm, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.nn.functional.conv1d,
    torch.nn.functional.conv2d, torch.einsum,
}  # fmt: skip
EXACT = {
    torch.nn.functional.softmax, torch.nn.functional.log_softmax, torch.nn.functional.cross_entropy,
    torch.nn.functional.layer_norm, torch.logsumexp, torch.Tensor.softmax, torch.Tensor.logsumexp,
}  # fmt: skip


def count_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> int:
    """Two products of queries and keys, (B, H, T, D) and (B, H, S, D)."""
    return 2 * q.numel() * (k.shape[-2] + v.shape[-2])


def count_attention_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **options: Any) -> int:
    """Five products: the map is computed again."""
    return 5 * count_attention(q, k, v) // 2


def count_addmm(x: Tensor, left: Tensor, right: Tensor, **options: Any) -> int:
    return 2 * left.numel() * right.shape[-1]


aten = torch.ops.aten
FLOPS: dict[Any, Callable[..., Any]] = {  # what torch's table lacks
    **flop_registry,
    aten._scaled_dot_product_flash_attention_for_cpu: count_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: count_attention_backward,
    aten.addmm_: count_addmm,
    aten.baddbmm_: count_addmm,
}


@dataclass(frozen=True)
class Operation:
    """What one operation costs."""

    flops: int
    bytes: int
    batched: bool


@dataclass
class StepTrace:
    """A training step of one device, without communication."""

    parameters: int
    largest_layer: int  # parameters of the largest layer, which a sharded model gathers
    rows: int
    length: int
    weights: int  # bytes of parameters and buffers
    casts: int  # bytes of weights in the lower precision
    activations: int  # peak bytes above the weights, without the gradients of parameters
    peak: int  # the same with the gradients, which come while activations go
    operations: list[Operation] = field(default_factory=list)

    @property
    def flops(self) -> int:
        return sum(each.flops for each in self.operations)

    @property
    def tokens(self) -> int:
        return self.rows * self.length


class OnDevice(Fused):
    """Runs products as a device does: attention by the fused kernel, and with autocast, which torch does not offer on
    the meta device, products in the lower precision and sums in float32."""

    def __init__(self, dtype: torch.dtype, recorder: Recorder):
        super().__init__()
        self.dtype, self.recorder = dtype, recorder
        self.casts: dict[int, Tensor] = {}  # weights are cast once a pass, as autocast does

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.dtype != torch.float32 and (func in LOWERED or func in EXACT):
            wanted = self.dtype if func in LOWERED else torch.float32
            args = tuple(self._cast(each, wanted) for each in args)
            kwargs = {key: self._cast(each, wanted) for key, each in kwargs.items()}
        return super().__torch_function__(func, types, args, kwargs)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if not isinstance(value, Tensor) or value.dtype in (dtype, torch.bool) or not value.is_floating_point():
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(dtype)
        if id(value) not in self.casts:
            self.casts[id(value)] = value.to(dtype)
            self.recorder.exclude(self.casts[id(value)])
        return self.casts[id(value)]


class Recorder(TorchDispatchMode):
    """Records operations, and the bytes of all tensors that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.sizes: dict[int, int] = {}
        self.gradients: set[int] = set()  # storages of gradients of parameters
        self.live = self.live_gradients = self.peak = self.peak_without_gradients = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        written = [each for each in tree_leaves(outputs) if isinstance(each, Tensor)]
        known = {each.untyped_storage()._cdata for each in read}
        made = [each for each in written if each.untyped_storage()._cdata not in known]
        for tensor in made:
            self._add(tensor)
        count = FLOPS.get(func._overloadpacket)
        flops = int(count(*args, **(kwargs or {}), out_val=outputs)) if count else 0
        if made or flops or func._schema.is_mutable:
            moved = sum(each.numel() * each.element_size() for each in (*read, *written))
            name = func._overloadpacket.__name__
            self.operations.append(Operation(flops, moved, any(part in name for part in BATCHED)))
        return outputs

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.live += self.sizes[key]
            self._compare()
            weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        size = self.sizes.pop(key)
        self.live -= size
        if key in self.gradients:
            self.gradients.discard(key)
            self.live_gradients -= size

    def exclude(self, tensor: Tensor) -> None:
        """Do not count this tensor."""
        key = tensor.untyped_storage()._cdata
        self.live -= self.sizes.get(key, 0)
        self.sizes[key] = 0

    def add_gradient(self, parameter: Tensor) -> None:
        """Called when a parameter has its gradient."""
        assert parameter.grad is not None
        key = parameter.grad.untyped_storage()._cdata
        if key in self.sizes and key not in self.gradients:
            self.gradients.add(key)
            self.live_gradients += self.sizes[key]

    def _compare(self) -> None:
        self.peak = max(self.peak, self.live)
        self.peak_without_gradients = max(self.peak_without_gradients, self.live - self.live_gradients)


def build_on_meta(name: str, vocab: int = 0, settings: Mapping[str, Any] | None = None) -> nn.Module:
    """A model of the catalogue, without contents."""
    entry, size = find(name)
    model = build_entry(entry, size, vocab=vocab, device="meta", **(settings or {}))
    if not count_parameters(model):
        raise UserError(f"{name}: is fitted by counting, which one machine does; there is nothing to plan")
    return model


def trace_step(
    model: nn.Module, rows: int, length: int, precision: str = "float32", checkpointing: bool = False
) -> StepTrace:
    """Trace a step of a model that lives on the meta device."""
    if not isinstance(model, Learning):
        raise UserError(f"a step of {type(model).__name__} cannot be traced: models of texts that give a loss can be")
    if checkpointing:
        enable_checkpointing(model)
    model.train()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    recorder = Recorder()
    hooks = [parameter.register_post_accumulate_grad_hook(recorder.add_gradient) for parameter in learned]
    device = OnDevice(getattr(torch, precision), recorder)
    inputs = make_inputs(model, rows, length)
    try:
        # how many tokens an adaptive softmax finds in a cluster is unknown on the meta device: assume all
        all_tokens = torch.fx.experimental._config.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]
        with all_tokens, device, recorder:
            total = model(*inputs, labels=inputs[-1]).total
            # what `total.backward()` calls; that is a function of tensors, during which modes for functions are off,
            # but layers that are recomputed need this one
            ones = (torch.ones((), device="meta"),)
            _engine_run_backward((total,), ones, False, False, (), allow_unreachable=True, accumulate_grad=True)
            del total
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in learned:
            parameter.grad = None
    return StepTrace(
        parameters=count_parameters(model),
        largest_layer=find_largest_layer(model),
        rows=rows,
        length=length,
        weights=sum(each.nbytes for each in (*model.parameters(), *model.buffers())),
        casts=sum(each.nbytes for each in device.casts.values()),
        activations=recorder.peak_without_gradients,
        peak=recorder.peak,
        operations=recorder.operations,
    )


def find_largest_layer(model: nn.Module) -> int:
    """Parameters of the largest unit that a sharded model gathers: a layer, or what stands outside all layers."""
    layers = [layer for stack in model.modules() if isinstance(stack, nn.ModuleList) for layer in stack]
    inner = [count_parameters(layer) for layer in layers]
    outer = {id(p): p.numel() for p in model.parameters()}
    for layer in layers:
        for parameter in layer.parameters():
            outer.pop(id(parameter), None)
    return max([*inner, sum(outer.values())])
