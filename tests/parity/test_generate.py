"""Search by the convention of `generate`: random models of six architectures, 204 prompts, the tokens of transformers.

Both sides run in float64; `generate` itself casts logits to float32, as we do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig
from transformers.utils import logging

from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, use_threads
from headwise.decode.generation_config import from_generation_config
from headwise.decode.generator import NextTokenScorer, Request
from headwise.decode.sample import next_token_probabilities
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.text import BOS, EOS

logging.disable_progress_bar()
logging.set_verbosity_error()
VOCAB = 37
STEPS = 10  # most new tokens
PROMPTS = 34  # of each architecture, of two lengths
DECODER = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44,
    "max_position_embeddings": 64, "num_key_value_heads": 2,
}  # fmt: skip
SIDES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 40,
}  # fmt: skip
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**DECODER, "bos_token_id": 1}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**DECODER, "bos_token_id": 1, "sliding_window": None}),
    "bart": (
        "BartConfig", "BartForConditionalGeneration",
        {**SIDES, "pad_token_id": 1, "bos_token_id": 0},
    ),
    "marian": (
        "MarianConfig", "MarianMTModel", {**SIDES, "pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1}
    ),
    "t5": (
        "T5Config", "T5ForConditionalGeneration",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
         "decoder_start_token_id": 0},
    ),
}  # fmt: skip


@dataclass
class Pair:
    """A random model of transformers, the same model here, and prompts for both."""

    name: str
    theirs: Any
    imported: ImportedModel
    prompts: list[list[int]]  # our ids

    @property
    def order(self) -> Tensor:
        """Our ids -> theirs."""
        return torch.tensor(self.imported.vocabularies.source.hf_ids)

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(self.theirs.config.is_encoder_decoder)

    @property
    def skipped(self) -> int:
        """Tokens of their outputs that are not in ours: the decoder start, and the BOS that BART generates."""
        return 1 + (self.name == "bart") if self.is_encoder_decoder else 0

    def to_our_id(self, token: int) -> int:
        return self.imported.vocabularies.source.headwise_ids[token]

    def batches(self) -> list[list[list[int]]]:
        """The prompts by length: `generate` pads a batch, and its processors do not ignore padding."""
        lengths = sorted({len(prompt) for prompt in self.prompts})
        return [[prompt for prompt in self.prompts if len(prompt) == length] for length in lengths]

    def inputs(self, prompts: list[list[int]]) -> Tensor:
        """Their input ids."""
        before = [BOS] if self.name in ("llama", "mistral", "bart") else []
        after = [EOS] if self.is_encoder_decoder else []
        return self.order[torch.tensor([[*before, *prompt, *after] for prompt in prompts])]

    def generate(self, prompts: list[list[int]], settings: dict[str, Any], **more: Any) -> Any:
        ids = self.inputs(prompts)
        config = GenerationConfig(**{**self.special_tokens(), "max_new_tokens": STEPS, **settings})
        return self.theirs.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=config, return_dict_in_generate=True, **more
        )

    def special_tokens(self) -> dict[str, int]:
        config = self.theirs.config
        start = {"decoder_start_token_id": config.decoder_start_token_id} if self.is_encoder_decoder else {}
        forced = {"forced_bos_token_id": 0} if self.name == "bart" else {}
        if self.name in ("bart", "marian"):
            forced["forced_eos_token_id"] = config.eos_token_id
        pad = config.pad_token_id if config.pad_token_id is not None else 0
        return {"eos_token_id": config.eos_token_id, "pad_token_id": pad, **start, **forced}

    def config(self, settings: dict[str, Any]) -> DecodeConfig:
        values = {**self.special_tokens(), "max_new_tokens": STEPS, **settings}
        ours = from_generation_config(values, self.to_our_id)
        return validate(DecodeConfig, {**ours, "marked": self.name != "gpt2"})

    def cut(self, row: list[int], prompt_length: int) -> list[int]:
        """The new tokens of an output of theirs, without EOS and padding."""
        tokens = row[prompt_length:]
        end = self.theirs.config.eos_token_id
        return tokens[: tokens.index(end)] if end in tokens else tokens


def create(name: str, **settings: Any) -> Any:
    config, model, sizes = ARCHITECTURES[name]
    torch.manual_seed(7)
    settings = {"bos_token_id": settings["eos_token_id"], **sizes, **settings}
    if name == "bart":
        settings["decoder_start_token_id"] = settings["eos_token_id"]
    if name in ("bart", "marian"):
        settings["forced_eos_token_id"] = settings["eos_token_id"]
    theirs = getattr(transformers, model)(getattr(transformers, config)(vocab_size=VOCAB, **settings)).eval()
    if name == "bart":
        theirs.generation_config.forced_bos_token_id = 0
    with torch.no_grad():
        for weight in filter(lambda weight: weight.requires_grad, theirs.parameters()):  # sinusoids stay sinusoids
            weight.add_(0.25 * torch.randn_like(weight))  # outputs that vary, with logits far enough apart
        if name == "marian":  # which would end too rarely
            theirs.final_logits_bias[:, settings["eos_token_id"]] = 1.5
    return theirs


def build_pair(name: str, folder: Path) -> Pair:
    """A pair whose EOS is a token that the random model likes to generate, so that hypotheses end at many lengths."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(5, VOCAB - 1, (12, 6), generator=generator)
    probe = create(name, eos_token_id=3)
    config = GenerationConfig(
        max_new_tokens=10, do_sample=True, top_k=0, pad_token_id=0, eos_token_id=None,
        decoder_start_token_id=getattr(probe.config, "decoder_start_token_id", None),
    )  # fmt: skip
    outputs = probe.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    counts = Counter(token for token in outputs[:, -10:].flatten().tolist() if 4 < token < VOCAB - 1)
    end = counts.most_common(2)[-1][0]
    theirs = create(name, eos_token_id=end)
    theirs.save_pretrained(folder)
    imported = read_folder(folder)
    imported.model.double()
    lengths = [5] * (PROMPTS // 2) + [8] * (PROMPTS // 2)
    prompts = [torch.randint(5, VOCAB - 1, (length,), generator=generator).tolist() for length in lengths]
    return Pair(name, theirs.double(), imported, prompts)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with use_threads(1), torch.inference_mode():
        yield build_pair(request.param, tmp_path_factory.mktemp(request.param))


SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams-4": {"num_beams": 4},
    "beams-5-never": {"num_beams": 5, "early_stopping": "never", "length_penalty": 2.0},
    "beams-4-first": {"num_beams": 4, "early_stopping": True, "length_penalty": 0.5},
    "beams-5-short": {"num_beams": 5, "early_stopping": "never", "length_penalty": -1.0},
    "processed": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
    "beams-4-processed": {
        "num_beams": 4, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 6,
        "suppress_tokens": [9, 20], "bad_words_ids": [[12], [14, 15]],
    },
}  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES)
@torch.inference_mode()
def test_tokens_are_those_of_generate(pair: Pair, search: str) -> None:
    settings = SEARCHES[search]
    nbest = settings.get("num_beams", 1)
    outputs = []
    for prompts in pair.batches():
        wide = {**settings, "num_return_sequences": nbest}
        theirs = pair.generate(prompts, wide, output_scores=True)
        ours = decode(pair.imported.model, prompts, pair.config(wide))
        before = pair.skipped or pair.inputs(prompts).shape[1]
        expected = [pair.cut(row, before) for row in theirs.sequences.tolist()]
        hypotheses = [hypothesis for found in ours for hypothesis in found]
        assert [pair.order[list(hypothesis.ids)].tolist() for hypothesis in hypotheses] == expected
        if nbest > 1:
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert scores == pytest.approx(theirs.sequences_scores.tolist(), rel=2e-6, abs=2e-6)
        outputs += expected
    assert search != "beams-4" or len({len(output) for output in outputs}) > 3  # hypotheses end at many lengths


