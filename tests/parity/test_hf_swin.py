"""Swin and Swin v2 of `transformers` with random weights, in and out: the same outputs, the same tensors."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForImageClassification, PreTrainedModel, SwinConfig, Swinv2Config
from transformers.utils import logging

from headwise import UserError
from headwise.blocks.record import collect, record
from headwise.blocks.stream import Context
from headwise.cli.main import main
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.interop.hf.write import choose_architecture, write_folder
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.pixels import Pixels

logging.disable_progress_bar()
SHAPE: dict[str, Any] = {"patch_size": 2, "embed_dim": 8, "num_heads": [2, 4], "depths": [2, 2], "num_labels": 5}
CASES: dict[str, Any] = {
    "swin": SwinConfig(**SHAPE, image_size=16, window_size=2),
    "swin-padded": SwinConfig(**SHAPE, image_size=22, window_size=4, mlp_ratio=2.0, hidden_act="relu"),
    "swin-places": SwinConfig(**SHAPE, image_size=16, window_size=4, use_absolute_embeddings=True, num_channels=1),
    "swinv2": Swinv2Config(**SHAPE, image_size=16, window_size=2),
    "swinv2-padded": Swinv2Config(**SHAPE, image_size=22, window_size=4),
    "swinv2-large": Swinv2Config(**SHAPE, image_size=16, window_size=8),  # the second stage fits into half a window
    "swinv2-learned": Swinv2Config(**SHAPE, image_size=16, window_size=4, pretrained_window_sizes=[3, 2]),
}


def build_hf_model(config: Any, kind: Any = AutoModelForImageClassification) -> PreTrainedModel:
    torch.manual_seed(1)
    model = kind.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))  # zero biases and unit gains would hide a wrong place
    return model


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ImportedModel, Path]:
    folder = tmp_path_factory.mktemp(request.param) / "in"
    model = build_hf_model(CASES[request.param])
    model.save_pretrained(folder)
    return model, read_folder(folder), folder


def images(imported: ImportedModel) -> torch.Tensor:
    config: Any = imported.config
    return torch.randn(3, config.channels, *config.image, generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def test_logits_stages_and_attention_are_equal(pair: tuple[Any, ImportedModel, Path]) -> None:
    model, ours = deepcopy(pair[0]).double(), deepcopy(pair[1].model).double()
    model.set_attn_implementation("eager")
    pixels = images(pair[1]).double()
    expected = model(pixels, output_hidden_states=True, output_attentions=True)
    with collect("layer") as side, record() as maps:
        actual = ours(pixels)
    assert_parity(actual, expected.logits)
    stages = [stream for place, (stream,) in side.values["layer"].items() if len(place) == 2]
    for stage, other in zip(stages, expected.hidden_states[1:], strict=True):
        assert_parity(stage.x, other)
    for number, other in enumerate(expected.attentions):  # of each stage's last layer
        (weights,) = maps.select("encoder", number, 1, 0).values()
        assert_parity(weights, other)


@torch.inference_mode()
def test_import_and_export_keep_tensors_bit_by_bit(pair: tuple[Any, ImportedModel, Path], tmp_path: Path) -> None:
    model, imported, folder = pair
    config: Any = imported.config
    pixels = Pixels(*config.image, config.channels, (0.5,) * config.channels, (0.5,) * config.channels)
    known = Tokenisers(pixels, Labels([f"LABEL_{number}" for number in range(5)]))
    write_folder(imported.model, config, imported.task, known, tmp_path / "out")
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    again = AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    assert torch.equal(again(images(imported)).logits, model(images(imported)).logits)


@pytest.mark.parametrize("case", ["swin-padded", "swinv2"])
@torch.inference_mode()
def test_base_models_are_encoders_that_can_be_inspected(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = build_hf_model(CASES[case], AutoModel)
    model.save_pretrained("in")
    Path("in/preprocessor_config.json").write_text('{"image_mean": 0.4, "image_std": 0.2}')
    imported = from_hf("in")
    pixels = torch.randn(3, 3, *imported.experiment.model.image)
    actual = model(pixels)
    assert imported.task.kind == "encode-images"
    assert_parity(imported.model.encoder(pixels, Context()).x, actual.last_hidden_state)
    assert_parity(imported.model(pixels), actual.pooler_output)
    to_hf(imported, "out")
    before, after = (load_file(f"{side}/model.safetensors") for side in ("in", "out"))
    stem = f"{CASES[case].model_type}."  # which theirs leaves out and reads all the same
    assert after.keys() == {stem + name for name in before}
    assert all(torch.equal(before[name], after[stem + name]) for name in before)
    assert torch.equal(AutoModel.from_pretrained("out").eval()(pixels).last_hidden_state, actual.last_hidden_state)
    Image.new("RGB", (40, 30), "red").save("red.png")
    main(["import", "in", "run"])
    main(["inspect", "run", "red.png"])
    assert "4: self-attention" in Path("attention.html").read_text()


@pytest.mark.parametrize(
    "changes", [{"mixer": "attention"}, {"wiring": "post"}, {"norm": {"kind": "layer", "eps": 0.1}}]
)
def test_settings_that_config_json_cannot_express_are_refused(
    pair: tuple[Any, ImportedModel, Path], changes: dict[str, Any]
) -> None:
    _, imported, _ = pair
    with pytest.raises(UserError, match=next(iter(changes))):
        choose_architecture(imported.config.replace(**changes), imported.task)
