"""Encoders of `transformers` with random weights, and folders of them with a tokeniser of whole words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = 24


def vocabulary(special_ids: Mapping[str, int]) -> list[str]:
    """Words w0, w1, ... with the marks somewhere among them."""
    names = {number: f"[{mark.upper()}]" for mark, number in special_ids.items()}
    return [names.get(number, f"w{number}") for number in range(WORDS)]


def build_noisy_model(name: str, config: Any) -> Any:
    """A model of theirs with every parameter away from its special initial value."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def save(
    model: Any,
    folder: Path,
    special_ids: Mapping[str, int],
    begin: str | None = "cls",
    end: str | None = "sep",
    first_type: int = 0,
) -> Path:
    """A folder as `transformers` writes it, with the special tokens `begin` before a text, of token type `first_type`,
    and `end` after each text of a pair."""
    words = vocabulary(special_ids)
    model.save_pretrained(folder)
    engine = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, words[special_ids["unk"]]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    before, after = ([words[special_ids[name]]] if name else [] for name in (begin, end))
    first, second = (
        [*(f"{token}:{first_type}" for token in before), "$A", *after],
        ["$B:1", *(f"{token}:1" for token in after)],
    )
    engine.post_processor = processors.TemplateProcessing(
        single=first,
        pair=[*first, *second],
        special_tokens=[(token, words.index(token)) for token in {*before, *after}],
    )
    named = {f"{mark}_token": words[number] for mark, number in special_ids.items()}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, model_input_names=inputs, **named).save_pretrained(
        folder
    )
    return folder
