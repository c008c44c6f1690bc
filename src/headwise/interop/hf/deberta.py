"""DeBERTa of `transformers`, version 1.

Its queries, keys and values stand head by head in one matrix, of which only the queries and values have biases. A
folder that still has absolute positions is of the code released with the paper, which guesses hidden words with them
(see `models/deberta.py`); `transformers` reads past these.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field, field_validator

from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, Key, either, some
from headwise.interop.hf.bert import EMBEDDING, GUESSERS, LABELS, TheirEncoder, leftovers, under
from headwise.models.deberta import DebertaConfig

PLACES = "deberta.embeddings.position_embeddings.weight"


class TheirDeberta(TheirEncoder):
    stem = "deberta"
    unread = ("padding_idx", "pooler_hidden_size")  # the shape of the pooler's tensor tells its size

    model_type: Literal["deberta"] = "deberta"
    vocab_size: int = Field(50265, gt=0)
    type_vocab_size: int = Field(0, ge=0)
    layer_norm_eps: float = 1e-7
    relative_attention: Literal[True]
    max_relative_positions: int = -1
    position_biased_input: Literal[False]
    pos_att_type: tuple[Literal["c2p", "p2c"], ...] | str
    talking_head: Literal[False] = False
    legacy: bool = True  # which of two names the layers that guess words have
    pooler_hidden_act: Literal["gelu"] = "gelu"
    mask_decoder: int = 2  # of models that were born here

    @field_validator("pos_att_type")
    @classmethod
    def _both(cls, value: Any) -> tuple[str, ...]:
        kinds = value.lower().split("|") if isinstance(value, str) else value
        if sorted(kind.strip() for kind in kinds) != ["c2p", "p2c"]:
            raise ValueError("only both of c2p and p2c are supported")
        return ("c2p", "p2c")

    def tied(self, name: str) -> dict[str, str]:
        """With `legacy` false the words themselves are the outputs' table, whatever `tie_word_embeddings` says."""
        if self.legacy or not name.endswith(GUESSERS):
            return super().tied(name)
        return {"cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight"}

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        if not self.legacy and (stored := [name for name in names if name.startswith("cls.predictions.")]):
            raise UserError(f"config.json: legacy: is false, so nothing reads {some(stored)}; take both from one model")
        reach = self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings
        return super().ours(task, names) | {
            "positions": {"kind": "deberta", "max_distance": reach},
            "max_length": self.max_position_embeddings,
            "mask_decoder": self.mask_decoder if task != "masked" or PLACES in names else 0,
            "pool": "mean" if task == "encode" else "pooler_gelu",
            "next_sentence_head": False,
        }

    @classmethod
    def common(cls, config: Any) -> dict[str, Any]:
        return super().common(config) | {
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ("c2p", "p2c"),
            "mask_decoder": config.mask_decoder,
            "max_position_embeddings": config.max_length,
            "max_relative_positions": getattr(config.positions, "max_distance", -1),
        }


LAYER, INSIDE = "encoder.stack.layers.{i}", "deberta.encoder.layer.{i}"
TERM, SELF = f"{LAYER}.parts.0.score_mods.0", f"{INSIDE}.attention.self"
POOLER: dict[str, str | Key] = {"pool.1.dense": "pooler.dense"}
DEBERTA = Architecture(
    theirs=TheirDeberta,
    config=DebertaConfig,
    classes={
        "DebertaForMaskedLM": "masked",
        "DebertaForTokenClassification": "tag",
        "DebertaForSequenceClassification": "classify",
        "DebertaForQuestionAnswering": "answer",
        "DebertaModel": "encode",
    },
    keys={
        **under("deberta", EMBEDDING),
        "encoder.stack.positions.table": PLACES,
        f"{LAYER}.parts.0.qkv.bias": Key(
            (f"{SELF}.q_bias", f"{SELF}.v_bias"), write=lambda tensor, sizes: tensor.chunk(2)
        ),
        f"{LAYER}.parts.0.qkv.project": Key((f"{SELF}.in_proj",), write=lambda tensor, sizes: (tensor,), by_head=True),
        f"{TERM}.keys": f"{SELF}.pos_proj",
        f"{TERM}.queries": f"{SELF}.pos_q_proj",
        f"{TERM}.table": "deberta.encoder.rel_embeddings",
        f"{LAYER}.parts.0.out": f"{INSIDE}.attention.output.dense",
        f"{LAYER}.norms.0": f"{INSIDE}.attention.output.LayerNorm",
        f"{LAYER}.parts.1.inner": f"{INSIDE}.intermediate.dense",
        f"{LAYER}.parts.1.outer": f"{INSIDE}.output.dense",
        f"{LAYER}.norms.1": f"{INSIDE}.output.LayerNorm",
    },
    heads={
        "masked": {
            "head.before.dense": either("cls.predictions.transform.dense", "lm_predictions.lm_head.dense"),
            "head.before.norm": either("cls.predictions.transform.LayerNorm", "lm_predictions.lm_head.LayerNorm"),
            "head.table": "cls.predictions.decoder",
            "head.bias": either("cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        },
        "tag": LABELS,
        "classify": {**POOLER, **LABELS},
        "answer": {"head": "qa_outputs"},
        "encode": {},
    },
    stem="deberta.",
    ignored={
        **leftovers("deberta"),
        r"deberta\.embeddings\.position_embeddings\.weight": "only the head that guesses words reads it",
    },
    roles={"bos": "cls", "eos": "sep"},
)
