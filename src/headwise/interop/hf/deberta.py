"""DeBERTa of `transformers`, version 1.

Queries, keys and values are one matrix, grouped by head; only queries and values have biases. A checkpoint with
absolute position embeddings is of the code released with the paper, whose enhanced mask decoder uses them (see
`models/deberta.py`); `transformers` ignores these.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, NameMap, WeightConverter, any_of, list_names
from headwise.interop.hf.bert import EMBEDDING, LABELS, MLM_CLASSES, HfEncoderConfig, list_ignored, set_prefix
from headwise.models.deberta import DebertaConfig

POSITIONS = "deberta.embeddings.position_embeddings.weight"


class HfDebertaConfig(HfEncoderConfig):
    base_prefix = "deberta"
    # the shape of the pooler's tensor shows its size
    ignored_keys: ClassVar[Collection[str]] = ("padding_idx", "pooler_hidden_size")

    model_type: Literal["deberta"] = "deberta"
    vocab_size: int = Field(50265, gt=0)
    type_vocab_size: int = Field(0, ge=0)
    layer_norm_eps: float = 1e-7
    relative_attention: Literal[True]
    max_relative_positions: int = -1
    position_biased_input: Literal[False]
    pos_att_type: tuple[str, ...] | str  # both of c2p and p2c
    talking_head: Literal[False] = False
    legacy: bool = True  # which of two names the masked language model head has
    pooler_hidden_act: Literal["gelu"] = "gelu"
    mask_decoder: int = 2  # only in folders that Headwise wrote

    @field_validator("pos_att_type")
    @classmethod
    def _check_both(cls, value: Any) -> tuple[str, ...]:
        kinds = value.lower().split("|") if isinstance(value, str) else value
        if sorted(kind.strip() for kind in kinds) != ["c2p", "p2c"]:
            raise ValueError("only both of c2p and p2c are supported")
        return ("c2p", "p2c")

    def tied_weights(self, class_name: str) -> dict[str, str]:
        """With `legacy` false the output table is the word embedding, whatever `tie_word_embeddings` says."""
        if self.legacy or not class_name.endswith(MLM_CLASSES):
            return super().tied_weights(class_name)
        return {"cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight"}

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        if not self.legacy and (stored := [name for name in names if name.startswith("cls.predictions.")]):
            raise UserError(
                f"config.json: legacy: is false, so nothing reads {list_names(stored)}; take both from one model"
            )
        max_distance = self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings
        return super().to_settings(task, names) | {
            "positions": {"kind": "deberta", "max_distance": max_distance},
            "max_length": self.max_position_embeddings,
            "mask_decoder": self.mask_decoder if task != "masked" or POSITIONS in names else 0,
            "pool": "mean" if task == "encode" else "pooler_gelu",
            "next_sentence_head": False,
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        return super().build_keys(config) | {
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ("c2p", "p2c"),
            "type_vocab_size": config.token_types,
            "mask_decoder": config.mask_decoder,
            "max_position_embeddings": config.max_length,
            "max_relative_positions": getattr(config.positions, "max_distance", -1),
        }


LAYER, HF_LAYER = "encoder.stack.layers.{i}", "deberta.encoder.layer.{i}"
SCORE_MOD, HF_SELF = f"{LAYER}.parts.0.score_mods.0", f"{HF_LAYER}.attention.self"
POOLER: NameMap = {"pool.1.dense": "pooler.dense"}
DEBERTA = Architecture(
    hf_config=HfDebertaConfig,
    config=DebertaConfig,
    classes={
        "DebertaForMaskedLM": "masked",
        "DebertaForTokenClassification": "tag",
        "DebertaForSequenceClassification": "classify",
        "DebertaForQuestionAnswering": "answer",
        "DebertaModel": "encode",
    },
    name_map={
        **set_prefix("deberta", EMBEDDING),
        "encoder.stack.positions.table": POSITIONS,
        f"{LAYER}.parts.0.qkv.bias": WeightConverter(
            (f"{HF_SELF}.q_bias", f"{HF_SELF}.v_bias"), write=lambda tensor, sizes: tensor.chunk(2)
        ),
        f"{LAYER}.parts.0.qkv.project": WeightConverter(
            (f"{HF_SELF}.in_proj",), write=lambda tensor, sizes: (tensor,), by_head=True
        ),
        f"{SCORE_MOD}.keys": f"{HF_SELF}.pos_proj",
        f"{SCORE_MOD}.queries": f"{HF_SELF}.pos_q_proj",
        f"{SCORE_MOD}.table": "deberta.encoder.rel_embeddings",
        f"{LAYER}.parts.0.out": f"{HF_LAYER}.attention.output.dense",
        f"{LAYER}.norms.0": f"{HF_LAYER}.attention.output.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{HF_LAYER}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{HF_LAYER}.output.dense",
        f"{LAYER}.norms.1": f"{HF_LAYER}.output.LayerNorm",
    },
    head_maps={
        "masked": {
            "head.transform.dense": any_of("cls.predictions.transform.dense", "lm_predictions.lm_head.dense"),
            "head.transform.norm": any_of("cls.predictions.transform.LayerNorm", "lm_predictions.lm_head.LayerNorm"),
            "head.table": "cls.predictions.decoder",
            "head.bias": any_of("cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        },
        "tag": LABELS,
        "classify": {**POOLER, **LABELS},
        "answer": {"head": "qa_outputs"},
        "encode": {},
    },
    base_prefix="deberta.",
    ignored={
        **list_ignored("deberta"),
        r"deberta\.embeddings\.position_embeddings\.weight": "only the masked language model head uses it",
    },
    special_names={"bos": "cls", "eos": "sep"},
)
