"""Small `tokenizer.json` files of each kind, trained on a few sentences, and folders of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from headwise.interop.hf.tokenizer_classes import CLASSES, VERBATIM

TEXT = [
    "the cat sat on the mat", "a dog and a cat don't sit", "The Dog ran to the mat 1234 times, naïve cats!",
    "東京 cats", "``quoted'' words: sums of 3.5 and 2", "Zürich, Crème brûlée and straße", "sat\tand ran\nand sat",
] * 4  # fmt: skip
# Casing, accents, CJK, emoji, spaces, line breaks, control characters, special tokens in a text, empty text.
SAMPLES = [
    "the cat sat", "The CAT Sat", "THE MAT", "naïve Crème brûlée", "Zu\u0308rich straße", "東京の猫 cats",
    "cat東京dog", "👍🏽 cats 🎉👨\u200d👩\u200d👧", " the cat", "the cat ", "  the  cat  ", "the   dog", "\nthe cat",
    "the\ncat\n\nsat", "the\tcat\r\n", "cat\x00dog \x07ran\x1b", "\u200bcat\ufeff dog\xa0mat",
    "don't can't I'm", "3.5 and 1234", "``quoted'' words", "<s> the </s> cat", "the[MASK]cat [SEP]",
    "cat <mask> sat <unk> ran", "[UNK] and [PAD] <pad>", "<extra> the cat<extra>", "<word>cat <word> dog",
    "Ünïcödé ﬁne ½ ﷺ", "a.b,c;d!e?f", "ran . sat , cat ! the dog 's mat", "▁cat ▁▁dog", "ab" * 60, "",
    "<new> cat <new1><new2> dog<new3> <new4>", "<extra_id_0> the <extra_id_2>cat en_XX de_DE <unk_3> <mask_1>",
]  # fmt: skip


@cache
def train(kind: str, specials: tuple[str, ...]) -> dict[str, Any]:
    """A `tokenizer.json` with special tokens first, one further special token, and one that is not special."""
    engine, trainer = BUILDERS[kind](list(specials))
    engine.train_from_iterator(TEXT, trainer)
    engine.add_special_tokens(["<extra>"])
    engine.add_tokens(["<word>"])
    data: dict[str, Any] = json.loads(engine.to_str())
    return data


@cache
def train_charsmap() -> bytes:
    """The normalizer of a SentencePiece model: field 2 (precompiled_charsmap) of its field 3 (normalizer_spec)."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    return read_fields(read_fields(model.getvalue())[3])[2]


def read_fields(message: bytes) -> dict[int, bytes]:
    """The last value of each field of a protocol buffer that has a length."""
    fields, start = {}, 0

    def read_number() -> int:
        nonlocal start
        number = shift = 0
        while True:
            byte = message[start]
            start, number, shift = start + 1, number | (byte & 127) << shift, shift + 7
            if byte < 128:
                return number

    while start < len(message):
        tag = read_number()
        if tag & 7 == 2:
            size = read_number()
            fields[tag >> 3] = message[start : start + size]
            start += size
        elif tag & 7 == 5:
            start += 4
        else:
            read_number()
    return fields


def word_piece(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.WordPiece(unk_token=specials[1]))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    return engine, trainers.WordPieceTrainer(vocab_size=140, special_tokens=specials, show_progress=False)


def byte_bpe(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return engine, trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )


