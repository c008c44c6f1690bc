"""The Evolved Transformer against its blocks, written with torch.nn.Conv1d, MultiheadAttention and LayerNorm."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise
from headwise.blocks.attention.multihead import Attention
from headwise.blocks.mixers.convolution_branches import SeparableTokenConvolution, TokenConvolution
from headwise.testing import assert_parity, perturb_parameters

WIDTH, HEADS, VOCAB = 32, 4, 15
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [11, 12, 13, 2, 0, 0, 0]])
TARGET = torch.tensor([[1, 7, 8, 9, 10, 4], [1, 6, 5, 5, 4, 3]])


def attend(part: Attention, x: Tensor, memory: Tensor, heads: int, hidden: Tensor | None, future: bool) -> Tensor:
    """torch's attention with the weights of ours."""
    theirs = nn.MultiheadAttention(WIDTH, heads, bias=False, batch_first=True).double()
    cross = hasattr(part.qkv, "query")
    weights = [part.qkv.query.weight] if cross else []  # type: ignore[union-attr]
    theirs.in_proj_weight.data = torch.cat([*weights, part.qkv.project.weight])  # type: ignore[arg-type]
    theirs.out_proj.load_state_dict(part.out.state_dict())
    mask = None if future else torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    outputs: Tensor = theirs(x, memory, memory, key_padding_mask=hidden, attn_mask=mask)[0]
    return outputs


def convolve(part: Any, x: Tensor, keep: Tensor, causal: bool) -> Tensor:
    """torch's convolutions with the weights of ours: one, or a depthwise and a pointwise one."""
    x = (x * keep.unsqueeze(-1)).mT  # (B, T, C) -> (B, C, T)
    if isinstance(part, SeparableTokenConvolution):
        weights = [(part.weight.unsqueeze(1), None, part.weight.shape[0])]
        weights.append((part.linear.weight.unsqueeze(-1), part.linear.bias, 1))
    else:
        assert isinstance(part, TokenConvolution)
        outputs = len(part.linear.weight)
        weight = part.linear.weight.view(outputs, part.kernel, -1).mT  # (O, KC) -> (O, C, K)
        weights = [(weight, part.linear.bias, 1)]
    for weight, bias, groups in weights:
        others = weight.shape[-1] - 1
        x = F.conv1d(F.pad(x, (others, 0) if causal else (others // 2, others // 2)), weight, bias, groups=groups)
    return x.mT


def mix_branches(part: Any, x: Tensor, keep: Tensor, causal: bool) -> Tensor:
    left, right = (convolve(branch, x, keep, causal) for branch in part.branches)
    left = left.relu()
    right = right if causal else right.relu()
    hidden = left + torch.cat((right, right.new_zeros(*right.shape[:2], left.shape[-1] - right.shape[-1])), -1)
    outputs = convolve(part.out, normalise(hidden, part.norm), keep, causal)
    return torch.cat((outputs, outputs.new_zeros(*outputs.shape[:2], WIDTH - outputs.shape[-1])), -1)


def normalise(x: Tensor, norm: Any) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def encode(model: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    keep = ids != 0
    x = model.encoder.embed(ids).x
    for layer in model.encoder.stack.layers:
        glu, branches, attention, mlp = layer.parts
        first, second, third, last = layer.norms
        values, gates = glu.inner(normalise(x, first)).chunk(2, -1)
        x = x + values * gates.sigmoid()
        x = x + mix_branches(branches, normalise(x, second), keep, causal=False)
        normed = normalise(x, third)
        x = x + attend(attention, normed, normed, HEADS, ~keep, future=True)
        x = x + mlp.outer(mlp.inner(normalise(x, last)).relu())
    return normalise(x, model.encoder.stack.final), keep


def decode(model: Any, ids: Tensor, memory: Tensor, memory_keep: Tensor) -> Tensor:
    x, keep = model.decoder.embed(ids).x, torch.ones_like(ids, dtype=torch.bool)
    for layer in model.decoder.stack.layers:
        both, branches, attention, cross, mlp = layer.parts
        normed = normalise(x, layer.norms[0])
        x = x + attend(both.parts[0], normed, normed, 16, None, future=False)
        x = x + attend(both.parts[1], normed, memory, HEADS, ~memory_keep, future=True)
        x = x + mix_branches(branches, normalise(x, layer.norms[1]), keep, causal=True)
        normed = normalise(x, layer.norms[2])
        x = x + attend(attention, normed, normed, HEADS, None, future=False)
        x = x + attend(cross, normalise(x, layer.norms[3]), memory, HEADS, ~memory_keep, future=True)
        hidden = F.silu(mlp.inner(normalise(x, layer.norms[4])))
        x = x + mlp.outer(normalise(hidden, mlp.norm))
    return normalise(x, model.decoder.stack.final)


@torch.inference_mode()
def test_logits_are_those_of_the_blocks_in_torch() -> None:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"vocab": VOCAB, "width": WIDTH, "heads": HEADS}
    model = headwise.build("evolved-transformer-tiny", **settings, encoder={"depth": 2}, decoder={"depth": 2})
    model = perturb_parameters(model.double().eval())
    memory, keep = encode(model, SOURCE)
    assert_parity(model(SOURCE, TARGET), decode(model, TARGET, memory, keep) @ model.decoder.head.table.weight.t())
