"""Engines that encode the same texts with a random BERT."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from headwise.bench.jobs import EncodeJob
from headwise.blocks.stream import Context
from headwise.decode.int8 import quantize
from headwise.train.hardware import tune_allocator


def random_ids(job: EncodeJob) -> torch.Tensor:
    """Random ids without the first special token, which our encoder adds itself."""
    return torch.randint(4, job.shape.vocab, (job.rows, job.length - 1), generator=torch.Generator().manual_seed(1))


def headwise(job: EncodeJob, prepare: Callable[[Any], Any]) -> Callable[[], int]:
    from headwise.models.bert import BertConfig

    tune_allocator()  # as every command of ours does; the peers run as they come
    model = BertConfig.model_validate(job.shape.settings).build(job.shape.vocab)
    encoder, ids = prepare(model.encoder.eval().requires_grad_(False)), random_ids(job)

    @torch.inference_mode()
    def run() -> int:
        encoder(ids, Context())
        return job.rows * job.length

    return run


def transformers(job: EncodeJob) -> Callable[[], int]:
    """Hugging Face `BertModel` without its pooler."""
    from transformers import BertConfig, BertModel

    shape = job.shape
    config = BertConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.limit,
    )
    model = BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)
    ids = torch.nn.functional.pad(random_ids(job), (1, 0), value=1)
    keep = torch.ones_like(ids)  # as a tokeniser gives it

    @torch.inference_mode()
    def run() -> int:
        model(input_ids=ids, attention_mask=keep)
        return job.rows * job.length

    return run


def identity(model: Any) -> Any:
    return model


ENGINES: dict[str, Callable[[EncodeJob], Callable[[], int]]] = {
    "headwise": partial(headwise, prepare=identity),
    "headwise-int8": partial(headwise, prepare=quantize),
    "transformers": transformers,
}


def build_benchmark(job: EncodeJob) -> Callable[[], int]:
    """The function to time."""
    return ENGINES[job.engine](job)
