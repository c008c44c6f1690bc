"""Every architecture of `transformers` that we read, tiny and with random weights, and its logits beside ours."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.utils import logging

from headwise.interop.hf.read import ImportedModel
from headwise.models.decision_transformer import Trajectory
from headwise.testing import assert_parity
from headwise.text import BOS, EOS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's, of what this file of theirs is made with
    import transformers.models.deberta.modeling_deberta
    import transformers.models.deberta_v2.modeling_deberta_v2

logging.disable_progress_bar()
logging.set_verbosity_error()
VOCAB = 29
STACK: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 24,
}  # fmt: skip
SPECIAL_IDS: dict[str, Any] = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
PAIR: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 24,
}  # fmt: skip
GPT: dict[str, Any] = {"vocab_size": VOCAB, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 2}
T5: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2,
    "decoder_start_token_id": 0,
}  # fmt: skip
PATCHES: dict[str, Any] = {"image_size": 32, "num_labels": 3}
TINY: dict[str, dict[str, Any]] = {
    "openai-gpt": {**GPT, "eos_token_id": 28},
    "gpt2": {**GPT, "bos_token_id": 28, "eos_token_id": 28},
    "bert": {**STACK, **SPECIAL_IDS},
    "albert": {**STACK, **SPECIAL_IDS, "embedding_size": 12},
    "roberta": STACK,
    "xlm-roberta": STACK,
    "distilbert": {
        **SPECIAL_IDS, "vocab_size": VOCAB, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24,
        "max_position_embeddings": 24,
    },
    "electra": {**STACK, **SPECIAL_IDS, "embedding_size": 12},
    "ernie": {**STACK, **SPECIAL_IDS, "use_task_id": True},
    "big_bird": {**STACK, **SPECIAL_IDS, "attention_type": "original_full"},
    "deberta": {
        **STACK, **SPECIAL_IDS, "relative_attention": True, "position_biased_input": False,
        "pos_att_type": ["c2p", "p2c"],
    },
    "deberta-v2": {
        **STACK, **SPECIAL_IDS, "relative_attention": True, "position_biased_input": False,
        "pos_att_type": ["c2p", "p2c"], "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 4,
        "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2, "attention_head_size": 8,
    },
    "fnet": {**STACK, **SPECIAL_IDS},
    "funnel": {
        **SPECIAL_IDS, "vocab_size": VOCAB, "d_model": 16, "n_head": 2, "d_head": 6, "d_inner": 24,
        "block_sizes": [1, 2], "num_decoder_layers": 1,
    },
    "nystromformer": {
        **STACK, **SPECIAL_IDS, "num_landmarks": 4, "segment_means_seq_len": 4, "conv_kernel_size": 3,
    },
    "longformer": {
        **STACK, **SPECIAL_IDS, "bos_token_id": 1, "eos_token_id": 2, "type_vocab_size": 1, "attention_window": 4,
    },
    "modernbert": {
        **STACK, **SPECIAL_IDS, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 3, "local_attention": 4,
    },
    "reformer": {
        "vocab_size": VOCAB, "hidden_size": 16, "num_attention_heads": 2, "attention_head_size": 6,
        "feed_forward_size": 24, "axial_pos_shape": [4, 6], "axial_pos_embds_dim": [5, 11],
        "max_position_embeddings": 24, "attn_layers": ["local", "lsh"], "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 24, "num_buckets": 4, "num_hashes": 2, "hash_seed": 5,
    },
    "t5": T5,
    "mt5": T5,
    "switch_transformers": {
        **T5, "num_layers": 2, "num_decoder_layers": 2, "num_experts": 3, "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 2, "expert_capacity": 2,
    },
    "bart": PAIR,
    "marian": {**PAIR, "pad_token_id": 28, "decoder_start_token_id": 28, "eos_token_id": 0},
    "mbart": {**PAIR, "decoder_start_token_id": 2},
    "pegasus": PAIR,
    "perceiver": {
        "vocab_size": VOCAB, "d_model": 24, "d_latents": 16, "num_latents": 5, "num_self_attends_per_block": 2,
        "num_self_attention_heads": 2, "num_cross_attention_heads": 4, "max_position_embeddings": 24,
    },
    "llama": STACK,
    "qwen2": {
        **STACK, "num_key_value_heads": 1, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1,
    },
    "qwen3": {**STACK, "num_key_value_heads": 1, "head_dim": 12},
    "mixtral": {**STACK, "num_key_value_heads": 1, "num_local_experts": 3, "head_dim": 6},
    "gpt_neox": {**STACK, "eos_token_id": 2},
    "opt": {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24,
            "max_position_embeddings": 24, "word_embed_proj_dim": 16},
    "mistral": {**STACK, "num_key_value_heads": 1, "sliding_window": 3},
    "vit": {**PATCHES, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24},
    "deit": {**PATCHES, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24},
    "beit": {**PATCHES, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
             "patch_size": 8, "use_relative_position_bias": True},
    "dinov2": {**PATCHES, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "mlp_ratio": 3,
               "patch_size": 8},
    "dinov2_with_registers": {**PATCHES, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
                              "mlp_ratio": 3, "patch_size": 8, "num_register_tokens": 3},
    "swin": {**PATCHES, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4},
    "swinv2": {**PATCHES, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4,
               "pretrained_window_sizes": [0, 0]},
    "levit": {**PATCHES, "hidden_sizes": [16, 32, 48], "num_attention_heads": [1, 2, 3], "depths": [1, 1, 1]},
    "resnet": {"num_labels": 3, "embedding_size": 8, "hidden_sizes": [32, 64], "depths": [1, 1]},
    "detr": {
        **{key: size for key, size in PAIR.items() if key not in ("vocab_size", "max_position_embeddings")},
        "num_labels": 3, "num_queries": 5, "use_timm_backbone": False,
        "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [32, 64], "depths": [1, 1]},
    },
    "decision_transformer": {
        "state_dim": 5, "act_dim": 3, "hidden_size": 16, "max_ep_len": 20, "n_head": 2, "n_layer": 2, "n_positions": 24,
    },
}  # fmt: skip
CLASS_SETTINGS: dict[str, dict[str, Any]] = {"ReformerModelWithLMHead": {"is_decoder": True}}
PROCESSOR = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def build_hf_config(model_type: str, **settings: Any) -> Any:
    """Their config: as small as it can be."""
    return transformers.AutoConfig.for_model(model_type, **{**TINY[model_type], **settings})


def build_hf_model(model_type: str, name: str, **settings: Any) -> Any:
    """A model of one of their classes, with every parameter away from its special initial value."""
    torch.manual_seed(0)
    settings = CLASS_SETTINGS.get(name, {}) | settings
    model = getattr(transformers, name)(build_hf_config(model_type, **settings)).eval()
    for parameter in {id(each): each for each in model.parameters() if each.requires_grad}.values():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def save_folder(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder


def logits(imported: ImportedModel, model: Any) -> tuple[Tensor, Tensor]:
    """Ours and theirs for the same input, of words that both have."""
    if imported.task in ("classify-images", "detect"):
        images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        actual, expected = imported.model(images), model(images).logits
        return getattr(actual, "logits", actual), expected
    if imported.task == "act":
        return predict_actions(imported, model)
    order = torch.tensor(imported.vocabularies.source.hf_ids).clamp(min=0)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 5, 12, 13, 14, 15]])
    real = [number for number in range(len(order)) if number not in imported.vocabularies.target.suppressed_ids]
    if imported.task == "transduce":
        bart = imported.config.kind == "bart"
        start = imported.config.start_id if bart else BOS
        source, target = (torch.nn.functional.pad(ids, pad, value=id_) for pad, id_ in (((0, 1), EOS), ((1, 0), start)))
        actual = imported.model(source, target)
        if bart:
            source = torch.nn.functional.pad(source, (1, 0), value=BOS)
        if bart and start == BOS:  # EOS comes before BOS
            target = torch.nn.functional.pad(target, (1, 0), value=EOS)
        expected = model(input_ids=order[source], decoder_input_ids=order[target]).logits[:, -actual.shape[1] :]
    elif imported.task == "masked":
        actual, opens = imported.model(ids), imported.model.encoder.prefix_id is not None
        theirs = model(input_ids=order[torch.nn.functional.pad(ids, (1, 0), value=BOS) if opens else ids])
        expected = getattr(theirs, "prediction_logits", getattr(theirs, "logits", None))
        expected = expected[:, opens : opens + ids.shape[1]]  # a Perceiver's are those of all positions
    else:
        actual, expected = imported.model(ids), model(order[ids]).logits
    return actual[..., real], expected[..., order][..., real]


def build_steps(config: Any) -> dict[str, Tensor]:
    """Time steps of episodes, as `transformers` reads them."""
    random = torch.Generator().manual_seed(1)
    sizes = {"returns_to_go": 1, "states": config.state_dim, "actions": config.act_dim}
    steps = {name: torch.randn(2, 6, size, generator=random) for name, size in sizes.items()}
    return {**steps, "timesteps": torch.arange(6).expand(2, 6) % config.max_ep_len}


def predict_actions(imported: ImportedModel, model: Any) -> tuple[Tensor, Tensor]:
    """Actions by ours and theirs after the same time steps."""
    steps = build_steps(model.config)
    returns = steps["returns_to_go"].squeeze(-1)
    actual = imported.model(Trajectory(returns, steps["states"], steps["actions"], steps["timesteps"])).actions
    return actual, model(**steps).action_preds


def assert_equal_logits(imported: ImportedModel, model: Any) -> None:
    assert_parity(*logits(imported, model))
