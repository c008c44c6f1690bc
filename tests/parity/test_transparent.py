"""Transparent attention against T5 of `transformers`, whose cross-attentions get mixtures of its encoder's layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

from headwise.interop.hf.read import read_folder
from headwise.testing import assert_parity

logging.disable_progress_bar()
SETTINGS = {
    "vocab_size": 29, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
}  # fmt: skip
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [11, 12, 2, 0, 0, 0, 0]])
TARGET = torch.tensor([[1, 7, 8, 9, 10], [1, 6, 5, 5, 4]])


def replace_memory(model: Any, layer_mixture: torch.Tensor, source: torch.Tensor, keep: torch.Tensor) -> None:
    """Let decoder layer j of a Hugging Face T5 attend to sum_i softmax_i(W)_ij of its encoder's hidden states."""
    states = model.encoder(input_ids=source, attention_mask=keep, output_hidden_states=True).hidden_states
    for number, block in enumerate(model.decoder.block):
        exponentials = [float(layer_mixture[i, number].exp()) for i in range(len(states))]
        memory = sum(weight / sum(exponentials) * state for weight, state in zip(exponentials, states, strict=True))

        def edit(module: Any, args: Any, kwargs: Any, memory: Any = memory) -> Any:
            assert kwargs["key_value_states"].shape == memory.shape
            return args, {**kwargs, "key_value_states": memory}

        block.layer[1].EncDecAttention.register_forward_pre_hook(edit, with_kwargs=True)


@torch.inference_mode()
def test_logits_are_those_of_t5_with_mixed_memories(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**SETTINGS)).eval()
    for parameter in theirs.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    imported = read_folder(tmp_path)
    ours = imported.config.replace(transparent_attention=True).build(imported.model.vocab).eval()
    layer_mixture = torch.randn(3, 3)  # embeddings and 2 layers, for 3 layers of the decoder
    ours.load_state_dict({**imported.model.state_dict(), "decoder.stack.layer_mixture": layer_mixture})
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    keep = (SOURCE != 0).long()
    replace_memory(theirs, layer_mixture, order[SOURCE].clamp(min=0), keep)
    logits = theirs(input_ids=order[SOURCE].clamp(min=0), attention_mask=keep, decoder_input_ids=order[TARGET]).logits
    suppressed = imported.vocabularies.target.suppressed_ids
    real = [number for number in range(len(order)) if number not in suppressed]
    assert_parity(ours(SOURCE, TARGET)[..., real], logits[..., order[real]])
    assert (ours(SOURCE, TARGET) - imported.model(SOURCE, TARGET)).abs().max() > 0.01
