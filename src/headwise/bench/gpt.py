"""Engines that train a GPT-2: embeddings, pre-norm decoder, tied head, cross-entropy, fused AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.bench.jobs import GptJob, StackShape

Loss = Callable[[Tensor], Tensor]  # (B, 1 + T) ids -> mean loss


def build_benchmark(job: GptJob) -> Callable[[], int]:
    """One training step; returns how many tokens it learnt from."""
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    model, loss = ENGINES[job.engine](job)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(4, job.shape.vocab, (job.rows, job.length + 1))

    def run() -> int:
        loss(ids).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return job.rows * job.length

    return run


def headwise(job: GptJob) -> tuple[nn.Module, Loss]:
    from headwise.train.hardware import tune_allocator

    tune_allocator()  # as every training of ours does; the peers run as they come
    model = build_ours(job.shape, job.dropout)

    def loss(ids: Tensor) -> Tensor:
        result = model(ids[:, :-1], labels=ids[:, 1:])
        return result.total / result.count

    return model, loss


def transformers(job: GptJob) -> tuple[nn.Module, Loss]:
    model = build_transformers(job.shape, job.dropout)
    return model, lambda ids: model(input_ids=ids[:, :-1], labels=ids[:, :-1], use_cache=False).loss


def build_ours(shape: StackShape, dropout: float = 0.0) -> Any:
    from headwise.models.gpt import Gpt2Config

    return Gpt2Config.model_validate(shape.settings | {"dropout": dropout}).build(shape.vocab)


def build_transformers(shape: StackShape, dropout: float = 0.0) -> Any:
    """Hugging Face `GPT2LMHeadModel`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    drops: dict[str, Any] = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), dropout)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape.vocab,
            n_positions=shape.limit,
            n_embd=shape.width,
            n_layer=shape.depth,
            n_head=shape.heads,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            **drops,
        )
    )


ENGINES: dict[str, Callable[[GptJob], tuple[nn.Module, Loss]]] = {"headwise": headwise, "transformers": transformers}
