"""Every part alone, and every mixer in the place of attention: what it claims holds, what it denies is seen to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.stream import Part, Properties
from headwise.blocks.tables import PARTS
from headwise.testing import check_model, check_part, perturb_parameters, text_classifier
from headwise.testing.generative import IgnoreSource, check_round_trip
from headwise.testing.overfit import overfit_batch

# Settings under which a mixer has something to approximate or to cut at the few tokens of these checks.
MIXERS: dict[str, dict[str, Any]] = {
    "attention": {},
    "attention-dense": {"score": {"kind": "dense", "max_length": 9}},
    "attention-random": {"score": {"kind": "random", "max_length": 9}},
    "branched": {},
    "gated": {},
    "attention-mixture": {"score": {"kind": "mixture", "scores": ["scaled", "factorised", "dense"], "gated": True}},
    "fourier": {},
    "linear": {},
    "performer": {"features": 32},
    "performer-relu": {"features": 32, "kernel": "relu"},
    "tokens": {"max_length": 16},
    "linformer": {"rank": 3, "max_length": 9},
    "linformer-none": {"rank": 4, "max_length": 9, "sharing": "none"},
    "linformer-layerwise": {"rank": 3, "max_length": 9, "sharing": "layerwise"},
    "nystromformer": {"landmarks": 3, "kernel": 3, "iterations": 2},
    "retention": {"chunk": 3},
    "gmlp": {"max_length": 16},
    "s4d": {"state": 4, "min_step": 0.1, "max_step": 1.0},
    "lightweight_conv": {"kernel": 3},
    "dynamic_conv": {"kernel": 3},
    "separable_conv": {"kernel": 3},
    "conv_branches": {},
    "lsh": {"chunk": 4},
    "lsh-buckets": {"chunk": 4, "buckets": 2},
    "lsh-shortcuts": {"chunk": 2, "shortcuts": True},
    "workspace": {"slots": 3, "top_k": 2},
    "workspace-soft": {"slots": 3, "top_k": 0},
    "local": {"block": 2, "after": 1},
    "window": {"left": 1, "right": 1},
    "strided": {"stride": 2},
    "bigbird": {"block": 1, "window": 1, "random": 1},
    "bigbird-transformers": {"block": 1, "window": 1, "random": 0, "variant": "transformers"},
    "longformer": {"left": 1, "right": 1, "global_tokens": 1},
    "compressed": {},
    "perceiver": {"head_width": 3, "value_width": 5},
    "levit": {},
    "nonlocal": {"pool": 1},
    "nonlocal-dot": {"pool": 1, "form": "dot"},
}
FEEDFORWARDS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "mlp-chunk": {"chunk": 2},
    "mlp-hidden-norm": {"hidden_norm": True},
    "glu": {},
    "levit_mlp": {},
    "product_keys": {"sub_keys": 4, "heads": 2, "nearest": 3, "key_width": 6},
    "product_keys-layer": {"sub_keys": 4, "heads": 2, "nearest": 3, "key_width": 6, "query_norm": "layer"},
    "experts": {"count": 3, "drop": False},
    "experts-two": {"count": 4, "top_k": 2, "capacity_factor": 4.0, "eval_capacity_factor": 4.0},
    "experts-cut": {"count": 4, "capacity_factor": 0.6, "eval_capacity_factor": 0.6},
}
ROWS = {
    **{f"mixer-{name}": {"mixer": {"kind": name.split("-")[0], **settings}} for name, settings in MIXERS.items()},
    **{
        f"feedforward-{name}": {"feedforward": {"kind": name.split("-")[0], **settings}}
        for name, settings in FEEDFORWARDS.items()
    },
}


# Those that stand beside a mixer, or that read a memory; variants that are checked as parts alone.
OTHERS: dict[str, dict[str, Any]] = {
    "nystromformer-batch": {"landmarks": 3, "kernel": 0, "iterations": 1, "inverse_init": "batch"},
    "nystromformer-exact": {"landmarks": 0, "kernel": 3},
    "gmlp-attention": {"max_length": 16, "toeplitz": True, "attention_width": 4},
    "s4d-bilinear": {"state": 4, "init": "inv", "discretisation": "bilinear", "min_step": 0.1, "max_step": 1.0},
    "lightweight_conv-pointwise": {"kernel": 5, "per_channel": True, "pointwise": True},
    "dynamic_conv-per-channel": {"kernel": 5, "per_channel": True},
    "conv_branches-own": {
        "branches": [{"kernel": 3, "expand": 2}, {"separable": True, "kernel": 5}],
        "out": {"expand": 0.5},
    },
    "sum": {"parts": [{"kind": "attention", "heads": 4}, {"kind": "attention", "attend_to": "memory"}]},
    "sum-convolutions": {"parts": ["lightweight_conv", "separable_conv"]},
    "attention-memory": {"attend_to": "memory"},
    "attention-shared-key-value": {"shared_key_value": True},
    "attention-shared-grouped": {"shared_key_value": True, "key_value_heads": 1, "score_mods": ["rotary"]},
    "attention-shared-memory": {"shared_key_value": True, "attend_to": "memory"},
    "branched-memory": {"attend_to": "memory"},
    "gated-memory": {"attend_to": "memory"},
    "attention-window": {"score_mods": [{"kind": "window", "left": 1, "right": 1}]},
    "attention-hard": {"score_mods": ["hard"]},
    "attention-no-bias": {"qkv_bias": False},
    "attention-segments": {"memory_length": 5},
    "rnn": {},
    "lstm": {},
    "lstm-both-ways": {"bidirectional": True},
    "gru": {},
    "gru_cho": {},
}
UNIDIRECTIONAL = {"rnn", "lstm", "gru", "gru_cho"}  # in an encoder, too
ON_GRIDS: dict[str, dict[str, Any]] = {
    "windows": {"window": 2},
    "windows-shifted": {"window": 2, "shift": 1},
    "outlook": {},
    "nonlocal-pooled": {"pool": 2},
    "positioned": {},
    "positioned-memory": {"attend_to": "memory"},
}


def test_all_kinds_are_checked() -> None:
    checked = {name.split("-")[0] for name in {**MIXERS, **FEEDFORWARDS, **OTHERS, **ON_GRIDS}}
    assert checked == set(PARTS.homes)


@pytest.mark.parametrize("name", [*MIXERS, *FEEDFORWARDS, *OTHERS])
def test_a_part_does_what_it_declares(name: str) -> None:
    settings = {**MIXERS, **FEEDFORWARDS, **OTHERS}[name]
    check_part(PARTS.parse({"kind": name.split("-")[0], **settings}), unidirectional=name in UNIDIRECTIONAL)


@pytest.mark.parametrize("name", ON_GRIDS)
def test_a_part_of_images_does_what_it_declares(name: str) -> None:
    check_part(PARTS.parse({"kind": name.split("-")[0], **ON_GRIDS[name]}), grid=(4, 4))


def build(row: str, task: str, width: int = 8) -> Any:
    torch.manual_seed(0)
    common = {"vocab": 12, "width": width, "heads": 2, "hidden": width, "dropout": 0.0, "positions": "sinusoid"}
    return headwise.build("transformer-tiny", task=task, outputs=9 if task == "classify" else 0, **common, **ROWS[row])


def get_properties(row: str) -> Properties:
    """What the part under test declares in an encoder."""
    part = build(row, "masked").encoder.stack.layers[0].parts[1 if "feedforward" in ROWS[row] else 0]
    assert isinstance(part, Part)
    return part.properties


def can_decode(row: str) -> bool:
    try:
        build(row, "language-model")
    except UserError as problem:
        return "future" not in str(problem)  # refused for another reason it will be refused again, aloud
    return True


@pytest.mark.parametrize("row", ROWS)
def test_in_an_encoder(row: str) -> None:
    check_model(build(row, "masked"))
    text_classifier.check_overfit(build(row, "masked", width=16), steps=200, lr=0.01)


@pytest.mark.parametrize("row", ROWS)
def test_in_a_decoder(row: str, tmp_path: Path) -> None:
    if not can_decode(row):
        return
    check_model(build(row, "language-model"))
    model, fresh = perturb_parameters(build(row, "language-model")), build(row, "language-model").double().eval()
    check_round_trip(IgnoreSource(model), IgnoreSource(fresh), tmp_path / "model.safetensors")


@pytest.mark.parametrize("row", ROWS)
def test_among_the_patches_of_an_image(row: str) -> None:
    """Each drops into a Vision Transformer: an image alone or among others, and a batch learnt by heart."""
    settings = {"image": 12, "patch": 4, "class_tokens": 0, "width": 16, "heads": 2, "hidden": 16, **ROWS[row]}
    torch.manual_seed(0)
    model = headwise.build("vit-tiny", outputs=4, **settings)
    images = torch.randn(8, 1, 12, 12, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(8) % 4
    overfit_batch(model, lambda: torch.nn.functional.cross_entropy(model(images), labels), steps=100, lr=0.01)
    together = model(images)
    assert (together.argmax(-1) == labels).all()
    if get_properties(row).batch_independent and get_properties(row).exact:
        torch.testing.assert_close(torch.cat([model(image[None]) for image in images]), together, rtol=1e-4, atol=1e-4)
