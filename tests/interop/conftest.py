"""A model that has learnt to write four kinds of letters backwards: its choices are clear, so engines must agree."""

import random
from dataclasses import dataclass

import pytest
import torch

from headwise.blocks.stack import EncoderDecoder
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD
from headwise.text.listed import Characters
from headwise.text.tokenisers import Tokenisers

LETTERS = "abcdefgh"


@dataclass(frozen=True)
class Trained:
    config: TransformerConfig
    model: EncoderDecoder
    tokenisers: Tokenisers
    sources: list[list[int]]  # not seen in training


def _padded(rows: list[list[int]]) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


@pytest.fixture(scope="session")
def reverser() -> Trained:
    torch.manual_seed(3)
    draw = random.Random(3)
    letters = Characters(LETTERS)
    config = TransformerConfig(
        width=48, heads=4, hidden=96, encoder={"depth": 1}, decoder={"depth": 1}, dropout=0, wiring="post"
    )
    model = config.build(letters.size)
    words = [[draw.randrange(4, letters.size) for _ in range(draw.randint(3, 6))] for _ in range(6400)]
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    for start in range(0, len(words), 64):
        batch = words[start : start + 64]
        source = _padded([[*word, EOS] for word in batch])
        target_in = _padded([[BOS, *reversed(word)] for word in batch])
        labels = _padded([[*reversed(word), EOS] for word in batch])
        loss = model(source, target_in, labels=labels)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    unseen = [[draw.randrange(4, letters.size) for _ in range(draw.randint(3, 6))] for _ in range(40)]
    print("loss", float(loss.total / loss.count))
    return Trained(config, model.eval(), Tokenisers(letters, letters), unseen)
