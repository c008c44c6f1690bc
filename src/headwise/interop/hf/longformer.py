"""Longformer of `transformers`: RoBERTa's tensor names and heads, with a sliding window and global tokens.

Which tokens are global follows from the class, as in `transformers` without a `global_attention_mask`: the first one of
a sequence classification, the question of question answering, none elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwise.blocks.mixers.global_window import FIRST_TEXT, GlobalWindowConfig
from headwise.config.base import Problems
from headwise.interop.hf.architecture import TokenId, fuse
from headwise.interop.hf.bert import BERT, EMBEDDING, LABELS, HfEncoderConfig, has_tensor, list_ignored, set_prefix

PROJECTIONS = ("query", "key", "value")
GLOBAL_TOKENS: dict[str, int | str] = {"classify": 1, "answer": FIRST_TEXT}
HF_LAYER, LAYER = "longformer.encoder.layer.{i}", "encoder.stack.layers.{i}"


class HfLongformerConfig(HfEncoderConfig):
    base_prefix, mlm_head = "longformer", "lm_head"
    ignored_keys = ("attention_mode", "gradient_checkpointing", "ignore_attention_mask", "onnx_export")

    model_type: Literal["longformer"] = "longformer"
    vocab_size: int = Field(30522, gt=0)
    attention_window: int | tuple[int, ...] = 512
    type_vocab_size: Literal[1]  # its tokenisers give no types
    pad_token_id: int = Field(1, ge=0)  # the row before that of the first position
    bos_token_id: TokenId = 0
    eos_token_id: TokenId = 2
    sep_token_id: TokenId = 2

    @field_validator("attention_window")
    @classmethod
    def _check_windows(cls, value: Any) -> Any:
        windows = [value] if isinstance(value, int) else value
        if not windows or any(window <= 0 or window % 2 for window in windows):
            raise ValueError("must be even and above 0")
        return value

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if len(self.list_windows()) != self.num_hidden_layers:
            message = f"has {len(self.list_windows())} windows for {self.num_hidden_layers} layers"
            raise Problems([(("attention_window",), message)])
        if self.context < 1:
            message = "is too small, as positions begin after pad_token_id"
            raise Problems([(("max_position_embeddings",), message)])
        return self

    @property
    def context(self) -> int:
        return self.max_position_embeddings - self.pad_token_id - 1

    def list_windows(self) -> Sequence[int]:
        """The window of each layer, both sides together."""
        windows = self.attention_window
        return (windows,) * self.num_hidden_layers if isinstance(windows, int) else windows

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        count = GLOBAL_TOKENS.get(task, 0)
        mixers = [
            {"kind": "longformer", "left": window // 2, "right": window // 2, "global_tokens": count}
            for window in self.list_windows()
        ]
        return super().to_settings(task, names) | {
            "mixer": mixers[0],
            "layers": [] if len(set(self.list_windows())) == 1 else [[mixer, "mlp"] for mixer in mixers],
            "positions": {"kind": "learned", "max_length": self.context, "offset": self.pad_token_id + 1},
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.dense.weight") else "pooler",
            "head_transform": {"activation": "gelu"},
            "next_sentence_head": False,
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        pattern = config.layers or config.pattern()
        mixers = [pattern[i % len(pattern)][0] for i in range(config.depth)]
        windows = [2 * mixer.left if isinstance(mixer, GlobalWindowConfig) and mixer.left else 2 for mixer in mixers]
        offset = max(1, getattr(config.positions, "offset", 1))
        return super().build_keys(config) | {
            "attention_window": windows,
            "type_vocab_size": 1,
            "max_position_embeddings": getattr(config.positions, "max_length", 512) + offset,
            "pad_token_id": offset - 1,
        }


LONGFORMER = replace(
    BERT,
    hf_config=HfLongformerConfig,
    relatives=(),
    classes={
        "LongformerForMaskedLM": "masked",
        "LongformerForTokenClassification": "tag",
        "LongformerForSequenceClassification": "classify",
        "LongformerForQuestionAnswering": "answer",
        "LongformerModel": "encode",
    },
    name_map={
        **{
            name: value.replace("bert.encoder.layer", "longformer.encoder.layer")
            for name, value in BERT.name_map.items()
            if isinstance(value, str) and name not in EMBEDDING
        },
        **set_prefix("longformer", EMBEDDING),
        f"{LAYER}.parts.0.qkv.project": fuse(*(f"{HF_LAYER}.attention.self.{part}" for part in PROJECTIONS)),
        f"{LAYER}.parts.0.global_qkv.project": fuse(
            *(f"{HF_LAYER}.attention.self.{part}_global" for part in PROJECTIONS)
        ),
    },
    head_maps={
        "masked": {
            "head.transform.dense": "lm_head.dense",
            "head.transform.norm": "lm_head.layer_norm",
            "head.table": "lm_head.decoder",
            "head.bias": "lm_head.decoder.bias",
        },
        "tag": LABELS,
        "classify": {
            "pool.1.dense": "classifier.dense",
            "head.table": "classifier.out_proj",
            "head.bias": "classifier.out_proj.bias",
        },
        "answer": BERT.head_maps["answer"],
        "encode": {"pool.1.dense": "longformer.pooler.dense"},
    },
    required_tensors={},
    base_prefix="longformer.",
    ignored=list_ignored("longformer", "lm_head"),
    special_names={"bos": "cls", "eos": "sep"},
    extra_special_ids={"bos": "bos", "eos": "eos"},
)
