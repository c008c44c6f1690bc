"""FNet of `transformers`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from headwise.interop.hf.architecture import Architecture, HfActivation, TokenId
from headwise.interop.hf.bert import EMBEDDING, HfEncoderConfig, build_head_maps, has_tensor, list_ignored, set_prefix
from headwise.models.fnet import FNetConfig


class HfFNetConfig(HfEncoderConfig):
    """FNet has no attention; `num_attention_heads` is a key of Headwise that keeps `heads` in an exported folder."""

    base_prefix = "fnet"
    ignored_keys = ("tpu_short_seq_length",)  # only with use_tpu_fourier_optimizations

    model_type: Literal["fnet"] = "fnet"
    vocab_size: int = Field(32000, gt=0)
    hidden_act: HfActivation = "gelu_new"
    type_vocab_size: int = Field(4, ge=0)
    pad_token_id: TokenId = 3
    use_tpu_fourier_optimizations: Literal[False] = False  # gives different results

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return super().to_settings(task, names) | {
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.dense.weight") else "pooler",
            "next_sentence_head": has_tensor(names, "cls.seq_relationship.weight"),
        }


LAYER, HF_LAYER = "encoder.stack.layers.{i}", "fnet.encoder.layer.{i}"
FNET = Architecture(
    hf_config=HfFNetConfig,
    config=FNetConfig,
    classes={
        "FNetForPreTraining": "masked",
        "FNetForMaskedLM": "masked",
        "FNetForTokenClassification": "tag",
        "FNetForSequenceClassification": "classify",
        "FNetForQuestionAnswering": "answer",
        "FNetModel": "encode",
    },
    name_map={
        **set_prefix("fnet", EMBEDDING),
        "encoder.embed.norm.0": "fnet.embeddings.LayerNorm",
        "encoder.embed.norm.1": "fnet.embeddings.projection",
        f"{LAYER}.norms.0": f"{HF_LAYER}.fourier.output.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{HF_LAYER}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.output.dense",
        f"{LAYER}.norms.1": f"{HF_LAYER}.output.LayerNorm",
    },
    head_maps=build_head_maps(
        "fnet.pooler.dense",
        "cls.seq_relationship",
        {
            "head.transform.dense": "cls.predictions.transform.dense",
            "head.transform.norm": "cls.predictions.transform.LayerNorm",
            "head.table": "cls.predictions.decoder",
            "head.bias": "cls.predictions.decoder.bias",
        },
    ),
    required_tensors={"FNetForPreTraining": "next_sentence_head.2.weight"},
    base_prefix="fnet.",
    ignored=list_ignored("fnet"),
    special_names={"bos": "cls", "eos": "sep"},
)
