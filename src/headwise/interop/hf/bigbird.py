"""BigBird of `transformers`: BERT's tensor names, with block-sparse attention.

Its heads for sequence classification and question answering have additional layers and are not supported.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from headwise.interop.hf.architecture import HfActivation, TokenId
from headwise.interop.hf.bert import BERT, HfEncoderConfig, has_tensor
from headwise.models.bert import BertConfig
from headwise.models.bigbird import BigBirdConfig


class HfBigBirdConfig(HfEncoderConfig):
    model_type: Literal["big_bird"] = "big_bird"
    vocab_size: int = Field(50358, gt=0)
    hidden_act: HfActivation = "gelu_new"
    max_position_embeddings: int = Field(4096, gt=0)
    sep_token_id: TokenId = 66
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    block_size: int = Field(64, gt=0)
    num_random_blocks: int = Field(3, ge=0)
    rescale_embeddings: bool = False
    use_bias: Literal[True] = True

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        sparse = {
            "kind": "bigbird",
            "block": self.block_size,
            "random": self.num_random_blocks,
            "variant": "transformers",
        }
        return super().to_settings(task, names) | {
            "mixer": sparse if self.attention_type == "block_sparse" else "attention",
            "scale_embeddings": self.rescale_embeddings,
            "pool": "mean" if task == "encode" and not has_tensor(names, "pooler.weight") else "pooler",
            "next_sentence_head": has_tensor(names, "cls.seq_relationship.weight"),
        }

    @classmethod
    def build_keys(cls, config: Any) -> dict[str, Any]:
        sparse = config.mixer.kind == "bigbird"
        mixer_keys = {"block_size": config.mixer.block, "num_random_blocks": config.mixer.random} if sparse else {}
        return super().build_keys(config) | {
            "attention_type": "block_sparse" if sparse else "original_full",
            "rescale_embeddings": config.scale_embeddings,
            **mixer_keys,
        }


# The pooler is a single linear layer, without BERT's "dense".
POOLER = "bert.pooler"
BIGBIRD = replace(
    BERT,
    hf_config=HfBigBirdConfig,
    config=BigBirdConfig,
    relatives=(BertConfig,),
    classes={
        "BigBirdForPreTraining": "masked",
        "BigBirdForMaskedLM": "masked",
        "BigBirdForTokenClassification": "tag",
        "BigBirdModel": "encode",
    },
    head_maps={
        **BERT.head_maps,
        "masked": {**BERT.head_maps["masked"], "next_sentence_head.1.dense": POOLER},
        "encode": {"pool.1.dense": POOLER},
    },
    required_tensors={"BigBirdForPreTraining": "next_sentence_head.2.weight"},
)
