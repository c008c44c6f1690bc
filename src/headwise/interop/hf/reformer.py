"""Reformer of `transformers`.

Its LSH layers attend across buckets and count a pair in every round (`shortcuts`), and in an encoder the first chunk
attends to the last (`wrap`), so that padding to whole chunks changes outputs (`pad_to_chunks`). The rotations of LSH
are random: those of a `hash_seed` are the same here, from the same generator; without one `transformers` draws others
at every call, and Headwise those of seed 0.

In a decoder, LSH over several chunks lets tokens see the future: a later token moves the borders of chunks. Only texts
of one chunk, where LSH is full attention, are supported there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from headwise.blocks.mixers.lsh import FACTORS, LshConfig
from headwise.blocks.mixers.sparse import LocalMixerConfig
from headwise.blocks.positions.absolute import AxialPositionsConfig
from headwise.config.base import Problems
from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    ACTIVATIONS,
    Architecture,
    HfActivation,
    HfTextConfig,
    NameMap,
    TokenId,
    WeightConverter,
    name_activation,
)
from headwise.models.reformer import ReformerConfig

KINDS = {"local": "local", "lsh": "mixer"}  # of layers, in transformers and in `layer_pattern`


class HfReformerConfig(HfTextConfig):
    ignored_keys = (
        "axial_norm_std",
        "chunk_size_lm_head",
        "local_attention_probs_dropout_prob",
        "lsh_attention_probs_dropout_prob",
        "num_hidden_layers",  # the length of attn_layers
    )

    model_type: Literal["reformer"] = "reformer"
    is_decoder: bool = False  # type: ignore[assignment]
    vocab_size: int = Field(320, gt=0)
    attention_head_size: int = Field(64, gt=0)
    attn_layers: tuple[Literal["local", "lsh"], ...] = ("local", "lsh", "local", "lsh", "local", "lsh")
    axial_pos_embds: bool = True
    axial_pos_shape: tuple[int, int] = (64, 64)
    axial_pos_embds_dim: tuple[int, int] = (64, 192)
    feed_forward_size: int = Field(512, gt=0)
    hash_seed: int | None = Field(None, ge=0)
    hidden_act: HfActivation = "relu"
    hidden_dropout_prob: float = 0.05
    hidden_size: int = Field(256, gt=0)
    layer_norm_eps: float = 1e-12
    local_num_chunks_before: Literal[0, 1] = 1
    local_num_chunks_after: Literal[0] = 0
    local_attn_chunk_length: int = Field(64, gt=0)
    lsh_attn_chunk_length: int = Field(64, gt=0)
    lsh_num_chunks_before: Literal[1] = 1
    lsh_num_chunks_after: Literal[0] = 0
    max_position_embeddings: int = Field(4096, gt=0)
    num_attention_heads: int = Field(12, gt=0)
    num_buckets: int | tuple[int, ...] | None = None
    num_hashes: int = Field(1, gt=0)
    tie_word_embeddings: bool = False  # without effect: outputs are twice as wide as embeddings
    pad_token_id: TokenId = 0
    eos_token_id: TokenId = 2

    @field_validator("num_buckets")
    @classmethod
    def _check_buckets(cls, value: Any) -> Any:
        factors = (value,) if isinstance(value, int) else value
        known = [pair if pair[1] > 1 else pair[:1] for pair in FACTORS[1:]]
        if value is not None and factors not in known:
            raise ValueError("must be a power of two up to 128, or two factors of a larger one, as [16, 32]")
        return value

    @model_validator(mode="after")
    def _check_layers(self) -> Self:
        if not self.attn_layers:
            raise Problems([(("attn_layers",), "has no layers")])
        if "lsh" not in self.attn_layers:
            return self
        if self.is_decoder and not self.fits_one_chunk:
            message = (
                "in a decoder, lsh over several chunks lets tokens see the future, so it is supported only where "
                "lsh_attn_chunk_length is max_position_embeddings or more, and a multiple of local_attn_chunk_length"
            )
            raise Problems([(("attn_layers",), message)])
        if not self.is_decoder and self.num_buckets is None:
            message = "is null, so transformers takes it from the first long text that it reads; set it to a number"
            raise Problems([(("num_buckets",), message)])
        return self

    @property
    def fits_one_chunk(self) -> bool:
        """Whether no text has more than one chunk of LSH attention, padded to whole local chunks or not."""
        chunk, local = self.lsh_attn_chunk_length, self.local_attn_chunk_length
        return chunk >= self.context and ("local" not in self.attn_layers or chunk % local == 0)

    @property
    def context(self) -> int:
        if not self.axial_pos_embds:
            return self.max_position_embeddings
        return min(self.max_position_embeddings, math.prod(self.axial_pos_shape))

    def to_settings(self, task: str, names: Collection[str]) -> dict[str, Any]:
        if self.is_decoder != (task == "language-model"):
            kind = "a language model" if self.is_decoder else "an encoder"
            raise UserError(f"config.json: is_decoder: is {self.is_decoder}, which is {kind} here; correct it")
        local = {"block": self.local_attn_chunk_length, "before": self.local_num_chunks_before}
        lsh = {"chunk": self.lsh_attn_chunk_length, "rounds": self.num_hashes, "seed": self.hash_seed or 0}
        axial = {"kind": "axial", "shape": self.axial_pos_shape, "widths": self.axial_pos_embds_dim}
        learned = {"kind": "learned", "max_length": self.max_position_embeddings}
        return {
            "width": self.hidden_size,
            "depth": len(self.attn_layers),
            "heads": self.num_attention_heads,
            "head_width": self.attention_head_size,
            "hidden": self.feed_forward_size,
            "activation": ACTIVATIONS[self.hidden_act],
            "layer_pattern": shorten_pattern([KINDS[kind] for kind in self.attn_layers]),
            "local": {"kind": "local", **local, "wrap": not self.is_decoder},
            "mixer": {"kind": "lsh", **lsh, "shortcuts": not self.is_decoder, "buckets": self.count_buckets()},
            "positions": axial if self.axial_pos_embds else learned,
            "norm": {"kind": "layer", "eps": self.layer_norm_eps},
            "dropout": self.hidden_dropout_prob,
            "pad_to_chunks": not self.is_decoder,
            "head_transform": {"dense": False},
            "output_bias": False,
            "pool": "pooler" if task == "classify" else "mean",
            "pooler_width": self.hidden_size if task == "classify" else 0,
        }

    def count_buckets(self) -> int:
        """The number of buckets; 0 in a decoder, whose texts are one chunk."""
        if self.is_decoder or self.num_buckets is None:
            return 0
        return self.num_buckets if isinstance(self.num_buckets, int) else math.prod(self.num_buckets)

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        pattern = [kind for name in config.layer_pattern for kind in KINDS if KINDS[kind] == name]
        local = config.local if isinstance(config.local, LocalMixerConfig) else LocalMixerConfig()
        lsh = config.mixer if isinstance(config.mixer, LshConfig) else LshConfig()
        axial = isinstance(config.positions, AxialPositionsConfig)
        shape = config.positions.shape if axial else (1, getattr(config.positions, "max_length", 4096))
        widths = config.positions.widths if axial and any(config.positions.widths) else None
        buckets = FACTORS[lsh.buckets.bit_length() - 1] if lsh.buckets else None
        data = {
            "vocab_size": vocab,
            "is_decoder": not local.wrap,
            "hidden_size": config.width,
            "attention_head_size": config.head_width or config.width // config.heads,
            "num_attention_heads": config.heads,
            "feed_forward_size": config.hidden or 4 * config.width,
            "hidden_act": name_activation(config),
            "attn_layers": [pattern[i % len(pattern)] for i in range(config.depth)],
            "axial_pos_embds": axial,
            "axial_pos_shape": shape,
            "axial_pos_embds_dim": widths or (config.width // 4, config.width - config.width // 4),
            "max_position_embeddings": math.prod(shape),
            "local_attn_chunk_length": local.block,
            "local_num_chunks_before": min(local.before, 1),
            "lsh_attn_chunk_length": lsh.chunk,
            "num_hashes": lsh.rounds,
            "num_buckets": buckets if buckets is None or buckets[1] > 1 else buckets[0],
            "hash_seed": lsh.seed,
            "layer_norm_eps": config.norm.eps,
            "hidden_dropout_prob": config.dropout,
        }
        try:
            return cls.model_validate(data)
        except ValidationError:
            if not data["is_decoder"]:
                raise
            # Without `wrap` it is taken for a decoder, which an encoder of the default settings is not.
            raise UserError(
                "local.wrap: reformer of transformers has encoders with local.wrap, mixer.shortcuts and pad_to_chunks, "
                "and language models of one LSH chunk; set these three to true, or mixer.chunk to the longest text"
            ) from None


def shorten_pattern(kinds: Sequence[str]) -> tuple[str, ...]:
    """The shortest pattern whose repetitions are these layers.

    >>> shorten_pattern(["local", "mixer", "local"])
    ('local', 'mixer')
    """
    lengths = range(1, len(kinds) + 1)
    fits = (length for length in lengths if all(kinds[i] == kinds[i % length] for i in range(len(kinds))))
    return tuple(kinds[: next(fits)])


def squeeze_axis(name: str, axis: int) -> WeightConverter:
    """A table of axial positions, whose other axis has the length 1."""
    return WeightConverter(
        (name,),
        read=lambda parts: parts[0].squeeze(axis),
        write=lambda tensor, sizes: (tensor.unsqueeze(axis),),
    )


def map_side(side: str) -> dict[str, str | WeightConverter]:
    """Tensor names of an encoder or a decoder."""
    layer, hf_layer, positions = f"{side}.stack.layers.{{i}}", "reformer.encoder.layers.{i}", f"{side}.embed.positions"
    attention, hf_positions = f"{hf_layer}.attention.self_attention", "reformer.embeddings.position_embeddings"
    return {
        f"{side}.embed.table": "reformer.embeddings.word_embeddings",
        f"{positions}.rows": squeeze_axis(f"{hf_positions}.weights.0", 1),
        f"{positions}.columns": squeeze_axis(f"{hf_positions}.weights.1", 0),
        f"{positions}": f"{hf_positions}.embedding",
        f"{layer}.norms.0": f"{hf_layer}.attention.layer_norm",
        f"{layer}.parts.0.qkv.project": WeightConverter(
            tuple(f"{attention}.{part}" for part in ("query", "key", "value")),
            alternatives=((f"{attention}.query_key", f"{attention}.value"),),  # of LSH
        ),
        f"{layer}.parts.0.out": f"{hf_layer}.attention.output.dense",
        f"{layer}.norms.1": f"{hf_layer}.feed_forward.layer_norm",
        f"{layer}.parts.1.inner": f"{hf_layer}.feed_forward.dense.dense",
        f"{layer}.parts.1.outer": f"{hf_layer}.feed_forward.output.dense",
        f"{side}.stack.final": "reformer.encoder.layer_norm",
    }


HEADS: dict[str, NameMap] = {
    "language-model": {"decoder.head.table": "lm_head.decoder"},
    "masked": {"head.table": "lm_head.decoder"},
    "classify": {
        "pool.1.dense": "classifier.dense",
        "head.table": "classifier.out_proj",
        "head.bias": "classifier.out_proj.bias",
    },
    "answer": {"head": "qa_outputs"},
}
REFORMER = Architecture(
    hf_config=HfReformerConfig,
    config=ReformerConfig,
    classes={
        "ReformerModelWithLMHead": "language-model",
        "ReformerForMaskedLM": "masked",
        "ReformerForSequenceClassification": "classify",
        "ReformerForQuestionAnswering": "answer",
        "ReformerModel": "encode",
    },
    name_map={**map_side("encoder"), **map_side("decoder")},
    head_maps=HEADS,
    base_prefix="reformer.",
    ignored={
        r"lm_head\.bias": "transformers has it and does not add it",
        r"reformer\.encoder\.layers\.\d+\.attention\.self_attention\.(self_)?mask_value_float(16|32)": "a constant",
    },
)
