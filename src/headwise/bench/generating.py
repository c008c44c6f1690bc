"""Engines that go on with the same prompts with the same random GPT-2, greedily, for a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from headwise.bench.gpt import ours, theirs
from headwise.bench.jobs import GenerateJob
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.int8 import quantize
from headwise.decode.int8_screen import for_cpu
from headwise.models.language_model import LanguageModel
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK

Outputs = list[list[int]]


def prompts(job: GenerateJob) -> Outputs:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(len(SPECIALS), job.shape.vocab, (job.rows, job.prompt), generator=generator).tolist()


def headwise(job: GenerateJob, int8: bool) -> Callable[[], Outputs]:
    texts, limits = prompts(job), {"max_ratio": 0, "max_extra": job.length, "max_length": job.length}
    config = DecodeConfig(beams=1, tokens_per_batch=job.rows * (job.prompt + 1), **limits)
    model = quantize(random_model(job)) if int8 else for_cpu(random_model(job), config)
    return lambda: [list(found[0].ids) for found in decode(model, texts, config)]


def transformers(job: GenerateJob) -> Callable[[], Outputs]:
    """Hugging Face `generate`, which is given the start mark that ours puts before a prompt."""
    model = theirs(job.shape).eval()
    own = random_model(job)
    model.load_state_dict(weights_of(own))
    model.tie_weights()
    ids = torch.tensor([[own.start_id, *prompt] for prompt in prompts(job)])
    settings = {"max_new_tokens": job.length, "min_new_tokens": job.length, "do_sample": False, "num_beams": 1}

    def run() -> Outputs:
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        return found[:, ids.shape[1] :].tolist()

    return run


def random_model(job: GenerateJob) -> LanguageModel:
    """Its end mark is never the most probable: the row of the table is far from every output."""
    torch.manual_seed(0)
    model: LanguageModel = ours(job.shape).eval().requires_grad_(False)
    model.decoder.head.table.weight[: EOS + 1] = 0
    return model


def weights_of(own: LanguageModel) -> dict[str, torch.Tensor]:
    """Ours under their names."""
    from headwise.interop.hf.gpt import GPT2
    from headwise.interop.hf.weights import Vocabularies, collect
    from headwise.text.hf import Rows

    rows = Rows(own.vocab, PAD, BOS, EOS, UNK)
    found = collect(own, GPT2, Vocabularies(rows, rows))
    return found | {"lm_head.weight": found["transformer.wte.weight"]}


ENGINES: dict[str, Callable[[GenerateJob], Callable[[], Outputs]]] = {
    "headwise": partial(headwise, int8=False),
    "headwise-int8": partial(headwise, int8=True),
    "transformers": transformers,
}


def timed(job: GenerateJob) -> Callable[[], Outputs]:
    """The function to time."""
    return ENGINES[job.engine](job)
