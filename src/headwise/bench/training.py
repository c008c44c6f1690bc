"""Engines that train the same shape: embeddings, encoder, decoder, tied head, cross-entropy, fused AdamW.

Dropout: ours, nn.Transformer and Marian drop embeddings and sublayer outputs as the paper does (nn.Transformer also
inside the feed-forward network and on attention weights, which it cannot leave out); x-transformers drops embeddings
and inside the feed-forward network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.bench.jobs import TrainJob
from headwise.text import BOS, EOS, PAD, SPECIALS

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # source, target in, target out -> mean loss
Engine = Callable[[TrainJob], tuple[nn.Module, Loss]]


def build_benchmark(job: TrainJob) -> Callable[[], int]:
    """One training step; returns how many target tokens it learnt from."""
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    model, loss = ENGINES[job.engine](job)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    ids = torch.randint(len(SPECIALS), job.shape.vocab, (3, job.rows, job.length))

    def run() -> int:
        loss(*ids).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return job.rows * job.length

    return run


def headwise(job: TrainJob) -> tuple[nn.Module, Loss]:
    from headwise.models.transformer import TransformerConfig
    from headwise.train.hardware import tune_allocator

    tune_allocator()  # as every training of ours does; the peers run as they come
    config = TransformerConfig.model_validate(job.shape.settings | {"dropout": job.dropout})
    model: Any = config.build(job.shape.vocab)

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        result = model(source, target, labels=labels)
        return result.total / result.count

    return model, loss


class TorchTransformer(nn.Module):
    """nn.Transformer with what it leaves to the user."""

    def __init__(self, job: TrainJob):
        super().__init__()
        from headwise.blocks.positions.absolute import build_sinusoids

        shape = job.shape
        self.table = nn.Embedding(shape.vocab, shape.width)
        nn.init.normal_(self.table.weight, std=shape.width**-0.5)
        self.register_buffer("positions", build_sinusoids(torch.arange(job.length), shape.width).float())
        self.drop = nn.Dropout(job.dropout)
        self.core = nn.Transformer(
            shape.width, shape.heads, shape.depth, shape.depth, 4 * shape.width, job.dropout, batch_first=True
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.drop(self.table(ids) * self.table.embedding_dim**0.5 + self.positions)

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        out = self.core(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(F.linear(out, self.table.weight).flatten(0, 1), labels.flatten())


def nn_transformer(job: TrainJob) -> tuple[nn.Module, Loss]:
    model = TorchTransformer(job)
    return model, model


def marian(job: TrainJob) -> tuple[nn.Module, Loss]:
    """Hugging Face `MarianMTModel`."""
    from transformers import MarianConfig, MarianMTModel

    from headwise.interop.hf.marian import HfMarianConfig
    from headwise.models.transformer import TransformerConfig

    ours = TransformerConfig.model_validate(job.shape.settings | {"dropout": job.dropout})
    marks = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": BOS, "bos_token_id": BOS}
    data = HfMarianConfig.from_model_config(ours, job.shape.vocab).model_dump(exclude={"model_type"}) | marks
    model = MarianMTModel(MarianConfig(**data))
    return (
        model,
        lambda source, target, labels: (
            model(input_ids=source, decoder_input_ids=target, labels=labels, use_cache=False).loss
        ),
    )


class XTransformers(nn.Module):
    """x-transformers with fused attention, one table and its tied head."""

    def __init__(self, job: TrainJob):
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper

        shape = job.shape
        sizes = {"num_tokens": shape.vocab, "max_seq_len": job.length, "emb_dropout": job.dropout}
        layers = {
            "dim": shape.width,
            "depth": shape.depth,
            "heads": shape.heads,
            "attn_dim_head": shape.width // shape.heads,
            "attn_flash": True,
            "ff_dropout": job.dropout,
        }
        self.encoder = TransformerWrapper(attn_layers=Encoder(**layers), return_only_embed=True, **sizes)
        self.decoder = TransformerWrapper(
            attn_layers=Decoder(cross_attend=True, **layers),
            token_emb=self.encoder.token_emb,
            tie_embedding=True,
            **sizes,
        )

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        logits = self.decoder(target, context=self.encoder(source, return_embeddings=True))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def x_transformers(job: TrainJob) -> tuple[nn.Module, Loss]:
    model = XTransformers(job)
    return model, model


ENGINES: dict[str, Engine] = {
    "headwise": headwise,
    "nn.Transformer": nn_transformer,
    "marian": marian,
    "x-transformers": x_transformers,
}
