"""BigBird of `transformers` with random weights, in and out: the same numbers for texts of many blocks and of few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

import headwise
from headwise import UserError
from headwise.blocks.mixers.patterns import BigBirdGraph
from headwise.blocks.stream import Context
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import choose_architecture
from headwise.testing import assert_parity
from headwise.text import EOS, PAD

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 0, "unk": 7, "cls": 8, "sep": 11, "mask": 15}
VOCAB = vocabulary(SPECIAL_IDS)
SHAPE: dict[str, Any] = {
    "vocab_size": len(VOCAB), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 64, "block_size": 4, "num_random_blocks": 2,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "sep_token_id": SPECIAL_IDS["sep"],
}  # fmt: skip
CLASSES = ["BigBirdForPreTraining", "BigBirdForMaskedLM", "BigBirdForTokenClassification", "BigBirdModel"]


def build_hf_model(name: str = "BigBirdModel", **settings: Any) -> Any:
    return build_noisy_model(name, transformers.BigBirdConfig(**{**SHAPE, **settings}))


def save_folder(model: Any, folder: Path) -> Path:
    return save(model, folder, SPECIAL_IDS)


def texts(length: int) -> Tensor:
    """One text that fills the batch, and one that ends some blocks before."""
    ids = torch.randint(4, len(VOCAB), (2, length), generator=torch.Generator().manual_seed(length))
    ids[:, -1] = EOS
    ids[1, -10:] = PAD
    ids[1, -11] = EOS
    return ids


def compare(imported: ImportedModel, model: Any, length: int) -> None:
    ids = texts(length)
    opened = torch.nn.functional.pad(ids, (1, 0), value=1)
    real, order = opened != PAD, torch.tensor(imported.vocabularies.source.hf_ids)
    types = torch.zeros_like(opened)
    types[1, -9:] = 1  # behind its end, where nobody looks
    actual = model(order[opened], attention_mask=real.long(), token_type_ids=types, output_hidden_states=True)
    states = imported.model.encoder(ids, Context()).x
    assert_parity(states[real], actual.hidden_states[-1][real])
    if imported.task == "masked":
        logits = getattr(actual, "prediction_logits", getattr(actual, "logits", None))[..., list(order)]
        assert_parity(imported.model(ids)[real[:, 1:]], logits[:, 1:][real[:, 1:]])


@pytest.mark.parametrize("name", CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, tmp_path: Path) -> None:
    model = build_hf_model(name)
    imported = read_folder(save_folder(model, tmp_path / "in"))
    compare(imported, model, 55)
    to_hf(from_hf(tmp_path / "in"), tmp_path / "out")
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    compare(imported, again, 47)
    compare(imported, again, 20)  # few blocks, which are seen whole from here on
    written = headwise.interop.folders.read_json(tmp_path / "out" / "config.json")
    assert written["architectures"] == [name] and written["attention_type"] == "block_sparse"


@torch.inference_mode()
def test_other_forms_of_the_same_model(tmp_path: Path) -> None:
    forms = {
        "full": {"attention_type": "original_full"},
        "scale_embeddings": {"rescale_embeddings": True, "hidden_act": "gelu"},
    }
    for name, settings in forms.items():
        model = build_hf_model(**settings)
        imported = read_folder(save_folder(model, tmp_path / name))
        compare(imported, model, 55)
        to_hf(from_hf(tmp_path / name), tmp_path / f"{name} again")
        compare(imported, transformers.BigBirdModel.from_pretrained(tmp_path / f"{name} again").eval(), 55)


def test_with_the_random_blocks_of_training(tmp_path: Path) -> None:
    """States and gradients in training, where they draw blocks by numpy: theirs are put into our graph."""
    model = build_hf_model(max_position_embeddings=128)
    imported = read_folder(save_folder(model, tmp_path))
    length, block = 96, SHAPE["block_size"]

    class Given(BigBirdGraph):
        def draw_random_blocks(self, last_block: Tensor, count: int, heads: int, place: Any, training: bool) -> Tensor:
            assert training
            np.random.seed(place[1])
            plan = theirs_of[place[1]]._get_rand_attn_plan(length, block, self.random)
            drawn = theirs_of[place[1]]._bigbird_block_rand_mask_with_head(length, length, block, block, heads, *plan)
            middle = torch.tensor(np.stack(drawn)).unsqueeze(0)  # (1, H, N - 2, R)
            return torch.nn.functional.pad(middle, (0, 0, 1, 1)).long()

    theirs_of = [layer.attention.self for layer in model.encoder.layer]
    for layer in imported.model.encoder.stack.layers:
        layer.parts[0].graph = Given(block, 1, 2, like_transformers=True)
    ids = torch.randint(4, len(VOCAB), (2, length - 1), generator=torch.Generator().manual_seed(1))
    opened = torch.tensor(imported.vocabularies.source.hf_ids)[torch.nn.functional.pad(ids, (1, 0), value=1)]
    known = np.random.get_state()
    actual = model.train()(opened).last_hidden_state
    states = imported.model.train().encoder(ids, Context()).x
    np.random.set_state(known)
    assert_parity(states, actual)
    for out in (actual, states):
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    ours = imported.model.encoder.stack.layers[0].parts[0].qkv.project.weight.grad
    wanted = torch.cat([getattr(theirs_of[0], name).weight.grad for name in ("query", "key", "value")])
    assert_parity(ours, wanted)


@torch.inference_mode()
def test_settings_that_config_json_cannot_express_are_refused(tmp_path: Path) -> None:
    config = read_folder(save_folder(build_hf_model("BigBirdForMaskedLM"), tmp_path / "in")).config
    for settings in ({"variant": "paper"}, {"window": 5}, {"first": 2}):
        other = config.replace(mixer=config.mixer.replace(**settings))
        with pytest.raises(UserError, match=r"config\.json of big_bird cannot express this"):
            choose_architecture(other, "masked", len(VOCAB))
    with pytest.raises(UserError, match="'BigBirdForQuestionAnswering' is not known"):
        read_folder(save_folder(build_hf_model("BigBirdForQuestionAnswering"), tmp_path / "answer"))
