"""Nystromformer of `transformers`: BERT's tensor names, with Nystrom attention and a convolution of the values.

Where `num_landmarks` is `segment_means_seq_len`, as in the released weights, `transformers` computes softmax attention
at every length. Otherwise its texts have `segment_means_seq_len` tokens, no more and no fewer; those are the same here.
Padding, which there is part of landmarks and convolutions, counts as zeros here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwise.blocks.mixers.nystrom import NystromConfig
from headwise.errors import UserError
from headwise.interop.hf.architecture import ACTIVATIONS, HfActivation, TokenId
from headwise.interop.hf.bert import (
    BERT,
    EMBEDDING,
    LABELS,
    LAYER,
    MLM_HEAD,
    HfEncoderConfig,
    build_layer_map,
    list_ignored,
    set_prefix,
)
from headwise.models.nystromformer import NystromformerConfig

POOLERS = {"gelu": "pooler_gelu", "gelu_tanh": "pooler_gelu_tanh", "relu": "pooler_relu"}


class HfNystromformerConfig(HfEncoderConfig):
    base_prefix = "nystromformer"

    model_type: Literal["nystromformer"] = "nystromformer"
    vocab_size: int = Field(30000, gt=0)
    hidden_act: HfActivation = "gelu_new"
    max_position_embeddings: int = Field(510, gt=0)
    layer_norm_eps: float = 1e-5
    pad_token_id: TokenId = 1
    segment_means_seq_len: int = Field(64, gt=0)
    num_landmarks: int = Field(64, gt=0)
    conv_kernel_size: int = Field(65, gt=0)
    inv_coeff_init_option: Literal[False] = False  # transformers fails to build the other one

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.segment_means_seq_len % self.num_landmarks:
            raise ValueError(
                f"segment_means_seq_len is {self.segment_means_seq_len}, which cannot be divided among num_landmarks, "
                f"{self.num_landmarks}; correct one"
            )
        if self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size is {self.conv_kernel_size}, which has no middle; use an odd number")
        return self

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        approximate = self.num_landmarks != self.segment_means_seq_len
        settings = super().to_settings(task, names) | {
            "positions": {"kind": "learned", "max_length": self.max_position_embeddings, "offset": 2},
            "mixer": {
                "kind": "nystromformer",
                "landmarks": self.num_landmarks if approximate else 0,
                "kernel": self.conv_kernel_size,
                "inverse_init": "batch" if approximate else "matrix",
            },
            "pool": "mean" if task == "encode" else POOLERS.get(ACTIVATIONS[self.hidden_act], "pooler_gelu"),
            "next_sentence_head": False,
        }
        if task == "classify" and ACTIVATIONS[self.hidden_act] not in POOLERS:
            raise UserError(f"hidden_act: a classifier with '{self.hidden_act}' is not supported; use gelu or relu")
        return settings

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        mixer = config.mixer if isinstance(config.mixer, NystromConfig) else NystromConfig()
        landmarks, longest = mixer.landmarks, getattr(config.positions, "max_length", 510)
        return super().build_keys(config) | {
            "num_landmarks": landmarks or 64,
            "segment_means_seq_len": max(1, longest // landmarks) * landmarks if landmarks else 64,
            "conv_kernel_size": mixer.kernel or 65,
        }


HF_LAYER = "nystromformer.encoder.layer.{i}"
NYSTROMFORMER = replace(
    BERT,
    hf_config=HfNystromformerConfig,
    config=NystromformerConfig,
    relatives=(),
    classes={
        "NystromformerForMaskedLM": "masked",
        "NystromformerForTokenClassification": "tag",
        "NystromformerForSequenceClassification": "classify",
        "NystromformerForQuestionAnswering": "answer",
        "NystromformerModel": "encode",
    },
    name_map={
        **set_prefix("nystromformer", EMBEDDING),
        **build_layer_map(HF_LAYER),
        f"{LAYER}.parts.0.conv": f"{HF_LAYER}.attention.self.conv",
    },
    head_maps={
        "masked": MLM_HEAD,
        "tag": LABELS,
        "classify": {
            "pool.1.dense": "classifier.dense",
            "head.table": "classifier.out_proj",
            "head.bias": "classifier.out_proj.bias",
        },
        "answer": {"head": "qa_outputs"},
        "encode": {},
    },
    required_tensors={},
    base_prefix="nystromformer.",
    ignored=list_ignored("nystromformer"),
)