@pytest.mark.parametrize("beams", [1, 4])
@torch.inference_mode()
def test_several_end_tokens_end_as_in_generate(pair: Pair, beams: int) -> None:
    prompts, ends = pair.batches()[0][:6], [pair.theirs.config.eos_token_id, *range(10, 20)]
    settings = {"num_beams": beams, "num_return_sequences": beams, "eos_token_id": ends, "early_stopping": "never"}
    sequences = pair.generate(prompts, settings).sequences
    before = pair.skipped or pair.inputs(prompts).shape[1]
    expected = [list(takewhile(lambda token: token not in ends, row)) for row in sequences[:, before:].tolist()]
    outputs = decode(pair.imported.model, prompts, pair.config(settings))
    assert [pair.order[list(hypothesis.ids)].tolist() for nbest in outputs for hypothesis in nbest] == expected


PROCESSORS: dict[str, dict[str, Any]] = {
    "penalties": {"repetition_penalty": 1.7, "encoder_repetition_penalty": 1.5},
    "ngrams": {"no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 3, "bad_words_ids": [[12], [14, 15], [7, 8]]},
    "lengths": {"min_new_tokens": 5, "suppress_tokens": [8, 21], "begin_suppress_tokens": [9, 30, 31]},
    "total-lengths": {"min_length": 11, "repetition_penalty": 0.8},
    "sampling": {"do_sample": True, "temperature": 1.6, "top_k": 12, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.85},
    "nucleus": {"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 0.8, "repetition_penalty": 1.2},
    "typical": {"do_sample": True, "top_k": 0, "typical_p": 0.6, "renormalize_logits": True},
    "min-p": {"do_sample": True, "top_k": 0, "min_p": 0.1, "no_repeat_ngram_size": 1},
}


def process_their_way(pair: Pair, prompts: list[list[int]], settings: dict[str, Any]) -> tuple[Tensor, list[Tensor]]:
    """A greedy output of theirs, and at each of its steps the scores after all of their processors."""
    greedy = pair.generate(prompts, {}, output_logits=True)
    config = GenerationConfig(**{**pair.special_tokens(), "max_new_tokens": STEPS, **settings})
    config.update(**config._get_default_generation_params(), defaults_only=True, allow_custom_entries=True)
    ids, sequences = pair.inputs(prompts), greedy.sequences
    before = 1 if pair.is_encoder_decoder else ids.shape[1]
    config.max_length = before + STEPS
    config._eos_token_tensor = torch.tensor([pair.theirs.config.eos_token_id])
    processors = pair.theirs._get_logits_processor(config, before, ids, device="cpu", model_kwargs={})
    scores = [processors(sequences[:, : before + n], x.float()) for n, x in enumerate(greedy.logits)]
    return sequences[:, pair.skipped if pair.is_encoder_decoder else before :], scores[pair.name == "bart" :]


@pytest.mark.parametrize("name", PROCESSORS)
@torch.inference_mode()
def test_distributions_after_all_processors_are_those_of_generate(pair: Pair, name: str) -> None:
    """Along a greedy output of theirs, until the first row ends."""
    settings, prompts = PROCESSORS[name], pair.batches()[0][:6]
    written, expected = process_their_way(pair, prompts, settings)
    model, config = pair.imported.model, pair.config(settings)
    request = Request(prompts, config, torch.device("cpu"))
    scorer, tokens = NextTokenScorer(model, request), request.build_first_tokens(model)
    state = model.start(request.build_inputs(model))
    ours = sorted(pair.imported.vocabularies.source.headwise_ids)  # ids that have a row of their own
    alive = torch.ones(len(prompts), dtype=torch.bool)
    for step, scores in enumerate(expected):
        log_probs, state = scorer(tokens, state)
        probabilities = next_token_probabilities(log_probs, config)
        theirs = scores.double().softmax(-1)[:, pair.order[ours]]
        torch.testing.assert_close(probabilities[alive][:, ours], theirs[alive], rtol=0, atol=1e-6)
        alive &= written[:, step] != pair.theirs.config.eos_token_id
        tokens = torch.tensor([pair.to_our_id(token) for token in written[:, step].tolist()])
        scorer.extend(tokens)
