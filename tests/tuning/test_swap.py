"""`swap`: the weights that are kept, to the bit, and the report of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise import UserError
from headwise.data.config import TextDataConfig
from headwise.decode.ensemble import Ensemble
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.config import TrainConfig
from headwise.tuning.swap import find_self_attentions

LETTERS = Characters("abcdefgh")
IDS = torch.tensor([[5, 6, 7, 8, 9, 2]])


def built(name: str, task: str = "", **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return headwise.build(name, vocab=20, task=task, **settings).eval()


def outputs(model: nn.Module) -> Tensor:
    return model(IDS, IDS) if isinstance(model, EncoderDecoder) else model(IDS)


def swapped(model: Any, *arguments: Any, **named: Any) -> tuple[Any, str]:
    said: list[str] = []
    other = headwise.swap(model, *arguments, announce=said.append, **named)
    return other, said[0]


SAME = [  # models, and what must be said so that attention stays the same attention
    ("transformer-tiny", {}),
    ("gpt2-tiny", {}),
    ("bert-tiny", {}),
    ("albert-tiny", {}),
    ("llama-tiny", {}),
    ("t5-tiny", {"score": "dot"}),
    ("deberta-tiny", {"key_bias": False}),
    ("transformer-xl-tiny", {"memory_length": 16}),
]


@pytest.mark.parametrize(("name", "settings"), SAME)
def test_attention_for_attention_changes_nothing(name: str, settings: dict[str, Any]) -> None:
    old = built(name)
    before = {key: tensor.clone() for key, tensor in old.state_dict().items()}
    new, said = swapped(old, {"kind": "attention", "kernel": "plain", **settings})
    torch.testing.assert_close(outputs(new), outputs(old), rtol=1e-5, atol=1e-5)
    assert "newly initialised: nothing; unused: nothing" in said and not new.training
    with torch.no_grad():
        for weight in new.parameters():
            weight.zero_()
    assert all(torch.equal(before[key], tensor) for key, tensor in old.state_dict().items())


@pytest.mark.parametrize(
    "kind", ["linear", "performer", "linformer", "window", "strided", "bigbird", "compressed", "workspace"]
)
def test_projections_are_transferred_and_all_else_is_kept(kind: str) -> None:
    old = built("bert-tiny")
    new, said = swapped(old, kind)
    theirs, own = old.state_dict(), new.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in theirs.items())
    assert f"{len(theirs)} tensors loaded" in said and "unused: nothing" in said
    parts = {type(new.get_submodule(name)).__name__ for name in find_self_attentions(new)}
    assert len(parts) == 1 and parts != {"Attention"}
    assert new(IDS).shape == old(IDS).shape


def test_a_long_window_is_attention() -> None:
    """The weights do in their new place what they did in the old."""
    old = built("gpt2-tiny")
    new, _ = swapped(old, {"kind": "window", "left": 50, "right": 0})
    torch.testing.assert_close(new(IDS), old(IDS), rtol=1e-5, atol=1e-5)


def test_heads_that_shared_keys_get_copies() -> None:
    old = built("llama-tiny")
    new, said = swapped(old, {"kind": "window", "left": 50, "right": 0})
    torch.testing.assert_close(new(IDS), old(IDS), rtol=1e-5, atol=1e-5)
    assert "newly initialised: nothing; unused: nothing" in said


def test_shared_keys_are_initialised_from_the_queries() -> None:
    old = built("gpt2-tiny")
    new, said = swapped(old, "lsh")
    name = "decoder.stack.layers.1.parts.0.qkv.project.weight"
    theirs, own = old.state_dict()[name], new.state_dict()[name]
    assert torch.equal(own, torch.cat((theirs[:32], theirs[64:])))  # of queries, keys and values of 32 channels
    assert "newly initialised: nothing; unused: nothing" in said
    back = swapped(new, "attention")[0].state_dict()[name]
    assert torch.equal(back, torch.cat((theirs[:32], theirs[:32], theirs[64:])))


def test_unused_weights_are_reported() -> None:
    new, said = swapped(built("bert-tiny"), "fourier")
    place = "encoder.stack.layers.0.parts.0"
    assert f"newly initialised: nothing; unused: {place}, " in said
    assert not any(name.startswith(place) for name in new.state_dict())
    _, said = swapped(built("bert-tiny"), "performer")
    assert f"newly initialised: {place}.projection, " in said


def test_swapping_some_layers_or_one_stack() -> None:
    old = built("transformer-tiny")
    kinds = lambda model: [type(model.get_submodule(name)).__name__ for name in find_self_attentions(model)]  # noqa: E731
    assert kinds(swapped(old, "linear", layers=[1])[0]) == ["Attention", "LinearAttention"] * 2
    assert kinds(swapped(old, "linear", layers=["encoder"])[0]) == ["LinearAttention"] * 2 + ["Attention"] * 2
    mixed, _ = swapped(swapped(old, "linear", layers=["encoder"])[0], "performer", layers=["decoder"])
    assert kinds(mixed) == ["LinearAttention"] * 2 + ["Performer"] * 2
    back, _ = swapped(mixed, "attention")
    torch.testing.assert_close(outputs(back), outputs(old), rtol=1e-5, atol=1e-5)


def test_dtype_device_and_requires_grad_are_kept() -> None:
    old = built("gpt2-tiny").double().requires_grad_(False)
    new, _ = swapped(old, "performer")
    assert {tensor.dtype for tensor in new.parameters()} == {torch.float64}
    assert not any(weight.requires_grad for weight in new.parameters())
    meta, _ = swapped(headwise.build("bert-tiny", device="meta"), "performer")
    assert all(tensor.is_meta for tensor in meta.state_dict().values())


def loaded(model: str, task: str, **settings: Any) -> TrainedModel:
    """As if trained: a model with tokenisers and an experiment."""
    torch.manual_seed(0)
    table = {"kind": model, **settings}
    experiment = Experiment(task=task, data=TextDataConfig(), model=table, train=TrainConfig(epochs=1))  # type: ignore[arg-type]
    sides = Tokenisers(LETTERS, LETTERS)
    return TrainedModel(experiment.create_task(sides).build(experiment.model).eval(), sides, experiment)


@pytest.mark.parametrize(
    ("model", "task", "layers"),
    [
        ("bert-tiny", "masked", None),
        ("bert-tiny", "masked", [0]),
        ("albert-tiny", "masked", None),
        ("gpt3-tiny", "language-model", None),
        ("transformer-tiny", "transduce", None),
        ("transformer-tiny", "transduce", ["encoder"]),
        ("transformer-tiny", "transduce", [1]),
    ],
)
def test_a_loaded_model_is_saved_with_its_new_mixer(model: str, task: str, layers: Any, tmp_path: Path) -> None:
    new, _ = swapped(loaded(model, task), "performer", layers=layers)
    again = headwise.load(new.save(tmp_path / "run").path)
    assert again.experiment.model == new.experiment.model
    assert torch.equal(outputs(again.model), outputs(new.model))
    if layers is None:
        assert new.experiment.model.mixer.kind == "performer" or model == "gpt3-tiny"
    assert again.tokenisers.to_json() == new.tokenisers.to_json()


@pytest.mark.parametrize("mixer", ["performer", "linformer", "fourier", "tokens", "workspace", {"kind": "lstm"}])
def test_every_kind_of_mixer_makes_the_run_of_its_config(mixer: Any, tmp_path: Path) -> None:
    new, _ = swapped(loaded("t5-tiny", "classify", positions="sinusoid", hidden_dropout=0.2), mixer)
    again = headwise.load(new.save(tmp_path / "run").path)
    assert torch.equal(again.model(IDS), new.model(IDS))


def test_a_hugging_face_folder_with_other_attention(tmp_path: Path) -> None:
    headwise.to_hf(loaded("bert-tiny", "masked"), tmp_path / "bert")
    old = headwise.from_hf(tmp_path / "bert")
    new, _ = swapped(old, {"kind": "performer", "features": 16})
    assert [len(found) for found in new.fill_mask(["ab[MASK]d"])] == [1]
    assert new.experiment.model.mixer.features == 16
    assert old.experiment.model.mixer.kind == "attention"


def test_mistakes_are_one_sentence() -> None:
    bert, gpt = built("bert-tiny"), built("gpt2-tiny")
    for mixer, problem in [("perfomer", "did you mean performer"), ({"kind": "performer", "feature": 3}, "features")]:
        with pytest.raises(UserError, match=f"mixer.*{problem}"):
            headwise.swap(bert, mixer)
    for mixer in ("linformer", "fourier", "tokens"):
        with pytest.raises(UserError, match=f"{mixer}: would see the future"):
            headwise.swap(gpt, mixer)
    with pytest.raises(UserError, match="no self-attention"):
        headwise.swap(built("lstm-tiny"), "performer")
    with pytest.raises(UserError, match="layers: nothing in the model is called"):
        headwise.swap(bert, "performer", layers=[7])
    with pytest.raises(UserError, match="forms no scores that T5Bias could change"):
        headwise.swap(built("t5-tiny"), "performer")
    with pytest.raises(UserError, match="has segment memory"):
        headwise.swap(built("transformer-xl-tiny"), "attention")
    with pytest.raises(UserError, match="positions are for 4 heads of width 8"):
        headwise.swap(built("llama-tiny"), {"kind": "performer", "heads": 2})
    whole = loaded("gpt2-tiny", "language-model")
    with pytest.raises(UserError, match="load a single run"):
        headwise.swap(replace(whole, model=Ensemble([whole.model, whole.model])), "performer")
    short, _ = swapped(bert, {"kind": "linformer", "rank": 4, "max_length": 4})
    with pytest.raises(UserError, match="has 4 positions, too few for 7 tokens"):
        short(IDS)
