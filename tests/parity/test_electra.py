"""The discriminator of ELECTRA beside `transformers`, in and out: logits, loss and gradients of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

import headwise
from headwise import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf.read import read_folder
from headwise.testing import assert_parity
from headwise.text import EOS, PAD, UNK

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}
SHAPE: dict[str, Any] = {
    "vocab_size": len(vocabulary(SPECIAL_IDS)), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 20, "pad_token_id": SPECIAL_IDS["pad"],
}  # fmt: skip
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, EOS], [12, 13, UNK, 14, EOS, PAD, PAD]])
REPLACED = torch.tensor([[0, 1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]]).bool()


def build_electra(name: str, **settings: Any) -> Any:
    return build_noisy_model(name, transformers.ElectraConfig(**{**SHAPE, **settings}))


def build_inputs(order: tuple[int, ...]) -> dict[str, torch.Tensor]:
    read = F.pad(IDS, (1, 0), value=1)  # the prefix token
    return {"input_ids": torch.tensor(order)[read], "attention_mask": (read != PAD).long()}


@pytest.mark.parametrize("settings", [{"embedding_size": 32}, {"embedding_size": 12, "hidden_act": "relu"}], ids=str)
def test_the_discriminator_is_that_of_transformers(settings: dict[str, Any], tmp_path: Path) -> None:
    """Logits, loss and gradients. In `transformers` the prefix token has a loss as well, which is taken off."""
    hf_model = build_electra("ElectraForPreTraining", **settings)
    imported = read_folder(save(hf_model, tmp_path, SPECIAL_IDS))
    model = imported.model
    hf_inputs = build_inputs(imported.vocabularies.source.order)
    hf_outputs = hf_model(**hf_inputs, labels=F.pad(REPLACED, (1, 0)).long())
    real = IDS != PAD
    assert_parity(model(IDS)[real], hf_outputs.logits[:, 1:][real])
    loss = model.discriminator_loss(IDS, REPLACED)
    prefix_loss = F.softplus(hf_outputs.logits[:, 0]).sum()  # of a token that is original
    expected = hf_outputs.loss * hf_inputs["attention_mask"].sum() - prefix_loss
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-5)
    assert loss.count == real.sum()

    expected.backward()
    loss.total.backward()
    torch.testing.assert_close(
        model.head.dense.weight.grad, hf_model.discriminator_predictions.dense.weight.grad, rtol=1e-4, atol=1e-5
    )


@torch.inference_mode()
def test_a_discriminator_detects_here_and_there(tmp_path: Path) -> None:
    """Through the tokeniser, saved as a run, and written as a folder; without a generator it cannot be scored."""
    hf_model = build_electra("ElectraForPreTraining", embedding_size=12)
    loaded = from_hf(save(hf_model, tmp_path / "in", SPECIAL_IDS))
    expected = hf_model(torch.tensor([[8, 1, 2, 20, 11]])).logits[0, 1:4].sigmoid()
    to_hf(loaded, tmp_path / "out")
    again = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "out").eval()
    assert_parity(again(torch.tensor([[8, 1, 2, 20, 11]])).logits[0, 1:4].sigmoid(), expected)
    for model in (loaded, headwise.load(loaded.save(tmp_path / "run").path), from_hf(tmp_path / "out")):
        words = model.task.detect_replaced(model.model, ["w1 w2 w20"])[0]
        assert [word.word for word in words] == ["w1", "w2", "w20"]
        assert_parity(torch.tensor([word.probability for word in words]), expected)
    with pytest.raises(UserError, match=r"^task\.generator_size: 0 is a discriminator without a generator"):
        loaded.evaluate([("", "w1 w2 w20 w4 w5 w6 w9")])


def test_a_detector_trained_here_is_a_discriminator_in_transformers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headwise")
    (tmp_path / "lines.txt").write_text("a b c d e f g h\n" * 8)
    data = {"train": str(tmp_path / "lines.txt"), "valid": str(tmp_path / "lines.txt"), "format": "lines",
            "cache": str(tmp_path / "cache")}  # fmt: skip
    model = {"kind": "bert", "width": 24, "heads": 2, "depth": 1, "embedding_width": 12,
             "positions": {"kind": "learned", "max_length": 16}}  # fmt: skip
    tables = {
        "name": "born", "task": {"kind": "replaced-tokens", "context": 16}, "model": model, "tokeniser": "words",
        "data": data, "train": {"steps": 2, "threads": 1, "batch_size": 4},
    }  # fmt: skip
    run = headwise.load(train_experiment(parse_experiment(tables), tmp_path / "runs")[0].path)
    to_hf(run, tmp_path / "out")
    assert "generator: not written" in caplog.text
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.inference_mode():
        hf_model = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "out").eval()
        expected = hf_model(**tokenizer("a h c", return_tensors="pt")).logits[0, 1:-1].sigmoid()
    for detector in (run, from_hf(tmp_path / "out")):
        words = detector.task.detect_replaced(detector.model, ["a h c"])[0]
        assert_parity(torch.tensor([word.probability for word in words]), expected)
