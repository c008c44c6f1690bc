"""The discriminator of ELECTRA beside `transformers`: logits, loss and gradients of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

from headwise.interop.hf.read import read_folder
from headwise.tasks.replaced_tokens import DiscriminatorHead, ReplacedTokenDetector
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


def test_the_discriminator_is_that_of_transformers(tmp_path: Path) -> None:
    """An ELECTRA whose embeddings are as wide as its layers is a BERT with another head, so its encoder comes by way of
    a folder of BERT. Theirs judges the opening mark as well, whose loss is taken off."""
    hf_model = build_noisy_model(
        "ElectraForPreTraining", transformers.ElectraConfig(**SHAPE, embedding_size=32, hidden_act="gelu")
    )
    bert = transformers.BertForMaskedLM(transformers.BertConfig(**SHAPE))
    weights = {name.replace("electra.", "bert."): tensor for name, tensor in hf_model.electra.state_dict().items()}
    missing = bert.bert.load_state_dict(weights, strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys
    imported = read_folder(save(bert, tmp_path, SPECIAL_IDS))
    head = DiscriminatorHead(32)
    head.dense.load_state_dict(hf_model.discriminator_predictions.dense.state_dict())
    head.out.load_state_dict(hf_model.discriminator_predictions.dense_prediction.state_dict())
    ours = ReplacedTokenDetector(imported.model.encoder, head, nn.Identity()).eval()  # type: ignore[arg-type]

    read = F.pad(IDS, (1, 0), value=1)  # the opening mark
    hf_inputs = {
        "input_ids": torch.tensor(imported.vocabularies.source.order)[read],
        "attention_mask": (read != PAD).long(),
    }
    hf_outputs = hf_model(**hf_inputs, labels=F.pad(REPLACED, (1, 0)).long())
    real = IDS != PAD
    assert_parity(ours(IDS)[real], hf_outputs.logits[:, 1:][real])
    loss = ours.discriminator_loss(IDS, REPLACED)
    opening = F.softplus(hf_outputs.logits[:, 0]).sum()  # of a mark that is original
    expected = hf_outputs.loss * hf_inputs["attention_mask"].sum() - opening
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-5)
    assert loss.count == real.sum()

    expected.backward()
    loss.total.backward()
    torch.testing.assert_close(
        head.dense.weight.grad, hf_model.discriminator_predictions.dense.weight.grad, rtol=1e-4, atol=1e-5
    )
