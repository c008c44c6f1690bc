"""Perceivers of `transformers` for bytes and for images, with random weights: the same logits from the same tensors."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.perceiver.modeling_perceiver import PerceiverFourierPositionEncoding

import headwise
from headwise.testing import assert_parity

SHAPE: dict[str, Any] = {
    "vocab_size": 20, "max_position_embeddings": 16, "num_latents": 6, "d_latents": 48, "d_model": 24,
    "num_self_attends_per_block": 3, "qk_channels": 256, "v_channels": 48,
}  # fmt: skip
OURS = [  # their names as patterns, ours
    (r"perceiver.input_preprocessor.embeddings.weight", "encoder.embed.table.weight"),
    (r"perceiver.input_preprocessor.position_embeddings.weight", "encoder.embed.positions.table"),
    (r"perceiver.embeddings.latents", "encoder.latents"),
    (r"perceiver.encoder.cross_attention\.", "encoder.stack.layers.0."),
    (r"perceiver.encoder.self_attends.(\d+)\.", lambda found: f"encoder.stack.layers.{int(found[1]) + 1}."),
    (r"perceiver.decoder.output_position_encodings.position_embeddings", "encoder.outputs.positions.table"),
    (r"perceiver.decoder.decoding_cross_attention\.", "encoder.outputs.layer."),
    (r"embedding_decoder.bias", "head.bias"),
    (r"perceiver.input_preprocessor.position_embeddings.position_embeddings", "encoder.stem.positions.table"),
    (r"perceiver.input_preprocessor.positions_projection", "encoder.stem.project"),
    (r"perceiver.input_preprocessor.convnet_1x1", "encoder.stem.widen"),
    (r"perceiver.decoder.decoder.output_position_encodings.position_embeddings", "encoder.outputs.query"),
    (r"perceiver.decoder.decoder.decoding_cross_attention\.", "encoder.outputs.layer."),
    (r"perceiver.decoder.decoder.final_layer", "heads.0.head"),
    (r"attention.self.layernorm1.weight", "norms.0.weight"),
    (r"attention.self.layernorm1.bias", "norms.0.bias"),
    (r"attention.self.layernorm2.weight", "parts.0.qkv.norm.weight"),
    (r"attention.self.layernorm2.bias", "parts.0.qkv.norm.bias"),
    (r"attention.self.", "parts.0.qkv."),
    (r"attention.output.dense", "parts.0.out"),
    (r"layernorm.weight", "norms.1.weight"),
    (r"layernorm.bias", "norms.1.bias"),
    (r"mlp.dense1", "parts.1.inner"),
    (r"mlp.dense2", "parts.1.outer"),
]


def renamed(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors under our names, queries, keys and values fused where ours are."""
    found = {}
    for name, tensor in theirs.items():
        for pattern, ours in OURS:
            name = re.sub(pattern, ours, name)
        found[name] = tensor.flatten(1) if name == "encoder.stem.widen.weight" else tensor
    for name in [name for name in found if ".key." in name]:
        across = "layers.0." in name or "outputs.layer" in name  # there queries are apart
        fused = ("key", "value") if across else ("query", "key", "value")
        found[name.replace(".key.", ".project.")] = torch.cat([found.pop(name.replace("key", each)) for each in fused])
    return found


@torch.no_grad()
def test_logits_are_equal() -> None:
    torch.manual_seed(0)
    theirs = transformers.PerceiverForMaskedLM(transformers.PerceiverConfig(**SHAPE)).eval()
    for parameter in theirs.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    ours = headwise.build(
        "perceiver", vocab=20, width=48, latents=6, embedding_width=24, depth=3,
        positions={"kind": "learned", "max_length": 16},
    ).eval()  # fmt: skip
    missing, unexpected = ours.load_state_dict(renamed(dict(theirs.named_parameters())), strict=False)
    assert (missing, unexpected) == (["head.table.weight"], []), "the tied table has one name there"
    ids = torch.randint(4, 20, (2, 16), generator=torch.Generator().manual_seed(1))
    ids[1, 11:] = 0
    expected = theirs(inputs=ids, attention_mask=(ids != 0).long()).logits
    assert_parity(ours(ids), expected)


IMAGE: dict[str, Any] = {
    "num_latents": 6, "d_latents": 48, "num_blocks": 2, "num_self_attends_per_block": 2, "num_labels": 5,
    "num_cross_attention_heads": 1, "image_size": 10,
}  # fmt: skip
OURS_IMAGE: dict[str, Any] = {"width": 48, "latents": 6, "depth": 2, "repeats": 2, "image": 10, "outputs": 5}


@pytest.mark.parametrize("places", ["learned", "fourier"])
@torch.no_grad()
def test_labels_of_images_are_equal(places: str) -> None:
    torch.manual_seed(0)
    kind = getattr(transformers, f"PerceiverForImageClassification{places.title()}")
    theirs = kind(transformers.PerceiverConfig(**IMAGE, d_model=512 if places == "learned" else 261)).eval()
    if places == "fourier":  # theirs has the frequencies of 224 x 224 whatever the images are
        waves = PerceiverFourierPositionEncoding(num_bands=64, max_resolution=(10, 10))
        theirs.perceiver.input_preprocessor.position_embeddings = waves
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    ours = headwise.build(f"perceiver-image-{places}", **OURS_IMAGE).eval()
    ours.load_state_dict(renamed(dict(theirs.named_parameters())))
    images = torch.randn(2, 3, 10, 10, generator=torch.Generator().manual_seed(1))
    assert_parity(ours(images), theirs(inputs=images).logits)
