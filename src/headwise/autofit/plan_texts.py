"""Choose tokeniser, model and schedule for texts: pairs, labels, tags, answers, plain texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwise.autofit.budget import ENOUGH_STEPS, Budget, count_nouns, explain_size, limit_vocabulary, measure_speed
from headwise.autofit.statistics import Side, Statistics, choose_bpe_size, choose_tokeniser
from headwise.tasks.tables import task_config

# width, heads, layers: each step up costs about three times as much
ENCODER_DECODERS = ((64, 4, 2), (128, 4, 3), (192, 6, 4), (256, 4, 4), (512, 8, 6))
ENCODERS = ((64, 4, 1), (128, 4, 2), (192, 6, 3), (256, 8, 4), (384, 6, 6))
DECODERS = ((64, 4, 2), (128, 4, 4), (192, 6, 4), (256, 8, 6), (384, 6, 6), (512, 8, 8))
POOLER_STEPS = 6000  # from which BERT's pooler is learnt, which transformers has; mean pooling learns sooner
MAX_TOKENS = 512  # of a text that is classified; the rest is cut
MAX_WORDS = 4096  # of a text whose words have tags, or that has an answer; longer ones are left out

Settings = tuple[dict[str, Any], tuple[str, ...]]


def plan_pairs(statistics: Statistics, minutes: float, kind: str = "") -> Settings:
    """An encoder-decoder (Vaswani et al. 2017) that transformers can load: with a shared vocabulary pre-norm layers, as
    Pegasus has, otherwise post-norm layers, as Marian has."""
    sides = statistics.source, statistics.target
    largest = choose_bpe_size(statistics.rows * sum(side.mean_words for side in sides))
    kinds = [choose_tokeniser(side, largest)[0]["kind"] for side in sides]
    tokens = statistics.rows * sum(_count_tokens(side, kind) for side, kind in zip(sides, kinds, strict=True))
    vocabulary = limit_vocabulary(largest if "bpe" in kinds else 0)
    budget = Budget(minutes, tokens, measure_speed())
    (width, heads, depth), epochs = budget.choose(ENCODER_DECODERS, 2, vocabulary)
    size = vocabulary(width, depth)
    (tokeniser, source_reason), (target, target_reason) = (choose_tokeniser(side, size) for side in sides)
    if tokeniser != target:
        tokeniser = {**tokeniser, "target": target}
    elif tokeniser["kind"] == "bpe" and statistics.same_alphabet:
        tokeniser = {**tokeniser, "shared": True}
        target_reason += "; both sides are written in the same letters and share one vocabulary"
    dropout = _choose_dropout(epochs)
    batch, warmup = budget.choose_batch(epochs, 1024, 4096)
    model = {
        "kind": "transformer", "width": width, "heads": heads, "encoder": {"depth": depth}, "decoder": {"depth": depth},
        "wiring": "pre" if tokeniser.get("shared") else "post", "dropout": dropout,
    }  # fmt: skip
    train = {
        "minutes": minutes,
        "tokens_per_batch": batch,
        "schedule": {"kind": "cosine", "lr": min(4e-3, 0.25 / width), "warmup": warmup},
        "optimizer": {"kind": "adamw"},
    }
    return {"tokeniser": tokeniser, "model": model, "train": train}, (
        f"source: {source_reason}; target: {target_reason}",
        f"a Transformer of width {width} with {depth} + {depth} layers: {explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay over the whole time, batches of {batch:,} tokens",
    )


def plan_encoder(statistics: Statistics, minutes: float, kind: str = "classify") -> Settings:
    """A small BERT with a head, for one label or number a text, tags, or spans."""
    spans = task_config(kind).fits == "spans"
    cuts = not task_config(kind).one_to_one and not spans
    if spans:
        tokeniser, reason, length, longest = _choose_span_tokens(statistics)
    else:
        tokeniser, reason, length, longest = _choose_encoder_tokens(statistics.source, cuts)
    budget = Budget(minutes, statistics.rows * (min(length, longest) + 1), measure_speed())
    (width, heads, depth), epochs = budget.choose(ENCODERS)
    _, warmup = budget.choose_batch(epochs, round(32 * length), round(32 * length))
    # Where an answer begins is learnt late and at once: after some thousand steps, and with no progress before.
    epochs = min(epochs, max(20.0, 2 * ENOUGH_STEPS * 32 / statistics.rows) if spans else 20.0)
    pool = "pooler" if epochs * statistics.rows / 32 >= POOLER_STEPS else "mean"
    dropout = 0.1 if statistics.rows > 200_000 or spans else 0.3
    model = {
        "kind": "bert", "width": width, "heads": heads, "depth": depth, "hidden": 2 * width, "dropout": dropout,
        "pool": pool, "positions": {"kind": "learned", "max_length": max(longest + 3, 512)},
    }  # fmt: skip
    train: dict[str, Any] = {
        "minutes": minutes,
        "epochs": max(round(epochs), 3),
        "batch_size": 32,
        "schedule": {"kind": "cosine", "lr": 0.001, "warmup": min(warmup, 100)},
        "optimizer": {"kind": "adamw", "weight_decay": 0.01},
        "patience": 0 if spans else 4,
    }
    if length > 128:  # of long texts, attention in batches of 32 does not fit in every memory
        train["tokens_per_batch"] = train.pop("batch_size") * 128
    data = {"max_length": max(longest, MAX_TOKENS - 3), "truncate": cuts}
    return {"tokeniser": tokeniser, "model": model, "train": train, "data": data}, (
        reason,
        f"a BERT encoder of width {width} with {count_nouns(depth, 'layer')}: {explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay, batches of 32 texts{'' if spans else ', early stopping'}",
    )


def _choose_span_tokens(statistics: Statistics) -> tuple[dict[str, Any], str, float, int]:
    """Word pieces for texts with answers, the reason, and about how many a text has, on average and at most."""
    side = statistics.source
    size = choose_bpe_size(statistics.rows * side.mean_words)
    reason = f"answers are parts of the text, also rare words: {size:,} word pieces (BPE), so that none is unknown"
    return {"kind": "bpe", "size": size}, reason, 2 * side.mean_words, min(3 * side.most_words, MAX_WORDS)


def _choose_encoder_tokens(side: Side, cuts: bool) -> tuple[dict[str, Any], str, float, int]:
    """Tokeniser of the texts of an encoder, the reason, and the tokens of a text on average and at most."""
    if cuts and (side.mean_words <= 2 or side.mean_characters > 15 * side.mean_words):
        what = "short texts" if side.mean_words <= 2 else "texts without spaces between words"
        reason = f"{what}, of {side.mean_characters:.0f} characters on average: one token a character"
        return {"kind": "characters"}, reason, side.mean_characters, min(side.longest, MAX_TOKENS)
    cut = min(side.most_words, MAX_TOKENS if cuts else MAX_WORDS)
    reason = f"texts of {side.mean_words:.0f} words on average: one token a word that occurs twice or more"
    if cut < side.most_words:
        reason += f"; what comes after {cut} words is not read" if cuts else f"; those of more than {cut} are left out"
    if not cuts:  # each word gets a tag, also one that was never seen
        reason += "; rarer words by their capitals, digits and endings"
    return {"kind": "words", "min_count": 2, "classes": not cuts}, reason, side.mean_words, cut


def plan_language_model(statistics: Statistics, minutes: float, kind: str = "") -> Settings:
    """A LLaMA on characters or word pieces, which learns faster than a GPT-2 of the same size."""
    characters = statistics.characters
    by_character = characters < 2_000_000
    largest = choose_bpe_size(characters / 6)
    tokens = characters if by_character else characters / 4
    vocabulary = limit_vocabulary(0 if by_character else largest)
    budget = Budget(minutes, tokens, measure_speed())
    (width, heads, depth), epochs = budget.choose(DECODERS, outputs=vocabulary)
    size = vocabulary(width, depth)
    tokeniser: dict[str, Any] = {"kind": "characters"} if by_character else {"kind": "bpe", "size": size}
    context = 64 if minutes < 3 else 128 if minutes < 30 else 256
    batch, warmup = budget.choose_batch(epochs, max(1024, 8 * context), 32 * context)
    dropout = _choose_dropout(epochs)
    model = {
        "kind": "llama", "width": width, "heads": heads, "depth": depth, "hidden": 3 * width, "tie": "auto",
        "dropout": dropout,
    }  # fmt: skip
    train = {
        "minutes": minutes,
        "batch_size": batch // context,
        "label_smoothing": 0.0,
        "schedule": {"kind": "cosine", "lr": min(6e-3, 0.4 / width), "warmup": min(warmup, 100)},
        "optimizer": {"kind": "adamw", "betas": [0.9, 0.99], "weight_decay": 0.1},
        "validate_every": 500,
    }
    unit = "one token a character" if by_character else f"{size:,} word pieces (BPE)"
    return {"task": {"context": context}, "tokeniser": tokeniser, "model": model, "train": train}, (
        f"{characters:,} characters: {unit}",
        f"a LLaMA of width {width} with {depth} layers and a context of {context} tokens: {explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay over the whole time",
    )


PLANNERS: dict[str, Callable[[Statistics, float, str], Settings]] = {
    "pairs": plan_pairs,
    "labelled": plan_encoder,
    "numbers": plan_encoder,
    "tagged": plan_encoder,
    "spans": plan_encoder,
    "texts": plan_language_model,
}


def _count_tokens(side: Side, kind: str) -> float:
    """Tokens of a text on average, roughly."""
    return {"words": side.mean_words, "bpe": 1.3 * side.mean_words}.get(kind, side.mean_characters) + 1


def _choose_dropout(epochs: float) -> float:
    return 0.0 if epochs < 4 else 0.1 if epochs < 40 else 0.2
