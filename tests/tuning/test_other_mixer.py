"""Fine-tuning with another mixer than the pretrained model's."""

from __future__ import annotations

import torch
from safetensors.torch import load_file

import headwise
from headwise.runs import Run


def begun(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint_path(0) / "model.safetensors")


def test_shared_weights_are_loaded_and_the_others_reported(place, learn):
    run, said = learn("masked", "bert", model={"mixer": {"kind": "performer", "features": 8}})
    old = headwise.load(place / "runs" / "bert").model.state_dict()
    found = begun(run)
    assert (
        "newly initialised: encoder.stack.layers.0.parts.0.projection, encoder.stack.layers.1.parts.0.projection;"
        in said[0]
    )
    assert all(torch.equal(found[name], old[name]) for name in found if "projection" not in name)
    assert headwise.load(run.path).experiment.model.mixer.kind == "performer"


def test_a_swapped_model_is_tuned_like_any_other(place, learn, tmp_path):
    old = headwise.load(place / "runs" / "bert")
    new = headwise.swap(old, {"kind": "performer", "features": 8}, announce=lambda text: None)
    saved = new.save(tmp_path / "swapped")
    run, said = learn("classify", str(saved.path))
    assert "newly initialised: head;" in said[0]
    assert torch.equal(
        begun(run)["encoder.stack.layers.0.parts.0.projection.seed"],
        new.model.state_dict()["encoder.stack.layers.0.parts.0.projection.seed"],
    )


def test_heads_that_shared_keys_start_with_copies(learn, tmp_path):
    grouped, _ = learn("language-model", "lm", model={"kind": "llama-tiny", "dropout": 0.0})
    window = {"kind": "window", "left": 50, "right": 0}
    train = {"steps": 1, "schedule": {"kind": "constant", "lr": 1e-30}}
    run, said = learn("language-model", str(grouped.path), model={"mixer": window}, train=train)
    assert "newly initialised: nothing; unused: nothing" in said[0]
    ids = torch.tensor([[5, 6, 4, 7]])
    old, new = (headwise.load(each.path).model for each in (grouped, run))
    torch.testing.assert_close(new(ids), old(ids), rtol=1e-4, atol=1e-4)
