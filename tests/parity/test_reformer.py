"""The Reformer of `transformers` and the LSH attention of `reformer-pytorch`, with copied weights and rotations.

What they agree on with the paper is compared as it is, what they do otherwise with `shortcuts`. DISCREPANCY: in
encoders the first chunk of theirs sees the last; ours does not, so that local chunks are as long as the text here.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.utils import logging

import headwise
from headwise.blocks.mixers.lsh import MAX_DIRECTIONS
from headwise.blocks.mixers.lsh import LSHAttention as OurLSHAttention
from headwise.blocks.stream import Context, Stream
from headwise.testing import assert_parity

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from reformer_pytorch import LSHAttention
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

logging.set_verbosity_error()
close = torch.testing.assert_close
LENGTH = 16
SHAPE: dict[str, Any] = {
    "vocab_size": 12, "hidden_size": 16, "num_attention_heads": 2, "attention_head_size": 4, "feed_forward_size": 24,
    "axial_pos_shape": (4, 4), "axial_pos_embds_dim": (4, 12), "max_position_embeddings": LENGTH, "hash_seed": 5,
    "lsh_attn_chunk_length": 4, "local_attn_chunk_length": LENGTH, "num_hashes": 2, "attn_layers": ["local", "lsh"] * 2,
    "hidden_dropout_prob": 0.0, "local_attention_probs_dropout_prob": 0.0, "pad_token_id": 0,
}  # fmt: skip


def config(**settings: Any) -> Any:
    return transformers.ReformerConfig(**{**SHAPE, **settings})


def shaken(module: nn.Module) -> Any:
    """Away from initial values, in evaluation mode; in float64, as beside -1e5 for a token itself float32 is coarse."""
    for parameter in module.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return module.double().eval()


def turned_alike(ours: OurLSHAttention, corners: list[int]) -> None:
    """The rotations that a seed of 5 gives them."""
    torch.manual_seed(5)
    halves = [count // 2 for count in corners]
    drawn = torch.randn(*ours.rotations.shape[:3], sum(halves), dtype=torch.float64)
    for start, some in zip((0, MAX_DIRECTIONS), drawn.split(halves, -1), strict=False):
        ours.rotations[..., start : start + some.shape[-1]] = some


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("corners", [[4], [16, 16]])
@pytest.mark.parametrize("padding", [0, 5])
@torch.no_grad()
def test_shortcuts_are_theirs(causal: bool, corners: list[int], padding: int) -> None:
    torch.manual_seed(0)
    buckets = corners if len(corners) > 1 else corners[0]
    theirs = shaken(LSHSelfAttention(config(is_decoder=causal, num_buckets=buckets, hidden_size=8)))
    total = torch.tensor(corners).prod().item()
    ours = OurLSHAttention(8, heads=2, chunk=4, rounds=2, buckets=total, shortcuts=True, causal=causal, bias=False)
    ours = ours.double().eval()
    ours.qkv.project.weight.copy_(torch.cat((theirs.query_key.weight, theirs.value.weight)))
    ours.out.weight.copy_(torch.eye(8))
    turned_alike(ours, corners)
    x, keep = torch.randn(3, 32, 8, dtype=torch.float64), torch.ones(3, 32, dtype=torch.bool)
    keep[0, 32 - padding :] = False
    expected = theirs(x, attention_mask=keep.long() if padding else None).hidden_states
    found = ours(Stream.of(x, keep if padding else None))
    assert_parity(found[keep], expected[keep])


def copied(theirs: nn.Module, ours: nn.Module, side: str) -> None:
    """Their weights into our names; each must have been taken."""
    given, own = dict(theirs.state_dict()), dict(ours.named_parameters())
    place = f"{side}.stack"

    def put(name: str, *sources: str) -> None:
        own.pop(name).data.copy_(torch.cat([given.pop(source) for source in sources]).view_as(ours.get_parameter(name)))

    put(f"{side}.embed.table.weight", "reformer.embeddings.word_embeddings.weight")
    for number, name in enumerate(("rows", "columns")):
        put(f"{side}.embed.positions.{name}", f"reformer.embeddings.position_embeddings.weights.{number}")
    for layer, kind in enumerate(SHAPE["attn_layers"]):
        here, there = f"{place}.layers.{layer}", f"reformer.encoder.layers.{layer}"
        for number, norm in enumerate(("attention.layer_norm", "feed_forward.layer_norm")):
            put(f"{here}.norms.{number}.weight", f"{there}.{norm}.weight")
            put(f"{here}.norms.{number}.bias", f"{there}.{norm}.bias")
        looks = ("query", "key", "value") if kind == "local" else ("query_key", "value")
        put(
            f"{here}.parts.0.qkv.project.weight", *(f"{there}.attention.self_attention.{look}.weight" for look in looks)
        )
        put(f"{here}.parts.0.out.weight", f"{there}.attention.output.dense.weight")
        for name, dense in (("inner", "dense.dense"), ("outer", "output.dense")):
            for tensor in ("weight", "bias"):
                put(f"{here}.parts.1.{name}.{tensor}", f"{there}.feed_forward.{dense}.{tensor}")
    put(f"{place}.final.weight", "reformer.encoder.layer_norm.weight")
    put(f"{place}.final.bias", "reformer.encoder.layer_norm.bias")
    if side == "decoder":
        put("decoder.head.table.weight", "lm_head.decoder.weight")
        put("decoder.head.bias", "lm_head.bias")
        ours.get_parameter("decoder.head.bias").data.zero_()  # theirs is there and not used
    assert not own and not any(name for name in given if "mask_value" not in name and name != "lm_head.bias"), given


def ours_like(task: str, mixer: dict[str, Any]) -> Any:
    return headwise.build(
        "reformer", vocab=12, task=task, width=16, heads=2, head_width=4, hidden=24, depth=4, dropout=0.0,
        local={"kind": "local", "block": LENGTH, "before": 1}, mixer={"kind": "lsh", **mixer},
        positions={"kind": "axial", "shape": (4, 4)}, pool="first",
    ).double().eval()  # fmt: skip


def ids(rows: int = 2) -> Tensor:
    return torch.randint(4, 12, (rows, LENGTH), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def test_a_whole_encoder_gives_their_hidden_states() -> None:
    torch.manual_seed(0)
    theirs = shaken(transformers.ReformerForMaskedLM(config(num_buckets=4)))
    ours = ours_like("encode", {"chunk": 4, "rounds": 2, "buckets": 4, "shortcuts": True})
    del theirs.lm_head
    copied(theirs, ours, "encoder")
    for part in (part for part in ours.modules() if isinstance(part, OurLSHAttention)):
        turned_alike(part, [4])
    expected = theirs.reformer(ids()).last_hidden_state
    assert_parity(ours.encoder(ids(), Context()).x, expected)


@torch.no_grad()
def test_a_whole_decoder_gives_their_logits_where_a_text_is_one_chunk() -> None:
    torch.manual_seed(0)
    theirs = shaken(transformers.ReformerModelWithLMHead(config(is_decoder=True, lsh_attn_chunk_length=LENGTH)))
    ours = ours_like("language-model", {"chunk": LENGTH, "rounds": 2})
    copied(theirs, ours, "decoder")
    assert_parity(ours(ids()), theirs(ids()).logits)


def test_a_training_step_has_their_gradients() -> None:
    """Reversible layers there and here; in one chunk, so that nothing is hashed."""
    torch.manual_seed(0)
    theirs = shaken(transformers.ReformerModelWithLMHead(config(is_decoder=True, lsh_attn_chunk_length=LENGTH)))
    ours = ours_like("language-model", {"chunk": LENGTH, "rounds": 2})
    copied(theirs, ours, "decoder")
    text = ids()
    theirs.train()
    theirs(text).logits.square().mean().backward()
    ours(text).square().mean().backward()
    found = ours.get_parameter("decoder.stack.layers.1.parts.0.qkv.project.weight").grad
    lsh = theirs.reformer.encoder.layers[1].attention.self_attention
    close(found, torch.cat((lsh.query_key.weight.grad, lsh.value.weight.grad)), rtol=1e-5, atol=1e-8)
    words = theirs.reformer.embeddings.word_embeddings.weight.grad
    close(ours.get_parameter("decoder.embed.table.weight").grad, words, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("shortcuts", "causal"), [(False, False), (True, False), (True, True)])
@torch.no_grad()
def test_reformer_pytorch_mixes_alike(shortcuts: bool, causal: bool) -> None:
    """With buckets kept apart and pairs counted once it is the paper's attention (causal, it tells of the future)."""
    heads, length, width = 3, 64, 8
    theirs = LSHAttention(
        bucket_size=8, n_hashes=3, causal=causal, allow_duplicate_attention=shortcuts, attend_across_buckets=shortcuts
    ).eval()
    ours = OurLSHAttention(24, heads=heads, chunk=8, rounds=3, buckets=8, shortcuts=shortcuts, causal=causal)
    ours = ours.double().eval()
    q, v = torch.randn(2, heads, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    ours.rotations[..., :4] = torch.randn(1, width, 3, 4, dtype=torch.float64)
    torch.manual_seed(1)
    expected, _, _ = theirs(q, v)
    k = q / q.norm(dim=-1, keepdim=True)
    given = [x.unsqueeze(0) for x in (q / width**0.5, k, v)]  # they divide scores, although keys have length 1
    found = ours.mix(*given, Stream.of(torch.empty(1, length, 1)), Context())
    assert_parity(found[0], expected)
