"""Compare what a generator generates in Headwise and in `transformers`: greedy search, and the search that the
folder's `generation_config.json` asks for.

Both sides search with their own loop and KV cache. Sampling is compared as the search of the same settings without it:
tokens that are drawn differ. Stop strings, which need a tokeniser, are left out.

Letters: B inputs, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.generation_config import SAMPLING
from headwise.decode.generator import get_decoder_prefix, get_prefix
from headwise.interop.hf.read import GENERATION_CONFIG, ImportedModel
from headwise.text import BOS, EOS, SPECIALS

NEW_TOKENS = 16
END = "the end"
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


@dataclass(frozen=True)
class SearchComparison:
    """The tokens of one search in both libraries."""

    name: str
    tokens: int  # that were compared
    first_differing: tuple[int, int] | None = None  # numbers of the input and of its token, from 1
    differing_tokens: tuple[str, str] = ("", "")  # of Headwise and of transformers

    @property
    def equal(self) -> bool:
        return self.first_differing is None

    def __str__(self) -> str:
        if self.first_differing is None:
            return f"{self.name}: all {self.tokens} tokens are equal"
        number, position = self.first_differing
        ours, theirs = self.differing_tokens
        return f"{self.name}: token {position} of input {number} differs: {ours} here, {theirs} in transformers"


def compare_searches(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> tuple[SearchComparison, ...]:
    """Compare greedy search and, where the folder asks for another, that of its settings; `ids` (B, T) are prompts or
    sources."""
    steps = min(NEW_TOKENS, imported.context - len(SPECIALS) - (ids.shape[1] if model.continues_prompt else 0))
    limits: dict[str, Any] = {"max_ratio": 0.0, "max_extra": steps, "max_length": steps, "marked": False}
    if model.continues_prompt:
        limits["context"] = imported.context
    ends = imported.decode_settings.get("eos_token_ids", ())
    greedy = validate(DecodeConfig, {"convention": "generate", "eos_token_ids": ends, **limits})
    left_out = {*SAMPLING, "stop", "nbest", "max_total_length"}
    folder_settings = {key: value for key, value in imported.decode_settings.items() if key not in left_out}
    asked = validate(DecodeConfig, {"convention": "generate", **folder_settings, **limits})
    hf_config, hf_greedy = deepcopy(hf_model.generation_config), build_greedy(hf_model, model)
    searches = [compare_search("greedy search", imported, model, hf_model, ids, greedy, hf_greedy)]
    if imported.decode_settings and not is_greedy(asked, greedy):
        samples = bool(imported.decode_settings.get("temperature"))
        name = GENERATION_CONFIG + (" without its sampling" if samples else "")
        searches.append(compare_search(name, imported, model, hf_model, ids, asked, hf_config))
    return tuple(searches)


def is_greedy(config: DecodeConfig, greedy: DecodeConfig) -> bool:
    """Whether a config is greedy search, whatever it says of scores and of the start of texts."""
    unused = {key: getattr(greedy, key) for key in ("length_penalty", "early_stopping", "decoder_start_token_id")}
    return config.beams == 1 and config.replace(**unused) == greedy


def build_greedy(hf_model: Any, model: Any) -> Any:
    """The generation config of greedy search. The first token of BART is always BOS here, so it is forced there."""
    from transformers import GenerationConfig

    config = hf_model.generation_config
    special_ids = {key: getattr(config, key, None) for key in SPECIAL_IDS}
    forced = {"forced_bos_token_id": config.bos_token_id} if get_decoder_prefix(model) else {}
    return GenerationConfig(**special_ids, **forced)


def compare_search(
    name: str, imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor, config: DecodeConfig, hf_config: Any
) -> SearchComparison:
    """Generate in both libraries, with the maximum length of `config`."""
    hf_config.update(
        max_new_tokens=config.max_length, max_length=None, do_sample=False, stop_strings=None, num_return_sequences=1
    )
    order = torch.tensor(imported.vocabularies.target.hf_ids).clamp(min=0)
    start = [BOS] if get_decoder_prefix(model) else []  # which `generate` counts as generated
    ours = [order[[*start, *nbest[0].ids]].tolist() for nbest in decode(model, ids.tolist(), config)]
    ends = hf_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    hf_rows = generate(imported, model, hf_model, ids, hf_config)
    theirs = [list(takewhile(lambda token: token not in ends, row)) for row in hf_rows]
    return compare_rows(name, ours, theirs, name_tokens(imported))


def generate(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor, hf_config: Any) -> list[list[int]]:
    """The new tokens of `generate` for each input, without the start of the decoder."""
    encoder = getattr(model, "encoder", None)
    suffix_id = getattr(encoder, "suffix_id", None)
    end = [EOS] if suffix_id is None else [EOS, suffix_id]
    inputs = (
        ids if model.continues_prompt else torch.tensor([[*get_prefix(encoder), *row, *end] for row in ids.tolist()])
    )
    hf_ids = torch.tensor(imported.vocabularies.source.hf_ids).clamp(min=0)[inputs]
    hf_model.generation_config = hf_config  # as an argument, it would get what it does not say from the model's own
    generated = hf_model.generate(hf_ids, attention_mask=torch.ones_like(hf_ids))
    sequences = getattr(generated, "sequences", generated)  # with output_hidden_states and the like it returns a dict
    rows: list[list[int]] = sequences[:, inputs.shape[1] if model.continues_prompt else 1 :].tolist()
    return rows


def compare_rows(
    name: str, ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], names: Mapping[int, str]
) -> SearchComparison:
    """Find the first token that differs, counted from the start of each row; a row that ended has the end as its next
    token.

    >>> str(compare_rows("greedy search", [[7, 8]], [[7]], {8: "'b'"}))
    "greedy search: token 2 of input 1 differs: 'b' (id 8) here, the end in transformers"
    """

    def describe(row: Sequence[int], position: int) -> str:
        if position == len(row):
            return END
        token = row[position]
        return f"{names[token]} (id {token})" if token in names else f"id {token}"

    pairs = list(zip(ours, theirs, strict=True))
    count = sum(map(len, theirs))
    differing = [(count_equal(*pair), number) for number, pair in enumerate(pairs, 1) if list(pair[0]) != list(pair[1])]
    if not differing:
        return SearchComparison(name, count)
    position, number = min(differing)
    row, other = pairs[number - 1]
    return SearchComparison(name, count, (number, position + 1), (describe(row, position), describe(other, position)))


def count_equal(row: Sequence[int], other: Sequence[int]) -> int:
    """The number of equal tokens at the start of two rows."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(row, other, strict=False)))


def name_tokens(imported: ImportedModel) -> dict[int, str]:
    """Hugging Face ids -> tokens, where the folder has a tokeniser."""
    if imported.tokenisers is None:
        return {}
    words, order = imported.tokenisers.target.vocabulary, imported.vocabularies.target.hf_ids
    return {row: repr(word) for row, word in zip(order, words, strict=False) if row >= 0}
