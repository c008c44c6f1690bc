"""FNet of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from headwise.interop.hf.architecture import Architecture, Id, Plain
from headwise.interop.hf.bert import EMBEDDING, TheirEncoder, has, heads, leftovers, under
from headwise.models.fnet import FNetConfig


class TheirFNet(TheirEncoder):
    """There are no heads in it; the keys that count them are ours, so that they survive the way there and back."""

    stem = "fnet"
    unread = ("tpu_short_seq_length",)  # only with use_tpu_fourier_optimizations

    model_type: Literal["fnet"] = "fnet"
    vocab_size: int = Field(32000, gt=0)
    hidden_act: Plain = "gelu_new"
    type_vocab_size: int = Field(4, ge=0)
    pad_token_id: Id = 3
    use_tpu_fourier_optimizations: Literal[False] = False  # cuts one transform of 512 to the length: other numbers

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().ours(task, names) | {
            "pool": "mean" if task == "encode" and not has(names, "pooler.dense.weight") else "pooler",
            "next_sentence_head": has(names, "cls.seq_relationship.weight"),
        }


LAYER, INSIDE = "encoder.stack.layers.{i}", "fnet.encoder.layer.{i}"
FNET = Architecture(
    theirs=TheirFNet,
    config=FNetConfig,
    classes={
        "FNetForPreTraining": "masked",
        "FNetForMaskedLM": "masked",
        "FNetForTokenClassification": "tag",
        "FNetForSequenceClassification": "classify",
        "FNetForQuestionAnswering": "answer",
        "FNetModel": "encode",
    },
    keys={
        **under("fnet", EMBEDDING),
        "encoder.embed.norm.0": "fnet.embeddings.LayerNorm",
        "encoder.embed.norm.1": "fnet.embeddings.projection",
        f"{LAYER}.norms.0": f"{INSIDE}.fourier.output.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{INSIDE}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{INSIDE}.output.dense",
        f"{LAYER}.norms.1": f"{INSIDE}.output.LayerNorm",
    },
    heads=heads(
        "fnet.pooler.dense",
        "cls.seq_relationship",
        {
            "head.before.dense": "cls.predictions.transform.dense",
            "head.before.norm": "cls.predictions.transform.LayerNorm",
            "head.table": "cls.predictions.decoder",
            "head.bias": "cls.predictions.decoder.bias",
        },
    ),
    hints={"FNetForPreTraining": "order.2.weight"},
    stem="fnet.",
    ignored=leftovers("fnet"),
    roles={"bos": "cls", "eos": "sep"},
)
