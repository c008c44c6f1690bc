"""Funnel-Transformer of `transformers`.

`attention_type` chooses between two ways to compute the same scores. Sequence classification and `FunnelBaseModel` have
no decoder.

`transformers` sets the embedding of `pad_token_id` to zero when it loads a folder, whatever is stored, and so do we. A
model that has one is written without a `pad_token_id`, as the released ones are: the tokeniser names the padding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from headwise.config.base import Problems
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    NameMap,
    WeightConverter,
    fuse,
    name_activation,
)
from headwise.interop.hf.bert import LABELS, has_tensor
from headwise.interop.hf.t5 import UNLIMITED
from headwise.models.funnel import FunnelConfig

FIRST_DECODER_TENSOR = "decoder.layers.0.attention.q_head.weight"


class HfFunnelConfig(HfTextConfig):
    aliases: ClassVar[Mapping[str, str]] = {"hidden_size": "d_model", "num_attention_heads": "n_head"}
    ignored_keys = ("attention_type", "initializer_std", "max_position_embeddings", "type_vocab_size")

    model_type: Literal["funnel"] = "funnel"
    vocab_size: int = Field(30522, gt=0)
    block_sizes: tuple[int, ...] = (4, 4, 4)
    block_repeats: tuple[int, ...] | None = None
    num_decoder_layers: int = Field(2, gt=0)
    d_model: int = Field(768, gt=0, multiple_of=2)  # as many sines as cosines
    n_head: int = Field(12, gt=0)
    d_head: int = Field(64, gt=0)
    d_inner: int = Field(3072, gt=0)
    hidden_act: HfActivation = "gelu_new"
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    layer_norm_eps: float = 1e-9
    pooling_type: Literal["mean", "max"] = "mean"
    separate_cls: bool = True
    truncate_seq: bool = True
    pool_q_only: bool = True
    tie_word_embeddings: bool = True

    @model_validator(mode="after")
    def _check_blocks(self) -> Self:
        numbers = {"block_sizes": self.block_sizes, "block_repeats": self.block_repeats}
        for key, values in numbers.items():
            if values is not None and (not values or min(values) < 1):
                raise Problems([((key,), f"is {list(values)}; every block needs at least one layer, used once")])
        if self.block_repeats is not None and len(self.block_repeats) != len(self.block_sizes):
            message = f"has {len(self.block_repeats)} numbers for {len(self.block_sizes)} blocks"
            raise Problems([(("block_repeats",), message)])
        return self

    @property
    def context(self) -> int:
        return UNLIMITED

    def tied_weights(self, class_name: str) -> dict[str, str]:
        if not self.tie_word_embeddings or not class_name.endswith("ForMaskedLM"):
            return {}
        return {"lm_head.weight": "funnel.embeddings.word_embeddings.weight"}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        return {
            "width": self.d_model,
            "heads": self.n_head,
            "head_width": self.d_head,
            "hidden": self.d_inner,
            "block_depths": self.block_sizes,
            "block_repeats": self.block_repeats if self.block_repeats and max(self.block_repeats) > 1 else (),
            "decoder_depth": self.num_decoder_layers,
            "activation": ACTIVATIONS[self.hidden_act],
            "positions": {"kind": "funnel", "separate_first": self.separate_cls},
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "dropout": self.hidden_dropout,
            "attention_dropout": self.attention_dropout,
            "hidden_dropout": self.activation_dropout,
            "pooling": self.pooling_type,
            "separate_first": self.separate_cls,
            "truncate": self.truncate_seq,
            "pool_padding": True,
            "pool_keys": not self.pool_q_only,
            "upsample": task != "encode" or has_tensor(names, FIRST_DECODER_TENSOR),
            "pool": "mean" if task == "encode" else "pooler",
        }

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        data = {
            "vocab_size": vocab,
            "d_model": config.width,
            "n_head": config.heads,
            "d_head": config.head_width or config.width // config.heads,
            "d_inner": config.hidden or 4 * config.width,
            "block_sizes": config.block_depths,
            "block_repeats": config.block_repeats or (1,) * len(config.block_depths),
            "num_decoder_layers": config.decoder_depth,
            "hidden_act": name_activation(config),
            "hidden_dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.hidden_dropout,
            "layer_norm_eps": config.norm.eps,
            "pooling_type": config.pooling,
            "separate_cls": config.separate_first,
            "truncate_seq": config.truncate,
            "pool_q_only": not config.pool_keys,
            "tie_word_embeddings": config.tie not in ("none", "inputs"),
        }
        return cls.model_validate(data)


def map_layers(layer: str, hf_layer: str) -> dict[str, str | WeightConverter]:
    """Tensor names of a layer."""
    attention, mod = f"{hf_layer}.attention", f"{layer}.parts.0.score_mods.0"
    return {
        f"{layer}.parts.0.qkv.query": f"{attention}.q_head",
        f"{layer}.parts.0.qkv.project": fuse(f"{attention}.k_head", f"{attention}.v_head"),
        f"{layer}.parts.0.out": f"{attention}.post_proj",
        f"{mod}.content": f"{attention}.r_w_bias",
        f"{mod}.distance": f"{attention}.r_r_bias",
        f"{mod}.kernel": f"{attention}.r_kernel",
        f"{mod}.type_bias": f"{attention}.r_s_bias",
        f"{mod}.types": f"{attention}.seg_embed",
        f"{layer}.norms.0": f"{attention}.layer_norm",
        f"{layer}.parts.1.inner": f"{hf_layer}.ffn.linear_1",
        f"{layer}.parts.1.outer": f"{hf_layer}.ffn.linear_2",
        f"{layer}.norms.1": f"{hf_layer}.ffn.layer_norm",
    }


HEADS: dict[str, NameMap] = {
    "masked": {"head.table": "lm_head", "head.bias": "lm_head.bias"},
    "replaced-tokens": {
        "head.dense": "discriminator_predictions.dense",
        "head.out": "discriminator_predictions.dense_prediction",
    },
    "tag": LABELS,
    "classify": {
        "pool.1.dense": "classifier.linear_hidden",
        "head.table": "classifier.linear_out",
        "head.bias": "classifier.linear_out.bias",
    },
    "answer": {"head": "qa_outputs"},
}
FUNNEL = Architecture(
    hf_config=HfFunnelConfig,
    config=FunnelConfig,
    classes={
        "FunnelForMaskedLM": "masked",
        "FunnelForPreTraining": "replaced-tokens",
        "FunnelForTokenClassification": "tag",
        "FunnelForSequenceClassification": "classify",
        "FunnelForQuestionAnswering": "answer",
        "FunnelModel": "encode",
        "FunnelBaseModel": "encode",
    },
    name_map={
        "encoder.embed.table": "funnel.embeddings.word_embeddings",
        "encoder.embed.norm": "funnel.embeddings.layer_norm",
        **map_layers("encoder.stack.layers.{stage}.layers.{i}", "funnel.encoder.blocks.{stage}.{inner}"),
        **map_layers("encoder.stack.decoder.layers.{i}", "funnel.decoder.layers.{i}"),
    },
    head_maps=HEADS,
    required_tensors={"FunnelModel": "encoder.stack.decoder.layers.0.parts.0.out.weight"},
    base_prefix="funnel.",
    special_names={"bos": "cls", "eos": "sep"},
    zero_padding=True,
    first_token_type=2,
)
