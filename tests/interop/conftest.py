"""A model with clear choices, on which engines must agree, and tokenisers of other programs."""

import io
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD, SPECIALS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

sys.path.insert(0, str(Path(__file__).parent))  # gguf_files.py
LETTERS = "abcdefgh"


@dataclass(frozen=True)
class Trained:
    config: TransformerConfig
    model: EncoderDecoder
    tokenisers: Tokenisers
    sources: list[list[int]]  # not seen in training


def _pad(rows: list[list[int]]) -> torch.Tensor:
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
        source = _pad([[*word, EOS] for word in batch])
        target_in = _pad([[BOS, *reversed(word)] for word in batch])
        labels = _pad([[*reversed(word), EOS] for word in batch])
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
    trained = (engine.id_to_piece(i) for i in range(engine.get_piece_size()))
    names = ["</s>", "<unk>", ">>deu<<", *(piece for piece in trained if piece not in SPECIALS), "<pad>"]
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


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.layers": "blk", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}  # fmt: skip


@pytest.fixture(scope="session")
def llama_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    rotary = {"rope_type": "default", "rope_theta": 500.0}
    return LlamaForCausalLM(
        LlamaConfig(
            **sizes, vocab_size=281, intermediate_size=40, rms_norm_eps=1e-3, initializer_range=0.3,
            rope_parameters=rotary, bos_token_id=280, eos_token_id=280,
        )
    ).eval()  # fmt: skip


@pytest.fixture(scope="session")
def llama_metadata(engines: dict[str, Any]) -> dict[str, Any]:
    """The metadata of `llama_model` in a GGUF file."""
    engine = engines["gpt2"]
    pieces = sorted(engine["model"]["vocab"], key=engine["model"]["vocab"].get)
    return {
        "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 64,
        "llama.embedding_length": 32, "llama.feed_forward_length": 40, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.freq_base": 500.0, "llama.rope.dimension_count": 8,
        "llama.attention.layer_norm_rms_epsilon": 1e-3, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*pieces, "<|endoftext|>"], "tokenizer.ggml.token_type": [1] * 280 + [3],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in engine["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 280, "tokenizer.ggml.eos_token_id": 280,
        "tokenizer.ggml.add_bos_token": True,
    }  # fmt: skip


@pytest.fixture(scope="session")
def llama_tensors(llama_model: LlamaForCausalLM) -> dict[str, tuple[tuple[int, ...], int, bytes]]:
    """The tensors of `llama_model` in a GGUF file."""
    tensors = {}
    for name, tensor in llama_model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            tensor = permute_rows(tensor, 4 if "q_proj" in name else 2)
        for hf_name, gguf_name in GGUF_NAMES.items():
            name = name.replace(hf_name, gguf_name)
        tensors[name] = (tuple(tensor.shape), 0, tensor.numpy().tobytes())
    return tensors


def permute_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The row order of llama.cpp: channels that rotate together are adjacent."""
    pairs = weight.view(heads, 2, -1, weight.shape[1])
    return torch.stack((pairs[:, 0], pairs[:, 1]), dim=2).reshape(weight.shape)
