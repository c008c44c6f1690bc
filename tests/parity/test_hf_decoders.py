"""Decoders of `transformers` with random weights, in and out: the same numbers, the same outputs, the same tensors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    LogitsProcessor,
    MistralConfig,
    MixtralConfig,
    OpenAIGPTConfig,
    OPTConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)
from transformers.utils import logging

from headwise.blocks.record import collect
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import write_folder
from headwise.models.build import build
from headwise.testing import assert_parity
from headwise.text import BOS, EOS

logging.disable_progress_bar()
VOCAB = 37
GPT: dict[str, Any] = {"vocab_size": VOCAB, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4}
LLAMA: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44,
    "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip
OPT: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 44,
    "max_position_embeddings": 24, "word_embed_proj_dim": 36, "init_std": 0.3,
}  # fmt: skip
SPECIAL_IDS: dict[str, Any] = {"bos_token_id": 36, "eos_token_id": 36}
CASES: dict[str, PreTrainedConfig] = {
    "gpt": OpenAIGPTConfig(**GPT, initializer_range=0.3, eos_token_id=36),
    "gpt-published": OpenAIGPTConfig(**GPT, afn="relu"),  # without any marks
    "gpt2": GPT2Config(**GPT, **SPECIAL_IDS, initializer_range=0.3),
    "gpt2-other": GPT2Config(
        **GPT, **SPECIAL_IDS, n_inner=40, activation_function="relu", layer_norm_epsilon=1e-3, tie_word_embeddings=False
    ),
    "llama": LlamaConfig(**LLAMA),
    "llama-grouped": LlamaConfig(
        **LLAMA, num_key_value_heads=2, head_dim=12, rms_norm_eps=1e-3, tie_word_embeddings=True, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "llama-biases": LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
    "mistral": MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=None),
    "mistral-window": MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=4),
    "llama-3": LlamaConfig(
        **LLAMA, num_key_value_heads=2, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 2.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "qwen2": Qwen2Config(**LLAMA, num_key_value_heads=2, bos_token_id=1, eos_token_id=2),
    "qwen2-window": Qwen2Config(
        **LLAMA, num_key_value_heads=2, eos_token_id=2, use_sliding_window=True, sliding_window=3, max_window_layers=1,
    ),
    "qwen3": Qwen3Config(**LLAMA, num_key_value_heads=2, head_dim=10, rms_norm_eps=1e-3, eos_token_id=2),
    "qwen3-biases": Qwen3Config(
        **LLAMA, num_key_value_heads=4, head_dim=6, attention_bias=True, eos_token_id=2, use_sliding_window=True,
        layer_types=["sliding_attention", "full_attention"], sliding_window=2,
    ),
    "mixtral": MixtralConfig(**LLAMA, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2),
    "mixtral-one": MixtralConfig(
        **LLAMA, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=1, sliding_window=4,
    ),
    "gpt-neox": GPTNeoXConfig(**LLAMA),
    "gpt-neox-sequential": GPTNeoXConfig(
        **LLAMA, use_parallel_residual=False, attention_bias=False, hidden_act="relu", tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.6},
    ),
    "opt": OPTConfig(**OPT),
    "opt-post-norm": OPTConfig(**OPT, do_layer_norm_before=False, enable_bias=False, activation_function="gelu"),
}  # fmt: skip


def build_hf_model(name: str) -> PreTrainedModel:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CASES[name]).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # zero biases and unit gains would hide a wrong place
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ImportedModel, Path]:
    folder = tmp_path_factory.mktemp(request.param) / "in"
    model = build_hf_model(request.param)
    model.save_pretrained(folder)
    return model, read_folder(folder), folder


def order_ids(imported: ImportedModel) -> torch.Tensor:
    return torch.tensor(imported.vocabularies.source.hf_ids)


def list_real_ids(imported: ImportedModel) -> list[int]:
    """Our ids that have a row of their own."""
    return sorted(imported.vocabularies.source.headwise_ids)


IDS = torch.randint(4, VOCAB, (3, 9), generator=torch.Generator().manual_seed(0))


def build_gpt3(folder: Path, band: int) -> tuple[Any, Any, ImportedModel]:
    """GPT-2 of transformers and our GPT-3 with its weights."""
    model = build_hf_model("gpt2")
    model.save_pretrained(folder)
    imported = read_folder(folder)
    vocab = imported.model.vocab
    ours = build("gpt3-tiny", vocab=vocab, positions={"kind": "learned", "max_length": 24}, window=band).eval()
    ours.load_state_dict(imported.model.state_dict())
    return model, ours, imported


@torch.inference_mode()
def test_gpt3_is_gpt2_where_every_layer_is_dense(tmp_path: Path) -> None:
    """A band as wide as the text hides nothing."""
    model, ours, imported = build_gpt3(tmp_path, band=IDS.shape[1])
    expected, real_ids = model(order_ids(imported)[IDS]).logits, list_real_ids(imported)
    assert_close(ours(IDS)[..., real_ids], expected[..., order_ids(imported)[real_ids]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("band", [1, 2, 4])
@torch.inference_mode()
def test_gpt3_hides_what_is_outside_the_band_in_every_other_layer(band: int, tmp_path: Path) -> None:
    """GPT-2's second layer is given a mask that shows a token itself and the band - 1 tokens before it."""
    model, ours, imported = build_gpt3(tmp_path, band)
    length = IDS.shape[1]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    mask = torch.zeros(1, 1, length, length).masked_fill((distance < 0) | (distance >= band), -torch.inf)

    def show_the_band(attention: Any, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return given, {**named, "attention_mask": mask}

    model.transformer.h[1].attn.register_forward_pre_hook(show_the_band, with_kwargs=True)
    expected, real_ids = model(order_ids(imported)[IDS]).logits, list_real_ids(imported)
    assert_close(ours(IDS)[..., real_ids], expected[..., order_ids(imported)[real_ids]], rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_logits_and_hidden_states_are_equal(pair: tuple[Any, ImportedModel, Path]) -> None:
    model, imported, _ = pair
    expected = model(order_ids(imported)[IDS], output_hidden_states=True)
    with collect("layer") as side:
        actual = imported.model(IDS)
    real_ids = list_real_ids(imported)
    assert_parity(actual[..., real_ids], expected.logits[..., order_ids(imported)[real_ids]])
    # Not the last: theirs has gone through the final norm.
    for ours, other in zip(side.list_values("layer")[:-1], expected.hidden_states[1:-1], strict=True):
        assert_parity(ours.x, other)


@torch.inference_mode()
def test_absent_special_tokens_have_no_probability(pair: tuple[Any, ImportedModel, Path]) -> None:
    model, imported, _ = pair
    real_ids = list_real_ids(imported)
    expected = model(order_ids(imported)[IDS]).logits.log_softmax(-1)[..., order_ids(imported)[real_ids]]
    actual = imported.model(IDS).log_softmax(-1)
    assert_parity(actual[..., real_ids], expected)
    spare = list(imported.vocabularies.source.suppressed_ids)
    assert not actual[..., spare].exp().any()


class DueEnd(LogitsProcessor):
    """Our rule for what reaches the longest length: it ends there, and that counts."""

    def __init__(self, length: int, end: int):
        self.length, self.end = length, end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] < self.length:
            return scores
        others = torch.arange(scores.shape[1]) != self.end
        return scores.masked_fill(others, -torch.inf)


@torch.inference_mode()
def test_outputs_are_those_of_generate(pair: tuple[Any, ImportedModel, Path]) -> None:
    model, imported, _ = pair
    rows, words = order_ids(imported), imported.vocabularies.source
    prompts = [[5, 9, 6], [30], [12, 33, 21, 8, 19, 4], [7, 7]]
    banned = [[row] for row in (words.pad, words.bos) if row not in (None, words.eos)]
    for beams in (1, 3) if words.eos is not None else (1,):  # hypotheses that cannot end cannot be compared
        search = {"length_penalty": 0.0, "early_stopping": "never"} if beams > 1 else {}
        config = DecodeConfig(beams=beams, length_penalty=0, max_ratio=0, max_extra=10, max_length=10, marked=False)
        for prompt, actual in zip(prompts, decode(imported.model, prompts, config), strict=True):
            ids = rows[torch.tensor([prompt])]
            output = model.generate(
                ids, attention_mask=torch.ones_like(ids), num_beams=beams, max_new_tokens=11, do_sample=False,
                eos_token_id=words.eos, pad_token_id=0, bad_words_ids=banned or None,
                logits_processor=[DueEnd(ids.shape[1] + 10, words.eos)] if words.eos is not None else [], **search,
            )[0, ids.shape[1] :].tolist()  # fmt: skip
            assert (
                rows[list(actual[0].ids)].tolist() == output[: output.index(words.eos) if words.eos in output else 10]
            )


@torch.inference_mode()
def test_import_and_export_keep_tensors_bit_by_bit(pair: tuple[Any, ImportedModel, Path], tmp_path: Path) -> None:
    model, imported, folder = pair
    write_folder(imported.model, imported.config, imported.task, None, tmp_path / "out", imported.vocabularies.source)
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = order_ids(imported)[IDS]
    assert torch.equal(again(ids).logits, model(ids).logits)


@pytest.mark.parametrize("name", ["gpt-tiny", "gpt2-tiny", "llama-tiny"])
@torch.inference_mode()
def test_models_trained_here_have_equal_logits_in_transformers(name: str, tmp_path: Path) -> None:
    from headwise.catalog import find

    torch.manual_seed(0)
    entry, size = find(name)
    config = entry.config(**entry.sizes[size])
    model = build(name, vocab=VOCAB).eval()
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))
    write_folder(model, config, "language-model", None, tmp_path / "out")
    other = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert_parity(other(IDS).logits, model(IDS))
    assert (other.config.bos_token_id, other.config.eos_token_id) == (BOS, EOS)
    back = read_folder(tmp_path / "out")
    assert torch.equal(back.model(IDS), model(IDS))
