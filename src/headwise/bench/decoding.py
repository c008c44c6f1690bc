"""Engines that decode the same random model; each returns the function to time.

The bias of the logits forbids padding, start and end tokens, so that every engine generates exactly the maximum length.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from headwise.bench.jobs import DecodeJob
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.int8 import quantize
from headwise.decode.int8_screen import prepare_for_cpu
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD, SPECIALS

Outputs = list[list[int]]
Engine = Callable[[DecodeJob], Callable[[], Outputs]]


def random_model(job: DecodeJob) -> tuple[EncoderDecoder, TransformerConfig]:
    torch.manual_seed(0)
    config = TransformerConfig.model_validate(job.shape.settings)
    model = config.build(job.shape.vocab).eval().requires_grad_(False)
    assert model.decoder.head.bias is not None
    model.decoder.head.bias[[PAD, BOS, EOS]] = -1e4
    return model, config


def random_sources(job: DecodeJob) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(len(SPECIALS), job.shape.vocab, (job.rows, job.source), generator=generator).tolist()


def build_decode_config(job: DecodeJob) -> DecodeConfig:
    rows = job.rows * job.beams
    return DecodeConfig(
        beams=job.beams, max_length=job.length, max_extra=job.length, tokens_per_batch=rows * (job.source + 1)
    )


def best_ids(results: list[list[Hypothesis]]) -> Outputs:
    return [list(hypotheses[0].ids) for hypotheses in results]


def headwise(job: DecodeJob) -> Callable[[], Outputs]:
    sources, config = random_sources(job), build_decode_config(job)
    model = prepare_for_cpu(random_model(job)[0], config)
    return lambda: best_ids(decode(model, sources, config))


def headwise_int8(job: DecodeJob) -> Callable[[], Outputs]:
    model, sources, config = quantize(random_model(job)[0]), random_sources(job), build_decode_config(job)
    return lambda: best_ids(decode(model, sources, config))


def marian(job: DecodeJob) -> Callable[[], Outputs]:
    """Hugging Face `MarianMTModel.generate`."""
    from transformers import GenerationConfig, MarianMTModel
    from transformers.utils import logging

    from headwise.interop.hf.write import write_folder

    logging.disable_progress_bar()
    with TemporaryDirectory() as parent:
        write_folder(*random_model(job), "transduce", None, Path(parent, "marian"))
        model = MarianMTModel.from_pretrained(Path(parent, "marian")).eval()
    special_ids = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    # Without the bad_words_ids of exported folders, whose check would cost it time.
    model.generation_config = GenerationConfig(max_new_tokens=job.length + 1, num_beams=job.beams, **special_ids)
    sources = torch.tensor([[*source, EOS] for source in random_sources(job)])
    mask = torch.ones_like(sources)

    @torch.inference_mode()
    def run() -> Outputs:
        return model.generate(sources, attention_mask=mask)[:, 1 : job.length + 1].tolist()

    return run


def ctranslate2(job: DecodeJob, int8: bool = False) -> Callable[[], Outputs]:
    import ctranslate2  # noqa: F401  (a missing peer is reported before anything is written)

    from headwise.interop.ctranslate2 import CTranslate2Engine, export_ctranslate2

    with TemporaryDirectory() as parent:
        export_ctranslate2(*random_model(job), None, Path(parent, "ctranslate2"))
        engine: Any = CTranslate2Engine(Path(parent, "ctranslate2"), int8=int8, threads=job.threads)
    sources, config = random_sources(job), build_decode_config(job)
    return lambda: best_ids(engine.decode(sources, config))


def ctranslate2_int8(job: DecodeJob) -> Callable[[], Outputs]:
    return ctranslate2(job, int8=True)


ENGINES: dict[str, Engine] = {
    "headwise": headwise,
    "headwise-int8": headwise_int8,
    "marian": marian,
    "ctranslate2": ctranslate2,
    "ctranslate2-int8": ctranslate2_int8,
}


def build_benchmark(job: DecodeJob) -> Callable[[], Outputs]:
    """The function to time."""
    return ENGINES[job.engine](job)
