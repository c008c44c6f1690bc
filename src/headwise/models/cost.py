"""What a model costs: parameters, FLOPs and memory, counted on the model itself without allocating it.

The model is built on torch's meta device, where tensors have shapes but no contents. A forward pass there runs every
operation, so FLOPs and the bytes that autograd keeps are counted, not estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from headwise.blocks.positions.absolute import LearnedPositions
from headwise.blocks.stack import Decoder, Encoder, count_parameters
from headwise.models.build import build_entry
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.entry import Entry
from headwise.models.generative import GenerativeModel
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.summary import Cost, Image, Node, Summary
from headwise.models.text_classifier import SequenceClassifier, SpanClassifier, TokenClassifier

Learning = (
    GenerativeModel,
    TokenClassifier,
    MaskedLanguageModel,
    SequenceClassifier,
    SpanClassifier,
)  # models that take labels and give their loss


@runtime_checkable
class HasBlankInputs(Protocol):
    """A model that reads neither texts nor images makes its own inputs of zeros, on the meta device."""

    def make_blank_inputs(self, rows: int, length: int) -> tuple[Any, ...]: ...


@runtime_checkable
class HasMaxLength(Protocol):
    """A model that reads so many inputs at once at most, where it has learned positions; 0: any number."""

    @property
    def max_length(self) -> int: ...


def summarise(
    entry: Entry, size: str, *, vocab: int = 0, length: int = 0, settings: Mapping[str, Any] | None = None
) -> Summary:
    """Count one size of a catalogue entry, with some settings changed; 0 takes its published vocabulary, and its
    usual length."""
    name, changes = f"{entry.name}-{size}", dict(settings or {})
    model = build_entry(entry, size, vocab=vocab, device="meta", **changes)
    config, top = entry.configure(size, changes), build_tree(model, name)
    if not top.parameters:
        return Summary(name, None, top, settings=config.model_dump(mode="json"))
    image: Image = getattr(config, "input_shape", ())
    return Summary(name, count_cost(model, length, image), top, image)


def count_cost(model: nn.Module, length: int = 0, image: Image = ()) -> Cost:
    """Count a model that lives on the meta device; 0: for 64 tokens, or fewer if its positions end before. `image`
    is the input of an image model, (channels, rows, columns); one image counts as a token."""
    length = 1 if image else length or min([64, *list_length_limits(model)])
    count = count_parameters(model)
    return Cost(
        parameters=count,
        length=length,
        flops_per_token=count_flops(model, length, image) // length,
        training_bytes=16 * count,
        activation_bytes=count_saved_bytes(model, 2, length, image)
        - count_saved_bytes(model, 1, length, image),  # of one row alone
        decoding_bytes=4 * count,
        cache_bytes_per_token=_count_cache_bytes(model, image),
    )


def count_flops(model: nn.Module, length: int, image: Image) -> int:
    """FLOPs (floating-point operations) of a forward pass."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learned:  # the counter wants a graph behind whatever requires gradients, views of parameters too
        parameter.requires_grad_(False)
    try:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.eval()(*make_inputs(model, 1, length, image))
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
    return int(counter.get_total_flops())


def list_length_limits(model: nn.Module) -> list[int]:
    """The largest lengths of encoder and decoder, where positions are learned; others take any length."""
    if isinstance(model, HasBlankInputs) and isinstance(model, HasMaxLength) and model.max_length:
        return [model.max_length]
    sides = [side for side in model.children() if isinstance(side, Encoder | Decoder)]
    return [
        table.max_length - (side.prefix_id is not None) - (getattr(side, "suffix_id", None) is not None)
        for side in sides
        for table in side.modules()
        if isinstance(table, LearnedPositions)
    ]


def make_inputs(model: nn.Module, rows: int, length: int, image: Image = ()) -> tuple[Any, ...]:
    """Texts of this length: one, or a source and a target. Or images, alone or with a text; or the model's own."""
    if isinstance(model, HasBlankInputs):
        return model.make_blank_inputs(rows, length)
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    source = torch.zeros(rows, *image, device="meta") if image else ids
    return (source, ids) if isinstance(model, EncoderDecoder) else (source,)


def count_saved_bytes(model: nn.Module, rows: int, length: int, image: Image) -> int:
    """Bytes that autograd saves for the backward pass of one batch, without what parts recompute by hooks."""
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    batch = make_inputs(model, rows, length, image)
    targets = batch[-1][:, 0] if isinstance(model, SequenceClassifier) else batch[-1]
    labels = {"labels": targets} if isinstance(model, Learning) else {}
    model.train()
    # How many tokens an adaptive softmax finds in a cluster is unknown on the meta device: assume all.
    all_tokens = torch.fx.experimental._config.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]
    with all_tokens, Fused(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(*batch, **labels)
    return sum(tensor.numel() * tensor.element_size() for tensor in _unique_storages(saved))


class Fused(TorchFunctionMode):
    """Runs attention by the fused kernel, which saves no map, as on a device; on meta torch would decompose it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return self.attend(*args, **(kwargs or {}))

    @staticmethod
    def attend(
        q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, **options: Any
    ) -> Tensor:
        mask, learned = attn_mask, attn_mask is not None and attn_mask.requires_grad
        if dropout_p or learned or q.dim() != 4 or q.shape[-1] != v.shape[-1] or options.get("enable_gqa"):
            # CPUs have no fused kernel for these either.
            return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, **options)
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype)
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        causal, scale = options.get("is_causal", False), options.get("scale")
        out: Tensor = kernel(q, k, v, dropout_p, causal, attn_mask=mask, scale=scale)[0]
        return out


def _unique_storages(tensors: Any) -> list[Tensor]:
    """The largest tensor of each storage, as views share theirs."""
    largest: dict[int, Tensor] = {}
    for tensor in tensors:
        key = tensor.untyped_storage()._cdata
        if key not in largest or tensor.numel() > largest[key].numel():
            largest[key] = tensor
    return list(largest.values())


def _count_cache_bytes(model: nn.Module, image: Image) -> int:
    if not isinstance(model, GenerativeModel):
        return 0
    with torch.no_grad():
        state: Any = model.eval().start(make_inputs(model, 1, 4, image)[0])  # type: ignore[operator]
        model.step(torch.zeros(1, dtype=torch.long, device="meta"), state)
    buffers = (buffer for entry in state.cache.growing.values() for buffer in entry.buffers)
    return sum(buffer.narrow(2, 0, 1).numel() * buffer.element_size() for buffer in buffers if buffer.dim() == 4)


def build_tree(module: nn.Module, name: str = "model") -> Node:
    """The modules as assembled; equal neighbours in a list are shown once with a count."""
    node = Node(name, type(module).__name__, count_parameters(module))
    node.tensors = {key: tuple(p.shape) for key, p in module.named_parameters(recurse=False)}
    for child_name, child in module.named_children():
        subtree = build_tree(child, child_name)
        if not subtree.parameters:
            continue
        last = node.children[-1] if node.children else None
        if last is not None and isinstance(module, nn.ModuleList) and _is_same(last, subtree):
            last.repeats += 1
        else:
            node.children.append(subtree)
    return node


def _is_same(one: Node, other: Node) -> bool:
    return (one.kind, one.parameters, one.tensors) == (other.kind, other.parameters, other.tensors) and all(
        _is_same(a, b) for a, b in zip(one.children, other.children, strict=False)
    )
