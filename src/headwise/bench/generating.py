"""Engines that continue the same prompts with the same random GPT-2, greedily, for a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from headwise.bench.gpt import build_ours, build_transformers
from headwise.bench.jobs import GenerateJob
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.int8 import quantize
from headwise.decode.int8_screen import prepare_for_cpu
from headwise.models.language_model import LanguageModel
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK

Outputs = list[list[int]]


def random_prompts(job: GenerateJob) -> Outputs:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(len(SPECIALS), job.shape.vocab, (job.rows, job.prompt), generator=generator).tolist()


def headwise(job: GenerateJob, int8: bool) -> Callable[[], Outputs]:
    texts, limits = random_prompts(job), {"max_ratio": 0, "max_extra": job.length, "max_length": job.length}
    config = DecodeConfig(beams=1, tokens_per_batch=job.rows * (job.prompt + 1), **limits)
    model = quantize(random_model(job)) if int8 else prepare_for_cpu(random_model(job), config)
    return lambda: [list(hypotheses[0].ids) for hypotheses in decode(model, texts, config)]


def transformers(job: GenerateJob) -> Callable[[], Outputs]:
    """Hugging Face `generate`, with the start token that ours adds to a prompt."""
    model = build_transformers(job.shape).eval()
    ours = random_model(job)
    model.load_state_dict(to_hf_weights(ours))
    model.tie_weights()
    ids = torch.tensor([[ours.start_id, *prompt] for prompt in random_prompts(job)])
    settings = {"max_new_tokens": job.length, "min_new_tokens": job.length, "do_sample": False, "num_beams": 1}

    def run() -> Outputs:
        with torch.inference_mode():
            output = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        return output[:, ids.shape[1] :].tolist()

    return run


def random_model(job: GenerateJob) -> LanguageModel:
    """A model that never generates the end token: its row of the tied table is zero."""
    torch.manual_seed(0)
    model: LanguageModel = build_ours(job.shape).eval().requires_grad_(False)
    model.decoder.head.table.weight[: EOS + 1] = 0
    return model


def to_hf_weights(model: LanguageModel) -> dict[str, torch.Tensor]:
    """Our weights under the names of Hugging Face."""
    from headwise.interop.hf.gpt import GPT2
    from headwise.interop.hf.weights import Vocabularies, build_state_dict
    from headwise.text.hf import VocabularyMap

    vocabulary_map = VocabularyMap(model.vocab, PAD, BOS, EOS, UNK)
    weights = build_state_dict(model, GPT2, Vocabularies(vocabulary_map, vocabulary_map))
    return weights | {"lm_head.weight": weights["transformer.wte.weight"]}


ENGINES: dict[str, Callable[[GenerateJob], Callable[[], Outputs]]] = {
    "headwise": partial(headwise, int8=False),
    "headwise-int8": partial(headwise, int8=True),
    "transformers": transformers,
}


def build_benchmark(job: GenerateJob) -> Callable[[], Outputs]:
    """The function to time."""
    return ENGINES[job.engine](job)
