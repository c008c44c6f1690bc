"""T5, mT5 and BART of `transformers` with random weights, in and out: the same numbers and the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.utils import logging
from word_folders import save

from headwise import UserError
from headwise.blocks.stream import Context
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import write_folder
from headwise.testing import assert_parity
from headwise.text import BOS, EOS, PAD, UNK

logging.disable_progress_bar()
logging.set_verbosity_error()
VOCAB = 29
T5: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
}  # fmt: skip
BART: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 24,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("T5", {}),
    ("T5", V11),
    ("T5", {"feed_forward_proj": "gated-silu"}),
    ("MT5", {}),
    ("MT5", {"feed_forward_proj": "relu", "d_model": 30, "tie_word_embeddings": False}),
    ("Bart", {}),
    ("Bart", {"scale_embedding": True, "activation_function": "relu"}),
    ("Bart", {"tie_word_embeddings": False}),
]
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 7, 8, 9, 10], [BOS, 6, 5, 5, 4]])


def build_hf_model(kind: str, spread: float = 0.1, name: str = "", **settings: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**(T5 if kind.endswith("T5") else BART), **settings})
    model = getattr(transformers, name or f"{kind}ForConditionalGeneration")(config).eval()
    for parameter in model.parameters():
        parameter.data += spread * torch.randn_like(parameter)
    if kind == "Bart" and not name:
        model.final_logits_bias.normal_()
        model.generation_config.forced_bos_token_id = 0
    return model


def logits(imported: ImportedModel, model: Any) -> tuple[Tensor, Tensor]:
    """Hugging Face logits by Headwise ids, with the special tokens that our model adds; and the encoder's states."""
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    bart = imported.config.kind == "bart"
    source = torch.nn.functional.pad(SOURCE, (1, 0), value=BOS) if bart else SOURCE
    target = torch.nn.functional.pad(TARGET, (1, 0), value=EOS) if bart else TARGET
    keep = (source != PAD).long()
    actual = model(input_ids=order[source].clamp(min=0), attention_mask=keep, decoder_input_ids=order[target])
    written = actual.logits[:, 1:] if bart else actual.logits
    return written[..., order.clamp(min=0)], actual.encoder_last_hidden_state


def compare(imported: ImportedModel, model: Any) -> None:
    expected, states = logits(imported, model)
    actual = imported.model(SOURCE, TARGET)
    real = [number for number in range(actual.shape[-1]) if number not in imported.vocabularies.target.suppressed_ids]
    assert_parity(actual[..., real], expected[..., real])
    assert_parity(actual.log_softmax(-1)[..., real], expected[..., real].log_softmax(-1))
    stream = imported.model.encoder(SOURCE, Context())
    assert_parity(stream.x[stream.keep], states[stream.keep])


@pytest.mark.parametrize(("kind", "settings"), FORMS, ids=str)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = build_hf_model(kind, **settings)
    model.save_pretrained(tmp_path / "in")
    imported = read_folder(tmp_path / "in")
    compare(imported, model)
    write_folder(imported.model, imported.config, "transduce", None, tmp_path / "out", imported.vocabularies.source)
    again = type(model).from_pretrained(tmp_path / "out").eval()
    compare(imported, again)
    assert again.generation_config.decoder_start_token_id == model.config.decoder_start_token_id


@torch.inference_mode()
def test_a_folder_of_t5_with_both_tables_is_untied(tmp_path: Path) -> None:
    """As version 1.1 was released; `transformers` ties what it makes itself."""
    model = build_hf_model("T5", **V11)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, 32))
    model.config.tie_word_embeddings = False
    model.save_pretrained(tmp_path / "in")
    imported = read_folder(tmp_path / "in")
    assert imported.config.tie == "inputs" and not imported.config.scale_outputs
    again = type(model).from_pretrained(tmp_path / "in").eval()
    assert not torch.equal(again.lm_head.weight, again.shared.weight)
    compare(imported, again)
    write_folder(imported.model, imported.config, "transduce", None, tmp_path / "out", imported.vocabularies.source)
    compare(imported, type(model).from_pretrained(tmp_path / "out").eval())


TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("values", [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0), (0, 1, 2)], ids=str)
@torch.inference_mode()
def test_tables_of_bart_are_used_as_they_are_stored(values: tuple[int, ...], tied: bool, tmp_path: Path) -> None:
    """Each way that encoder, decoder and output tables can be equal, whatever `tie_word_embeddings` says."""
    model = build_hf_model("Bart", tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "in")
    path = tmp_path / "in" / "model.safetensors"
    tables = torch.randn(3, VOCAB, 32)
    stored = {name: tables[number].clone() for name, number in zip(TABLES, values, strict=True)}
    save_file(load_file(path) | stored, path, metadata={"format": "pt"})
    again = type(model).from_pretrained(tmp_path / "in").eval()
    for name, tensor in stored.items():
        assert torch.equal(again.state_dict()[name], tensor)
    imported = read_folder(tmp_path / "in")
    compare(imported, again)
    write_folder(imported.model, imported.config, "transduce", None, tmp_path / "out", imported.vocabularies.source)
    compare(imported, type(model).from_pretrained(tmp_path / "out").eval())


