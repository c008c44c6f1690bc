"""Keys of a `config.json` that change no output of a model in evaluation mode, so that no schema reads them.

A key that is neither here, nor in a schema (`HfConfig`), nor an alias is refused: what it changes is unknown. Keys of
one model type are in the `ignored_keys` of its schema. A key that changes outputs and has no equivalent in Headwise is
a field of the schema with the one supported value (`Literal`).
"""

from __future__ import annotations

METADATA = frozenset({
    "_commit_hash", "eos_token_ids", "_name_or_path", "name_or_path", "architectures", "auto_map", "finetuning_task",
    "task_specific_params", "prefix", "tokenizer_class", "model_max_length", "transformers_version",
    "transformers.js_config", "transformers_weights", "dtype", "torch_dtype", "torchscript", "use_bfloat16",
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
    "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule", "num_beam_groups", "num_beams",
    "num_return_sequences", "remove_invalid_values", "repetition_penalty", "suppress_tokens", "target_lookbehind",
    "temperature", "top_k", "top_p", "typical_p",
})  # fmt: skip
IGNORED_KEYS = METADATA | READ_ELSEWHERE | RUNTIME | TRAINING | GENERATION
