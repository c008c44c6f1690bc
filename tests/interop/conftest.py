"""A model with clear choices, on which engines must agree, and tokenisers of other programs."""

import io
import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD, SPECIALS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

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


MORE_TEXT = [*TEXT, "the dog ran to the mat 1234 times", "naïve cats, dogs!"] * 2


def gpt2() -> Tokenizer:
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder, engine.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_position_bias=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    engine.train_from_iterator(MORE_TEXT, trainer)
    engine.add_special_tokens(["<|endoftext|>"])
    return engine


def llama() -> Tokenizer:
    engine = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fall = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(fall)
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    engine.train_from_iterator(MORE_TEXT, trainer)
    engine.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    data = json.loads(engine.to_str())
    data["added_tokens"] = data["added_tokens"][:3]  # bytes are pieces like others
    return Tokenizer.from_str(json.dumps(data))


def bert() -> Tokenizer:
    engine = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    engine.train_from_iterator(
        MORE_TEXT, trainers.WordPieceTrainer(vocab_size=80, special_tokens=specials, show_progress=False)
    )
    return engine


@pytest.fixture(scope="session")
def engines() -> dict[str, dict[str, Any]]:
    """`tokenizer.json` as the folders of three models have it, with a small vocabulary."""
    return {make.__name__: json.loads(make().to_str()) for make in (gpt2, llama, bert)}
