"""Synthesizers: sizes compared with the Transformer's, and that each kind learns to translate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.stack import count_parameters

SELVES, HEADS, HEAD_WIDTH, LIMIT = 12, 8, 64, 256  # self-attentions of both stacks
TRANSFORMER, PROJECTION = 63_082_496, 512 * 512 + 512


@pytest.mark.parametrize(
    ("size", "fewer", "more"),
    [
        ("base", 2, LIMIT * LIMIT),
        ("mixture", 0, LIMIT * LIMIT),
        ("factorised", 2, 2 * LIMIT * 8),
        ("dense", 1, HEAD_WIDTH * LIMIT),
    ],
)
def test_parameter_counts_are_those_of_the_equations(size: str, fewer: int, more: int) -> None:
    """Tay et al. (2020), section 3: dense scores need no keys; random ones neither keys nor queries."""
    found = count_parameters(headwise.build(f"synthesizer-{size}", device="meta"))
    assert found == TRANSFORMER + SELVES * (HEADS * more - fewer * PROJECTION)


T5_PROJECTION, T5_HEADS, T5_LIMIT = 768 * 768, 12, 512
NARANG: dict[str, tuple[dict[str, Any], int, int]] = {  # score in T5, projections fewer, parameters of the score
    "dense": ({"kind": "dense"}, 1, T5_HEADS * 64 * T5_LIMIT),
    "dense plus": ({"kind": "mixture", "scores": ["dot", "dense"]}, 0, T5_HEADS * 64 * T5_LIMIT),
    "dense plus alpha": (
        {"kind": "mixture", "scores": ["dot", "dense"], "gated": True}, 0, T5_HEADS * 64 * T5_LIMIT + 2
    ),
    "factorised": ({"kind": "factorised", "rank": 16}, 2, 2 * T5_HEADS * T5_LIMIT * 16),
    "random": ({"kind": "random"}, 2, T5_HEADS * T5_LIMIT**2),
    "random plus": ({"kind": "mixture", "scores": ["dot", "random"]}, 0, T5_HEADS * T5_LIMIT**2),
    "random plus alpha": (
        {"kind": "mixture", "scores": ["dot", "random"], "gated": True}, 0, T5_HEADS * T5_LIMIT**2 + 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", NARANG)
def test_rows_of_narang_et_al_have_no_dead_projections_in_t5(row: str) -> None:
    """Self-attention of both stacks, with T5's relative position bias; cross-attention is unchanged."""
    score, fewer, more = NARANG[row]
    mixer = {"kind": "attention", "score": score}
    model = headwise.build("t5-base", device="meta", mixer=mixer)
    assert count_parameters(model) == 222_903_552 + 24 * (more - fewer * T5_PROJECTION)
    torch.manual_seed(0)
    tiny = headwise.build("t5-tiny", vocab=12, mixer=mixer, dropout=0.0, hidden_dropout=0.0)
    tiny(torch.randint(4, 12, (2, 6)), torch.randint(4, 12, (2, 5))).square().sum().backward()
    unused = [name for name, parameter in tiny.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert not unused


@pytest.mark.parametrize(
    "score",
    [
        {"kind": "dense", "max_length": 16},
        {"kind": "dense", "max_length": 16, "factorised": True},
        {"kind": "mixture", "scores": ["scaled", {"kind": "random", "max_length": 16}], "gated": True},
    ],
    ids=["dense", "factorised-dense", "gated"],
)
def test_each_kind_overfits_a_batch(score: dict[str, Any]) -> None:
    torch.manual_seed(0)
    mixer = {"kind": "attention", "score": score}
    model = headwise.build("synthesizer-tiny", vocab=12, task="transduce", dropout=0.0, mixer=mixer)
    source = torch.randint(4, 12, (4, 6))
    target = source.flip(1)
    given = torch.cat([torch.ones(4, 1, dtype=torch.long), target[:, :-1]], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    for _ in range(80):
        optimizer.zero_grad()
        loss = model(source, given, labels=target)
        (loss.total / loss.count).backward()
        optimizer.step()
    model.eval()
    state, tokens, written = model.start(source), given[:, 0], []
    for _ in range(6):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        written.append(tokens)
    assert torch.equal(torch.stack(written, dim=1), target)
