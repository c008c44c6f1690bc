"""Names of other libraries for our keys: PyTorch, Hugging Face transformers, timm, fairseq, nanoGPT.

A row is: their names, our keys from the experiment's root. Of several keys, the first that the table of the unknown key
can have is suggested, else the first in another table. Our own names are listed for keys written into a wrong table.
The suggestion stands in the error; none of these names is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

ROWS = (
    # the model
    ("d_model hidden_size n_embd embed_dim dim model_dim emb_dim embedding_dim width", "model.width model.widths"),
    ("encoder_embed_dim decoder_embed_dim hidden_dim", "model.width model.widths"),
    ("embedding_size", "model.embedding_width"),
    ("n_heads n_head nhead num_heads num_attention_heads attention_heads heads", "model.heads"),
    ("encoder_attention_heads decoder_attention_heads", "model.heads"),
    ("num_layers n_layer n_layers num_hidden_layers num_blocks n_blocks layers depth", "model.depth model.depths"),
    ("num_encoder_layers encoder_layers n_encoder_layers", "model.encoder.depth model.depth"),
    ("num_decoder_layers decoder_layers n_decoder_layers", "model.decoder.depth model.depth"),
    ("depths stage_depths", "model.depths"),
    ("dim_feedforward ffn_dim intermediate_size d_ff d_inner mlp_dim n_inner hidden", "model.hidden"),
    ("ffn_embed_dim encoder_ffn_embed_dim decoder_ffn_embed_dim encoder_ffn_dim decoder_ffn_dim", "model.hidden"),
    ("mlp_ratio", "model.hidden model.expand"),
    ("head_dim d_head d_kv head_width", "model.head_width"),
    ("num_key_value_heads n_kv_heads num_kv_heads key_value_heads", "model.key_value_heads"),
    ("attention_dropout attn_pdrop attn_drop attn_dropout attn_drop_rate", "model.attention_dropout"),
    ("attention_probs_dropout_prob attention_dropout_rate", "model.attention_dropout"),
    ("hidden_dropout_prob resid_pdrop embd_pdrop resid_dropout dropout_rate drop_rate dropout", "model.dropout"),
    ("activation_dropout relu_dropout act_dropout", "model.hidden_dropout"),
    ("drop_path_rate drop_path stochastic_depth_prob", "model.drop_path"),
    ("hidden_act activation_function activation_fn act_layer feed_forward_proj activation", "model.activation"),
    ("tie_word_embeddings share_embeddings tie_embeddings share_all_embeddings tie_weights tie", "model.tie"),
    ("share_decoder_input_output_embed", "model.tie"),
    ("adaptive_softmax_cutoff cutoffs", "model.output_layer.cutoffs"),
    ("div_val adaptive_softmax_factor div_value", "model.output_layer.div_value"),
    ("adaptive_input_cutoff", "model.token_embedding.cutoffs"),
    ("num_softmaxes n_experts_softmax", "model.output_layer.components"),
    ("rope_theta rotary_base rope_base rotary_emb_base", "model.positions.base"),
    ("position_embedding_type positional_encoding pos_embed positions", "model.positions"),
    ("relative_attention_num_buckets", "model.positions.buckets"),
    ("layer_norm_eps layer_norm_epsilon rms_norm_eps norm_eps", "model.norm.eps"),
    ("norm_layer norm_type normalization", "model.norm"),
    ("norm_first normalize_before encoder_normalize_before pre_norm wiring", "model.wiring"),
    ("patch_size patch", "model.patch"),
    ("window_size", "model.window"),
    ("image_size img_size input_size", "data.size model.image"),
    ("num_channels in_chans in_channels", "data.channels model.channels"),
    ("type_vocab_size", "model.token_types"),
    ("model_type arch architecture", "model.kind"),
    # lengths
    (
        "max_position_embeddings n_positions max_source_positions max_target_positions",
        "model.positions.max_length task.context decode.max_length data.max_length",
    ),
    (
        "block_size context_length context_size n_ctx context",
        "task.context data.max_length model.positions.max_length decode.context",
    ),
    (
        "seq_len seq_length max_seq_len max_seq_length sequence_length",
        "task.context data.max_length model.positions.max_length decode.max_length",
    ),
    ("max_length max_len", "decode.max_length data.max_length task.context model.positions.max_length"),
    # data and words
    ("vocab_size n_vocab vocabulary_size", "tokeniser.size"),
    ("tokenizer tokenizer_name tokenizer_type", "tokeniser.kind"),
    ("dataset dataset_name", "data.name"),
    ("train_file train_data train_path data_path data_dir", "data.train"),
    ("validation_file valid_file val_file val_data", "data.valid"),
    ("test_file test_data", "data.test"),
    ("delimiter sep", "data.separator"),
    ("text_column label_column column_names text_columns", "data.columns"),
    # training
    ("learning_rate lr max_lr base_lr peak_lr", "train.schedule.lr"),
    ("min_lr eta_min lr_end end_learning_rate", "train.schedule.floor"),
    ("warmup_steps warmup_updates warmup_iters num_warmup_steps warmup", "train.schedule.warmup"),
    ("warmup_ratio warmup_epochs", "train.schedule.warmup"),
    ("lr_scheduler_type lr_scheduler lr_schedule scheduler sched", "train.schedule.kind"),
    ("schedule", "train.schedule"),
    ("optim optimizer_type optimizer_name opt", "train.optimizer.kind"),
    ("optimizer optimiser", "train.optimizer"),
    ("weight_decay wd", "train.optimizer.weight_decay"),
    ("adam_beta1 adam_beta2 beta1 beta2 adam_betas betas", "train.optimizer.betas"),
    ("adam_epsilon adam_eps", "train.optimizer.eps"),
    ("batch_size train_batch_size micro_batch_size", "train.batch_size decode.tokens_per_batch"),
    ("per_device_train_batch_size per_gpu_train_batch_size", "train.batch_size"),
    ("max_tokens", "train.tokens_per_batch decode.max_length"),
    ("tokens_per_batch batch_tokens", "train.tokens_per_batch"),
    ("max_steps max_iters max_update total_steps num_steps num_training_steps steps", "train.steps"),
    ("num_train_epochs max_epochs max_epoch num_epochs n_epochs epochs", "train.epochs"),
    ("minutes", "train.minutes"),
    ("max_grad_norm clip_grad clip_norm gradient_clip_val grad_clip clip", "train.clip_norm"),
    ("gradient_accumulation_steps accumulate_grad_batches grad_accum_steps update_freq", "train.accumulate"),
    ("accumulation_steps accumulate", "train.accumulate"),
    ("label_smoothing label_smoothing_factor smoothing", "train.label_smoothing"),
    ("early_stopping_patience patience", "train.patience"),
    ("fp16 bf16 amp mixed_precision dtype torch_dtype precision", "train.precision"),
    ("eval_steps eval_interval eval_every val_check_interval validate_every", "train.validate_every"),
    ("logging_steps log_interval log_every_n_steps log_every", "train.log_every"),
    ("save_steps save_interval_updates checkpoint_interval", "train.checkpoint_every"),
    ("save_total_limit", "train.keep_checkpoints"),
    ("ema_decay model_ema_decay", "train.ema"),
    ("torch_compile compile", "train.compile"),
    ("device", "train.device"),
    ("layer_decay layerwise_lr_decay", "tuning.layer_lr_decay"),
    ("lora_r lora_rank", "tuning.lora.rank"),
    ("lora_alpha", "tuning.lora.alpha"),
    ("lora_dropout", "tuning.lora.dropout"),
    ("target_modules lora_target_modules", "tuning.lora.targets"),
    ("model_name_or_path pretrained_model_name_or_path finetune_from_model init_checkpoint init_from", "init_from"),
    ("seed random_seed manual_seed", "seed"),
    ("output_dir out_dir save_dir run_name experiment_name exp_name", "name"),
    # decoding
    ("num_beams beam_size beam beam_width beams", "decode.beams"),
    ("num_return_sequences n_best nbest", "decode.nbest"),
    ("length_penalty lenpen", "decode.length_penalty"),
    ("coverage_penalty coverage_penalty_weight", "decode.coverage_penalty"),
    ("max_new_tokens max_gen_len", "decode.max_length"),
    ("min_new_tokens min_length min_len", "decode.min_length"),
    ("max_len_a", "decode.max_ratio"),
    ("max_len_b", "decode.max_extra"),
    ("temperature do_sample sampling", "decode.temperature"),
    ("top_k sampling_topk", "decode.top_k"),
    ("top_p sampling_topp", "decode.top_p"),
    ("repetition_penalty", "decode.repetition_penalty"),
    ("no_repeat_ngram_size", "decode.no_repeat_ngram_size"),
    ("stop_strings stop_sequences", "decode.stop"),
)
SUGGESTED_KEYS: dict[str, tuple[str, ...]] = {
    name: tuple(keys.split()) for names, keys in ROWS for name in names.split()
}

# remarks on keys of ours
KEY_REMARKS = {
    "model.positions.max_length": 'with kind = "learned"',
    "model.positions.base": 'with kind = "rotary"',
    "model.positions.buckets": 'with kind = "t5"',
    "model.image": "in an experiment data.size decides it",
    "train.optimizer.weight_decay": 'with kind = "adamw"',
    "train.schedule.floor": "a share of lr",
    "train.precision": '"float32" or "bfloat16"',
    "model.wiring": '"pre" or "post"',
    "tokeniser.size": "headwise.build takes it as vocab",
    "name": "the folder of all runs is --runs",
}
# remarks on names of theirs that mean another quantity
NAME_REMARKS = {
    "mlp_ratio": {"model.hidden": "in units: mlp_ratio times model.width"},
    "warmup_ratio": {"train.schedule.warmup": "in steps"},
    "warmup_epochs": {"train.schedule.warmup": "in steps"},
    "do_sample": {"decode.temperature": "above 0 it samples"},
    "sampling": {"decode.temperature": "above 0 it samples"},
    "adam_beta1": {"train.optimizer.betas": "both in one list"},
    "adam_beta2": {"train.optimizer.betas": "both in one list"},
    "beta1": {"train.optimizer.betas": "both in one list"},
    "beta2": {"train.optimizer.betas": "both in one list"},
}
LABEL_COUNTS = ("num_classes", "num_labels", "n_classes", "nb_classes")  # taken from the data


def suggest(
    name: str, place: str | None, known: Iterable[str], exists: Callable[[str], bool] = lambda key: True
) -> str:
    """The end of the error sentence for another library's name in the table at `place`; empty if it is no such name.

    `known` are the keys of that table, whose place may be unknown; `exists` tells whether the experiment can have a key
    of another table.

    >>> suggest("d_model", "model", ["width", "heads"])
    'Headwise calls it model.width'
    >>> suggest("d_model", "train", ["steps"])
    'Headwise calls it model.width; it belongs in [model]'
    >>> suggest("num_layers", None, ["depth", "layers"])
    'Headwise calls it depth'
    """
    name, known = name.lower().replace("-", "_"), tuple(known)
    if name in LABEL_COUNTS and place is not None:
        return "Headwise counts the labels of the data; leave it out (headwise.build takes it as outputs)"
    keys = SUGGESTED_KEYS.get(name, ())
    if place is None:
        leaf = next((key.rpartition(".")[2] for key in keys if key.rpartition(".")[2] in known), "")
        return f"Headwise calls it {leaf}" if leaf else ""
    prefix = f"{place}." if place else ""
    inside = [key for key in keys if key.startswith(prefix)]
    here = [key for key in inside if _fits(key, prefix, known) and (place or exists(key))]
    elsewhere = [key for key in keys if key not in inside and exists(key)]
    for key in (*here, *elsewhere):
        remark = NAME_REMARKS.get(name, {}).get(key) or KEY_REMARKS.get(key, "")
        if key == prefix + name:
            return f"it comes {remark}"  # another kind has it
        table = key.rpartition(".")[0]
        where = f"; it belongs {f'in [{table}]' if table else 'before all tables'}" if table != place else ""
        return f"Headwise calls it {key}{f' ({remark})' if remark else ''}{where}"
    return ""


def _fits(key: str, prefix: str, known: tuple[str, ...]) -> bool:
    """Whether the table can have a key, with its kind or with another."""
    first, dot, _ = key.removeprefix(prefix).partition(".")
    return first in known or (not dot and KEY_REMARKS.get(key, "").startswith("with kind"))
