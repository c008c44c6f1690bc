"""Decision Transformer beside `transformers`: predictions with its weights, folders in both directions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DecisionTransformerConfig, DecisionTransformerModel

from headwise.blocks.stack import count_parameters
from headwise.errors import UserError
from headwise.experiment.convert import from_hf, to_hf
from headwise.inference.trained_model import TrainedModel
from headwise.models.decision_transformer import Trajectory
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.worlds.spaces import Spaces

TINY: dict[str, Any] = {"state_dim": 5, "act_dim": 3, "hidden_size": 16, "max_ep_len": 20, "n_head": 2, "n_layer": 2}


def build_theirs(**settings: Any) -> DecisionTransformerModel:
    torch.manual_seed(0)
    theirs = DecisionTransformerModel(DecisionTransformerConfig(**{**TINY, **settings})).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return theirs


def load_ours(theirs: DecisionTransformerModel, folder: Path) -> TrainedModel:
    theirs.save_pretrained(folder)
    return from_hf(folder)


def draw(length: int = 7) -> tuple[Trajectory, dict[str, Any]]:
    """The same time steps for both; the second row is padded before."""
    random = torch.Generator().manual_seed(2)
    returns, states = torch.randn(2, length, generator=random), torch.randn(2, length, 5, generator=random)
    actions, steps = torch.randn(2, length, 3, generator=random), torch.arange(4, 4 + length).repeat(2, 1)
    keep = torch.ones(2, length, dtype=torch.bool)
    keep[1, :3] = False
    ours = Trajectory(returns, states, actions, steps, keep)
    theirs = {"states": states, "actions": actions, "returns_to_go": returns.unsqueeze(-1), "timesteps": steps}
    return ours, {**theirs, "rewards": None, "attention_mask": keep.long()}


def compare(ours: Any, theirs: DecisionTransformerModel) -> None:
    trajectory, inputs = draw()
    keep = trajectory.keep
    assert keep is not None
    with torch.no_grad():
        decision, expected = ours(trajectory), theirs(**inputs)
    assert_parity(decision.actions[keep], expected.action_preds[keep])
    assert_parity(decision.observations[keep], expected.state_preds[keep])
    assert_parity(decision.returns[keep], expected.return_preds.squeeze(-1)[keep])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_head": 1, "activation_function": "gelu", "n_inner": 24},
        {"action_tanh": False, "layer_norm_epsilon": 1e-3},
    ],
)
def test_predictions_are_equal(settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = build_theirs(**settings)
    compare(load_ours(theirs, tmp_path).model, theirs)


def test_a_folder_comes_back(tmp_path: Path) -> None:
    """With the vector of positions in the bias of the norm, and zeros in its place."""
    theirs = build_theirs()
    loaded = load_ours(theirs, tmp_path / "theirs")
    assert to_hf(loaded, tmp_path / "ours") == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, info = DecisionTransformerModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert not again.encoder.wpe.weight.any() and theirs.encoder.wpe.weight.any()
    compare(loaded.model, again.eval())
    compare(from_hf(tmp_path / "ours").model, theirs)


def test_theirs_has_two_tables_more() -> None:
    theirs = DecisionTransformerModel(DecisionTransformerConfig())
    tables = theirs.encoder.wpe.weight.numel() + theirs.encoder.wte.weight.numel()
    assert count_parameters(theirs) == 1_256_854 and tables == 131_200


def test_what_their_class_cannot_do_keeps_our_config(tmp_path: Path) -> None:
    """Discrete actions."""
    loaded = load_ours(build_theirs(), tmp_path / "theirs")
    encoder = replace(loaded.tokenisers.source, spaces=Spaces((5,), 3, True))
    discrete = replace(loaded, tokenisers=Tokenisers(encoder, encoder))
    discrete = replace(discrete, model=discrete.task.build(loaded.experiment.model))
    assert to_hf(discrete, tmp_path / "discrete").startswith("discrete: config.json of decision_transformer cannot")
    assert from_hf(tmp_path / "discrete").experiment.model.kind == "decision-transformer"


def test_a_folder_of_theirs_names_no_environment(tmp_path: Path) -> None:
    loaded = load_ours(build_theirs(), tmp_path)
    with pytest.raises(UserError, match="names no environment"):
        loaded.evaluate()
    with pytest.raises(UserError, match="scale_attn_by_inverse_layer_idx"):
        load_ours(build_theirs(scale_attn_by_inverse_layer_idx=True), tmp_path / "other")