def byte_fallback_bpe(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.BPE(unk_token=specials[0], byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(steps)
    tokens = [*specials, *(f"<0x{byte:02X}>" for byte in range(256))]
    return engine, trainers.BpeTrainer(vocab_size=380, special_tokens=tokens, show_progress=False)


def space_bpe(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.BPE(unk_token=specials[0], fuse_unk=True))
    engine.normalizer = normalizers.Sequence([normalizers.Precompiled(train_charsmap())])
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return engine, trainers.BpeTrainer(vocab_size=140, special_tokens=specials, show_progress=False)


def word_bpe(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.BPE(unk_token=specials[0], end_of_word_suffix="</w>"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.BPEDecoder()
    return engine, trainers.BpeTrainer(
        vocab_size=140, special_tokens=specials, end_of_word_suffix="</w>", show_progress=False
    )


def unigram(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.Unigram())
    engine.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Precompiled(train_charsmap())])
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    unknown = next(token for token in specials if "unk" in token.lower())
    return engine, trainers.UnigramTrainer(
        vocab_size=140, special_tokens=specials, unk_token=unknown, show_progress=False
    )


def word_level(specials: list[str]) -> tuple[Tokenizer, Any]:
    engine = Tokenizer(models.WordLevel(unk_token=specials[1]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return engine, trainers.WordLevelTrainer(vocab_size=60, special_tokens=specials, show_progress=False)


BUILDERS = {
    "word_piece": word_piece, "byte_bpe": byte_bpe, "byte_fallback_bpe": byte_fallback_bpe, "word_bpe": word_bpe,
    "space_bpe": space_bpe,
    "unigram": unigram, "word_level": word_level,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A model type, the tokenizer class that its folders name, and the tokens that begin its vocabulary."""

    model_type: str
    name: str
    kind: str
    specials: Sequence[str]

    @property
    def roles(self) -> dict[str, str | None]:
        return dict(CLASSES[self.name].tokens)


ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FUNNEL_SPECIALS = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>")
ALBERT_SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
MAIN = {
    "bert": Family("bert", "BertTokenizer", "word_piece", BERT_SPECIALS),
    "gpt2": Family("gpt2", "GPT2Tokenizer", "byte_bpe", ("<|endoftext|>",)),
    "llama": Family("llama", "LlamaTokenizer", "byte_fallback_bpe", ("<unk>", "<s>", "</s>")),
    "t5": Family("t5", "T5Tokenizer", "unigram", ("<pad>", "</s>", "<unk>")),
    "roberta": Family("roberta", "RobertaTokenizer", "byte_bpe", ROBERTA_SPECIALS),
    "deberta-v2": Family("deberta-v2", "DebertaV2Tokenizer", "unigram", BERT_SPECIALS),
    "words": Family("gpt2", VERBATIM, "word_level", ("<pad>", "<unk>", "<s>", "</s>")),
}
OTHERS = {
    "deberta": Family("deberta", "DebertaTokenizer", "byte_bpe", BERT_SPECIALS),
    "albert": Family("albert", "AlbertTokenizer", "unigram", ALBERT_SPECIALS),
    "fnet": Family("fnet", "FNetTokenizer", "unigram", ALBERT_SPECIALS),
    "big_bird": Family("big_bird", "BigBirdTokenizer", "unigram", ("<pad>", "</s>", "<s>", *ALBERT_SPECIALS[1:])),
    "xlm-roberta": Family("xlm-roberta", "XLMRobertaTokenizer", "unigram", ROBERTA_SPECIALS),
    "mbart": Family("mbart", "MBartTokenizer", "unigram", (*ROBERTA_SPECIALS, "en_XX", "de_DE")),
    "mbart50": Family("mbart", "MBart50Tokenizer", "unigram", (*ROBERTA_SPECIALS, "en_XX", "de_DE")),
    "pegasus": Family("pegasus", "PegasusTokenizer", "unigram", ("<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk>")),
    "gpt_neox": Family("gpt_neox", "GPTNeoXTokenizer", "byte_bpe", ("<|endoftext|>", "<|padding|>")),
    "qwen2": Family("qwen2", "Qwen2Tokenizer", "byte_bpe", ("<|endoftext|>",)),
    "openai-gpt": Family("openai-gpt", "OpenAIGPTTokenizer", "word_bpe", ("<unk>",)),
    "funnel": Family("funnel", "FunnelTokenizer", "word_piece", FUNNEL_SPECIALS),
    "reformer": Family("reformer", "ReformerTokenizer", "space_bpe", ("<unk>", "</s>")),
    "longformer": Family("longformer", "RobertaTokenizer", "byte_bpe", ROBERTA_SPECIALS),
    "modernbert": Family("modernbert", VERBATIM, "byte_bpe", BERT_SPECIALS),
}  # fmt: skip
FAMILIES = MAIN | OTHERS


def write_folder(folder: Path, family: Family, **files: Mapping[str, Any] | None) -> Path:
    """A folder with `config.json` and tokenizer files; `files` replaces contents, None leaves a file out."""
    contents: dict[str, Mapping[str, Any] | None] = {
        "config": {"model_type": family.model_type},
        "tokenizer": train(family.kind, tuple(family.specials)),
        "tokenizer_config": {"tokenizer_class": family.name},
        **files,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        if data is not None:
            (folder / f"{name}.json").write_text(json.dumps(data))
    return folder
