"""RoPE scaling and partial rotation: the frequencies and rotations of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as rotate_partially
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from headwise import UserError
from headwise.blocks.positions.rotary import Rotary, RotaryConfig
from headwise.testing import assert_parity

WIDTH, LENGTH, LIMIT = 12, 40, 16
LONG, SHORT = [1.5, 2.0, 3.0, 4.0, 6.0, 9.0], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
# Ours, with theirs beside it.
SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({"kind": "none"}, {"rope_type": "default"}),
    "linear": ({"kind": "linear", "factor": 3.0}, {"rope_type": "linear", "factor": 3.0}),
    "dynamic": ({"kind": "dynamic", "factor": 2.5, "max_length": LIMIT}, {"rope_type": "dynamic", "factor": 2.5}),
    "yarn": (
        {"kind": "yarn", "factor": 4.0, "max_length": LIMIT, "beta_fast": 3.0, "beta_slow": 0.2},
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 3.0, "beta_slow": 0.2},
    ),
    "yarn-untruncated": (
        {"kind": "yarn", "factor": 4.0, "max_length": LIMIT, "truncate": False, "attention": 1.25},
        {"rope_type": "yarn", "factor": 4.0, "truncate": False, "attention_factor": 1.25},
    ),
    "llama3": (
        {"kind": "llama3", "factor": 8.0, "low_factor": 0.25, "high_factor": 2.0, "max_length": LIMIT},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.25, "high_freq_factor": 2.0},
    ),
    "longrope": (
        {"kind": "longrope", "short_factors": SHORT, "long_factors": LONG, "max_length": LIMIT, "factor": 4.0},
        {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "factor": 4.0},
    ),
}


def rotate_as_transformers(parameters: dict[str, Any], x: Tensor, pos: Tensor) -> Tensor:
    """The rotation of LLaMA, whose context is LIMIT."""
    original = {"original_max_position_embeddings": LIMIT} if parameters["rope_type"] in ("yarn", "llama3") else {}
    config = LlamaConfig(
        hidden_size=2 * WIDTH,
        num_attention_heads=2,
        max_position_embeddings=LIMIT,
        rope_parameters={"rope_theta": 100.0, **original, **parameters},
    )
    cos, sin = LlamaRotaryEmbedding(config)(x, pos)
    return apply_rotary_pos_emb(x, x, cos, sin)[0]


@pytest.mark.parametrize("length", [LIMIT - 3, LENGTH], ids=["short", "long"])
@pytest.mark.parametrize("name", SCALINGS)
def test_rotations_are_those_of_transformers(name: str, length: int) -> None:
    ours, theirs = SCALINGS[name]
    x = torch.randn(2, 3, length, WIDTH, generator=torch.Generator().manual_seed(0))
    pos = torch.arange(length)
    rotary = RotaryConfig(base=100.0, scaling=ours).build(None, WIDTH)  # type: ignore[arg-type]
    expected = rotate_as_transformers(theirs, x, pos[None])
    assert_parity(rotary.rotate(x, pos), expected)
    assert_parity(rotary.rotate(x, pos.expand(2, -1)), expected)


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_rows_are_rotated_by_their_own_lengths(name: str) -> None:
    """A short text beside a long one is rotated as it is alone."""
    rotary = RotaryConfig(base=100.0, scaling=SCALINGS[name][0]).build(None, WIDTH)  # type: ignore[arg-type]
    x = torch.randn(2, 3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))
    pos = torch.stack((torch.arange(LENGTH), torch.arange(LENGTH).clamp(max=LIMIT - 1)))
    both = rotary.rotate(x, pos)
    for row in range(2):
        assert_parity(both[row], rotary.rotate(x[row : row + 1], pos[row])[0])
    assert not torch.allclose(both[0, :, 1], rotary.rotate(x[:1, :, :2], pos[0, :2])[0, :, 1])


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.4])
def test_partial_rotation_is_that_of_gpt_neox(fraction: float) -> None:
    """0.4 of 12 channels are 4.8: four are rotated, of 0.25 three, which takes a fourth."""
    x = torch.randn(2, 3, LIMIT, WIDTH, generator=torch.Generator().manual_seed(0))
    pos = torch.arange(LIMIT)
    config = GPTNeoXConfig(
        hidden_size=2 * WIDTH,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": fraction},
    )
    cos, sin = GPTNeoXRotaryEmbedding(config)(x, pos[None])
    assert_parity(Rotary(WIDTH, 100.0, fraction).rotate(x, pos), rotate_partially(x, x, cos, sin)[0])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"scaling": {"kind": "longrope", "short_factors": [1], "long_factors": [1], "max_length": 8}},
            "short_factors",
        ),
        ({"scaling": {"kind": "llama3", "low_factor": 2.0, "high_factor": 2.0}}, "high_factor"),
        ({"fraction": 0.01}, "even head_width"),
        ({"fraction": 0.25, "scaling": {"kind": "yarn", "factor": 2.0, "max_length": 8}}, "even number"),
    ],
)
def test_scalings_that_do_not_fit_are_one_sentence(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        RotaryConfig(**settings).build(None, WIDTH)  # type: ignore[arg-type]
