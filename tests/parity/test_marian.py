"""Hugging Face's MarianMTModel with random weights, in and out: the same numbers and the same outputs."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from headwise.blocks.stream import Context
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.transformer import TransformerConfig
from headwise.testing import assert_parity
from headwise.text import BOS, EOS, PAD
from headwise.text.hf import VocabularyMap

logging.disable_progress_bar()
VOCAB = 41
OPUS: dict[str, Any] = {  # the shape of the folders of OPUS-MT, small: the end first, the padding last and in front
    "vocab_size": VOCAB, "d_model": 32, "max_position_embeddings": 64, "activation_function": "swish", "init_std": 0.15,
    "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48,
    "scale_embedding": True, "pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1, "eos_token_id": 0,
    "forced_eos_token_id": 0,
}  # fmt: skip
SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 40, EOS, PAD, PAD]])
TARGET = torch.tensor([[BOS, 7, 8, 9], [BOS, 6, 5, 5]])


def marian(**settings: Any) -> MarianMTModel:
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**OPUS, **settings})).eval()
    model.final_logits_bias.normal_()
    return model


def rows(vocab: int = VOCAB, start: int = VOCAB - 1) -> VocabularyMap:
    return VocabularyMap(vocab, pad=VOCAB - 1, bos=start, eos=0)


def logits(model: MarianMTModel, source: torch.Tensor, target: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return model(input_ids=source, attention_mask=keep.long(), decoder_input_ids=target).logits


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation_function": "gelu", "decoder_attention_heads": 2, "decoder_ffn_dim": 64, "decoder_layers": 1},
        {"scale_embedding": False, "activation_function": "relu"},
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 45},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
        {"tie_word_embeddings": False},
        {"decoder_start_token_id": 3, "activation_function": "gelu_new"},
    ],
    ids=str,
)
@torch.inference_mode()
def test_logits_are_equal_both_ways(settings: dict[str, Any], tmp_path: Path) -> None:
    hf_model = marian(**settings)
    hf_model.save_pretrained(tmp_path / "in")
    imported = read_folder(tmp_path / "in")
    ours = imported.model
    start = hf_model.config.decoder_start_token_id
    source, target = rows(start=start), rows(hf_model.config.decoder_vocab_size, start)
    keep = SOURCE != PAD
    expected = logits(hf_model, torch.tensor(source.hf_ids)[SOURCE], torch.tensor(target.hf_ids)[TARGET], keep)
    expected = expected[..., target.hf_ids]
    actual = ours(SOURCE, TARGET)
    real = sorted(target.headwise_ids)
    assert imported.vocabularies == (source, target) and imported.tokenisers is None
    assert_parity(actual[..., real], expected[..., real])
    assert_parity(actual.log_softmax(-1)[..., real], expected[..., real].log_softmax(-1))

    write_folder(ours, imported.config, "transduce", None, tmp_path / "out")
    again = MarianMTModel.from_pretrained(tmp_path / "out").eval()
    assert_parity(logits(again, SOURCE, TARGET, keep), actual)
    again.save_pretrained(tmp_path / "resaved")
    assert torch.equal(read_folder(tmp_path / "resaved").model(SOURCE, TARGET), actual)


@torch.inference_mode()
def test_encoder_states_are_equal(tmp_path: Path) -> None:
    hf_model = marian()
    hf_model.save_pretrained(tmp_path / "in")
    ours = read_folder(tmp_path / "in").model
    keep = SOURCE != PAD
    expected = hf_model.get_encoder()(torch.tensor(rows().hf_ids)[SOURCE], attention_mask=keep.long()).last_hidden_state
    actual = ours.encoder(SOURCE, Context()).x
    assert_parity(actual[keep], expected[keep])


@pytest.mark.parametrize("settings", [{}, {"positions": {"kind": "sinusoid", "halves": True}, "tie": "none"}])
@torch.inference_mode()
def test_headwise_models_keep_their_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    """Interleaved sinusoids, another order of channels than Marian's, and separate vocabularies included."""
    torch.manual_seed(0)
    shape = {"width": 30, "heads": 3, "encoder": {"depth": 2, "shared": True}, "decoder": {"depth": 2}}
    config = TransformerConfig.model_validate({**shape, **settings})
    for sizes in ((41,), (41, 45)):
        ours = config.build(*sizes).eval()
        for weight in ours.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        write_folder(ours, config, "transduce", None, tmp_path / "out")
        hf_model = MarianMTModel.from_pretrained(tmp_path / "out").eval()
        expected = ours(SOURCE, TARGET)
        assert_parity(logits(hf_model, SOURCE, TARGET, SOURCE != PAD), expected)
        back = read_folder(tmp_path / "out").model
        assert back.vocab == ours.vocab
        assert_parity(back(SOURCE, TARGET), expected)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[MarianMTModel, EncoderDecoder]:
    folder = tmp_path_factory.mktemp("marian") / "in"
    hf_model = marian(init_std=0.4)  # far-apart logits, as in a trained model
    hf_model.save_pretrained(folder)
    return hf_model, read_folder(folder).model


@pytest.mark.parametrize("beams", [1, 4])
@torch.inference_mode()
def test_outputs_are_those_of_generate(pair: tuple[MarianMTModel, EncoderDecoder], beams: int) -> None:
    hf_model, ours = pair
    sources = [[5, 6, 7, 8], [9, 40], [12, 33, 21, 8, 19, 4], [30], [17, 18, 19]]
    config = DecodeConfig(beams=beams, length_penalty=0, max_ratio=0, max_extra=12)
    order = torch.tensor(rows().hf_ids)
    for source, actual in zip(sources, decode(ours, sources, config), strict=True):
        ids = order[torch.tensor([[*source, EOS]])]
        expected = hf_model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=beams, length_penalty=0.0, early_stopping="never",
            max_new_tokens=13, bad_words_ids=[[VOCAB - 1]], do_sample=False,
        )[0].tolist()[1:]  # fmt: skip
        expected = expected[: expected.index(0)] if 0 in expected else expected
        assert order[list(actual[0].ids)].tolist() == expected