HEADS = [
    (kind, kind + head)
    for kind in ("T5", "MT5", "Bart")
    for head in ("ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering")
    if (kind, head) != ("Bart", "ForTokenClassification")  # which transformers has not
]
SPECIAL_IDS = ({"pad": 0, "eos": 1, "unk": 2}, {"bos": 0, "pad": 1, "eos": 2, "unk": 3})  # of T5 and of BART
PAIRS = torch.tensor([[5, 6, EOS, 8, 9, 10, EOS], [11, 12, EOS, 7, EOS, PAD, PAD]])


def compare_heads(imported: ImportedModel, model: Any) -> None:
    """Outputs for texts of two parts and padding; a classifier reads the last end."""
    order, bart = torch.tensor(imported.vocabularies.source.hf_ids), imported.config.kind == "bart"
    ids = torch.nn.functional.pad(PAIRS, (1, 0), value=BOS) if bart else PAIRS
    theirs = model(input_ids=order[ids].clamp(min=0), attention_mask=(ids != PAD).long())
    actual = imported.model(PAIRS)
    if imported.task == "answer":
        expected = torch.stack((theirs.start_logits, theirs.end_logits), -1)[:, bart:]
        keep = actual > torch.finfo().min
        assert keep[0].any() and keep[1].any()
        assert_parity(actual[keep], expected[keep])
    elif imported.task == "tag":
        assert_parity(actual[PAIRS != PAD][:, UNK + 1 :], theirs.logits[PAIRS != PAD])
    else:
        assert_parity(actual[:, UNK + 1 :], theirs.logits)


@pytest.mark.parametrize(("kind", "name"), HEADS)
@torch.inference_mode()
def test_heads_are_equal_both_ways(kind: str, name: str, tmp_path: Path) -> None:
    labels = {"num_labels": 3} if name.endswith("Classification") else {}
    model = build_hf_model(kind, name=name, **labels)
    bart = kind == "Bart"
    folder = save(model, tmp_path / "in", SPECIAL_IDS[bart], begin="bos" if bart else None, end="eos")
    imported = read_folder(folder)
    compare_heads(imported, model)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    again, info = type(model).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    compare_heads(imported, again.eval())


@torch.inference_mode()
def test_an_encoder_of_t5_alone_reads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.T5EncoderModel(transformers.T5Config(**T5)).eval()
    model.save_pretrained(tmp_path)
    imported = read_folder(tmp_path)
    assert imported.task == "encode"
    order = torch.tensor(imported.vocabularies.source.hf_ids)
    expected = model(order[SOURCE].clamp(min=0), attention_mask=(SOURCE != PAD).long()).last_hidden_state
    stream = imported.model.encoder(SOURCE, Context())
    assert_parity(stream.x[stream.keep], expected[stream.keep])


@pytest.fixture(scope="module", params=["T5", "MT5", "Bart"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ImportedModel]:
    """With far-apart logits, as in a trained model, and a T5 that likes to come to an end."""
    folder = tmp_path_factory.mktemp("pair")
    # As many layers on both sides: with fewer in the encoder, their T5 has too small a cache.
    model = build_hf_model(request.param, spread=0.5, **({"num_decoder_layers": 2} if request.param != "Bart" else {}))
    if request.param != "Bart":
        with torch.no_grad():
            ids = torch.arange(4, 24)[None]
            states = model(ids, decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[-1][0].mean(0)
            model.shared.weight[model.config.eos_token_id] += 4.5 * states / states.norm()
    model.save_pretrained(folder)
    return model, read_folder(folder)


@pytest.mark.parametrize("beams", [1, 4])
@torch.inference_mode()
def test_outputs_are_those_of_generate(pair: tuple[Any, ImportedModel], beams: int) -> None:
    model, imported = pair
    bart, order = imported.config.kind == "bart", torch.tensor(imported.vocabularies.source.hf_ids)
    sources = [[5, 6, 7, 8], [9, 20], [12, 13, 21, 8, 19, 4], [17], [17, 18, 19]]
    config = DecodeConfig(beams=beams, length_penalty=0, max_ratio=0, max_extra=18)
    end, banned = int(order[EOS]), [[int(order[PAD])], *([[int(order[BOS])]] if bart else [])]
    for source, actual in zip(sources, decode(imported.model, sources, config), strict=True):
        ids = order[torch.tensor([[*([BOS] if bart else []), *source, EOS]])]
        # BART's first word is a mark that is forced there and given here, which is no choice.
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=beams, length_penalty=0.0, early_stopping="never",
            max_new_tokens=19, forced_eos_token_id=end, do_sample=False,
            **({"decoder_input_ids": order[torch.tensor([[EOS, BOS]])]} if bart else {}), bad_words_ids=banned,
        )[0].tolist()[1 + bart :]  # fmt: skip
        expected = written[: written.index(end)] if end in written else written
        assert order[list(actual[0].ids)].tolist() == expected


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        ("T5", {"feed_forward_proj": "gated-quick_gelu"}, "'quick_gelu' is not supported"),
        ("T5", {"feed_forward_proj": "gated-tanh"}, "dense_act_fn: 'tanh' is not supported in a gate"),
        ("Bart", {"decoder_attention_heads": 2}, "of different heads"),
        ("Bart", {"decoder_start_token_id": 0}, "decoder_start_token_id"),
    ],
)
def test_unsupported_settings_are_refused(kind: str, settings: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    build_hf_model(kind, **settings).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=complaint):
        read_folder(tmp_path)
