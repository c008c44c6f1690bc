"""A model with clear choices, on which engines must agree, and the vocabulary of a Marian folder."""

import io
import random
from dataclasses import dataclass

import pytest
import sentencepiece
import torch

from headwise.blocks.stack import EncoderDecoder
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD, SPECIALS
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
    """Writes words backwards."""
    torch.manual_seed(3)
    draw = random.Random(3)
    letters = Characters(LETTERS)
    config = TransformerConfig(width=48, heads=4, hidden=96, encoder={"depth": 1}, decoder={"depth": 1}, dropout=0)
    model = config.build(letters.size)
    words = [[draw.randrange(4, letters.size) for _ in range(draw.randint(3, 5))] for _ in range(9600)]
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for start in range(0, len(words), 64):
        batch = words[start : start + 64]
        source = _padded([[*word, EOS] for word in batch])
        target_in = _padded([[BOS, *reversed(word)] for word in batch])
        labels = _padded([[*reversed(word), EOS] for word in batch])
        loss = model(source, target_in, labels=labels)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    unseen = [[draw.randrange(4, letters.size) for _ in range(draw.randint(3, 5))] for _ in range(40)]
    return Trained(config, model.eval(), Tokenisers(letters, letters), unseen)


TEXT = ["the cat sat on the mat", "a dog and a cat", "the dog ran to the mat and sat", "cats and dogs ran"] * 8


@dataclass(frozen=True)
class Pieces:
    model: bytes
    ids: dict[str, int]  # as in the folders of OPUS-MT: the end first, the padding last, no start, and languages


@pytest.fixture(scope="session")
def pieces() -> Pieces:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    engine = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    found = (engine.id_to_piece(i) for i in range(engine.get_piece_size()))
    names = ["</s>", "<unk>", ">>deu<<", *(piece for piece in found if piece not in SPECIALS), "<pad>"]
    return Pieces(model.getvalue(), {piece: number for number, piece in enumerate(names)})
