"""Keys of a `config.json` that change no output of a model in evaluation mode, so that no schema reads them.

A key that is neither here, nor in a schema (`HfConfig`), nor an alias is refused: what it changes is unknown. Keys of
one model type are in the `ignored_keys` of its schema, with their reasons in `MODEL_REASONS`. A key that changes
outputs and has no equivalent in Headwise is a field of the schema with the one supported value (`Literal`).
docs/hugging-face.md lists all of them (matrix.py).
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA = frozenset({
    "_commit_hash", "eos_token_ids", "_name_or_path", "name_or_path", "architectures", "auto_map", "finetuning_task",
    "task_specific_params", "prefix", "tokenizer_class", "model_max_length", "transformers_version",
    "transformers.js_config", "dtype", "torch_dtype", "torchscript", "use_bfloat16",
    "xla_device",
})  # fmt: skip
READ_ELSEWHERE = frozenset({  # labels by read.py, special tokens by text.py
    "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "pad_token_id", "bos_token_id",
    "eos_token_id", "unk_token_id", "mask_token_id", "cls_token_id", "sep_token_id", "decoder_start_token_id",
})  # fmt: skip
RUNTIME = frozenset({  # how outputs are computed, and what is returned beside them
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "_experts_implementation",
    "experts_implementation", "chunk_size_feed_forward", "gradient_checkpointing", "use_cache", "output_past",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate",
    "use_return_dict",
})  # fmt: skip
TRAINING = frozenset({  # dropout, initial weights, losses
    "activation_dropout", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "dropout",
    "classif_dropout", "classifier_dropout", "classifier_dropout_prob", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "pooler_dropout", "encoder_layerdrop", "decoder_layerdrop", "drop_path_rate",
    "init_std", "init_xavier_std", "initializer_factor", "initializer_range", "tf_legacy_loss",
})  # fmt: skip
GENERATION = frozenset({  # of older versions; today in generation_config.json
    "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty",
    "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty", "force_bos_token_to_be_generated",
    "forced_bos_token_id", "forced_eos_token_id", "guidance_scale", "length_penalty", "max_length", "max_new_tokens",
    "min_length", "min_new_tokens", "min_p", "no_repeat_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "num_beam_groups", "num_beams", "num_return_sequences", "penalty_alpha",
    "remove_invalid_values", "renormalize_logits", "repetition_penalty", "sequence_bias", "stop_strings",
    "suppress_tokens", "target_lookbehind", "temperature", "top_h", "top_k", "top_p", "typical_p",
})  # fmt: skip
IGNORED_KEYS = METADATA | READ_ELSEWHERE | RUNTIME | TRAINING | GENERATION

REASONS: Mapping[str, frozenset[str]] = {  # why keys of all model types are ignored
    "metadata": METADATA,
    "read elsewhere: labels and the head's function, special tokens": READ_ELSEWHERE,
    "how outputs are computed, and what is returned beside them": RUNTIME,
    "dropout, initial weights and losses of training": TRAINING,
    "generation of older versions: becomes `[decode]`, as `generation_config.json` does": GENERATION,
}
MODEL_REASONS: Mapping[str, frozenset[str]] = {  # why keys of some model types are ignored
    "no code of the model in `transformers` reads it": frozenset({
        "add_bias_logits", "add_router_probs", "attention_mode", "directionality", "down_scale_factor",
        "extra_pos_embeddings", "feed_forward_proj", "gap_size", "ignore_attention_mask", "is_gated_act",
        "is_llama_config", "layer_norm_eps", "ln_type", "max_position_embeddings", "max_sequence_length", "n_ctx",
        "n_positions", "n_special", "net_structure_type", "num_memory_blocks", "onnx_export", "padding_idx",
        "path_norm", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
        "pooler_type", "position_embedding_type", "predict_special_tokens", "save_step", "scale_embedding",
        "sinusoidal_pos_embds", "type_vocab_size", "unsloth_fixed",
    }),
    "of a head or an input that is not read": frozenset({
        "_label_trainable_num_channels", "add_fpn", "audio_samples_per_frame", "auxiliary_channels",
        "auxiliary_concat_input", "auxiliary_num_convs", "encoder_stride", "image_size", "num_frames",
        "output_num_channels", "output_shape", "pool_scales", "samples_per_patch", "segmentation_indices",
        "summary_activation", "summary_first_dropout", "summary_hidden_size", "summary_last_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj", "train_size", "use_auxiliary_head",
        "use_mask_token", "vocab_size",
    }),
    "which states a backbone returns": frozenset({
        "apply_layernorm", "out_features", "out_indices", "reshape_hidden_states", "stage_names",
    }),
    "dropout, initial weights and losses of training": frozenset({
        "auxiliary_loss_weight", "axial_norm_std", "bbox_cost", "bbox_loss_coefficient", "class_cost", "cls_dropout",
        "dice_loss_coefficient", "eos_coefficient", "giou_cost", "giou_loss_coefficient", "initializer_cutoff_factor",
        "initializer_std", "layerdrop", "local_attention_probs_dropout_prob", "lsh_attention_probs_dropout_prob",
        "mask_loss_coefficient", "qa_dropout", "router_ignore_padding_tokens",
        "semantic_loss_ignore_index", "seq_classif_dropout", "sparse_pred_ignore_index", "sparse_prediction",
    }),
    "how outputs are computed, and what is returned beside them": frozenset({
        "attention_type", "chunk_size_lm_head", "deterministic_flash_attn", "gradient_checkpointing",
        "output_router_logits", "pretraining_tp",
        "reference_compile", "reorder_and_upcast_attn", "repad_logits_with_grad",
    }),
    "follows from other keys, or from the tensors, whose shapes are compared": frozenset({
        "freeze_batch_norm_2d", "hidden_size", "in_chans", "num_hidden_layers", "num_layers", "pooler_hidden_size",
        "pooler_output_size",
        "use_pretrained_backbone",
    }),
    "there are no word embeddings": frozenset({"tie_word_embeddings"}),
    "used with `use_tpu_fourier_optimizations` alone, which is refused": frozenset({"tpu_short_seq_length"}),
}  # fmt: skip


def find_reason(key: str) -> str:
    """Why a key of a schema's `ignored_keys` is ignored; empty if nothing says it."""
    return next((reason for reason, keys in MODEL_REASONS.items() if key in keys), "")
