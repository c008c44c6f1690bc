"""BigBird of `transformers`: BERT's names, with another mixer.

Its heads for labels and answers have layers more than ours, so folders of those are not read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from headwise.interop.hf.architecture import Id, Plain
from headwise.interop.hf.bert import BERT, TheirEncoder, has
from headwise.models.bert import BertConfig
from headwise.models.bigbird import BigBirdConfig


class TheirBigBird(TheirEncoder):
    model_type: Literal["big_bird"] = "big_bird"
    vocab_size: int = Field(50358, gt=0)
    hidden_act: Plain = "gelu_new"
    max_position_embeddings: int = Field(4096, gt=0)
    sep_token_id: Id = 66
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    block_size: int = Field(64, gt=0)
    num_random_blocks: int = Field(3, ge=0)
    rescale_embeddings: bool = False
    use_bias: Literal[True] = True

    def ours(self, task: str, names: Collection[str]) -> dict[str, Any]:
        sparse = {
            "kind": "bigbird",
            "block": self.block_size,
            "random": self.num_random_blocks,
            "variant": "transformers",
        }
        return super().ours(task, names) | {
            "mixer": sparse if self.attention_type == "block_sparse" else "attention",
            "scale_embeddings": self.rescale_embeddings,
            "pool": "mean" if task == "encode" and not has(names, "pooler.weight") else "pooler",
            "next_sentence_head": has(names, "cls.seq_relationship.weight"),
        }

    @classmethod
    def common(cls, config: Any) -> dict[str, Any]:
        sparse = config.mixer.kind == "bigbird"
        of_mixer = {"block_size": config.mixer.block, "num_random_blocks": config.mixer.random} if sparse else {}
        return super().common(config) | {
            "attention_type": "block_sparse" if sparse else "original_full",
            "rescale_embeddings": config.scale_embeddings,
            **of_mixer,
        }


# Their pooler is a bare layer.
POOLER = "bert.pooler"
BIGBIRD = replace(
    BERT,
    theirs=TheirBigBird,
    config=BigBirdConfig,
    relatives=(BertConfig,),
    classes={
        "BigBirdForPreTraining": "masked",
        "BigBirdForMaskedLM": "masked",
        "BigBirdForTokenClassification": "tag",
        "BigBirdModel": "encode",
    },
    heads={
        **BERT.heads,
        "masked": {**BERT.heads["masked"], "order.1.dense": POOLER},
        "encode": {"pool.1.dense": POOLER},
    },
    hints={"BigBirdForPreTraining": "order.2.weight"},
)
