"""Linformer: its size, and that it learns masked words."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.stack import count_parameters


def test_the_base_size_is_that_of_roberta_and_one_matrix() -> None:
    roberta = 124_697_433 - 3 * 768  # without two positions and a token type that it never uses
    assert count_parameters(headwise.build("linformer-base", device="meta")) == roberta + 256 * 512


def test_it_learns_masked_words_from_distant_context() -> None:
    """The last word is the first one again, with words that say nothing between them."""
    torch.manual_seed(0)
    model = headwise.build("linformer-tiny", vocab=13, task="masked", dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def texts(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.randint(4, 12, (rows, 30))
        labels = torch.zeros_like(ids)
        labels[:, -1] = ids[:, 0]
        ids[:, -1] = model.mask_id
        return ids, labels

    for _ in range(130):
        ids, labels = texts(32)
        optimizer.zero_grad()
        loss = model(ids, labels=labels)
        (loss.total / loss.count).backward()
        optimizer.step()
    ids, labels = texts(256)
    guessed = model.eval()(ids)[:, -1].argmax(-1)
    assert (guessed == labels[:, -1]).float().mean() > 0.95  # by chance 0.125


def test_a_text_over_the_limit_is_refused() -> None:
    model = headwise.build("linformer-tiny", vocab=13, task="masked", positions="sinusoid")
    with pytest.raises(UserError, match="linformer: has 64 positions, too few for 71 tokens"):
        model(torch.randint(4, 12, (1, 70)))
