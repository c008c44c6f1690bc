"""ViT and DeiT of `transformers` with random weights, in and out: the same numbers, and the same images in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers.utils import logging
from word_folders import build_noisy_model

import headwise
from headwise import UserError
from headwise.blocks.stream import Context
from headwise.catalog import MODELS
from headwise.cli.main import main
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.experiment.run import train_experiment
from headwise.interop.hf.files import open_state_dict
from headwise.interop.hf.images import to_pair
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.write import write_folder
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.config import ImagesConfig
from headwise.vision.fit import ImageFit
from headwise.vision.pixels import Pixels

logging.disable_progress_bar()
logging.set_verbosity_error()
SHAPE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 16,
    "patch_size": 4, "layer_norm_eps": 1e-6, "id2label": {0: "cat", 1: "crane", 2: "dog", 3: "crane"},
}  # fmt: skip
CLASSES = [
    "ViTForImageClassification", "ViTModel", "DeiTForImageClassificationWithTeacher", "DeiTForImageClassification",
    "DeiTModel",
]  # fmt: skip
PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
SCALE = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}


def build_hf_model(name: str, **settings: Any) -> Any:
    config = transformers.DeiTConfig if name.startswith("DeiT") else transformers.ViTConfig
    return build_noisy_model(name, config(**{**SHAPE, **settings}))


def save_folder(model: Any, folder: Path, **settings: Any) -> Path:
    model.save_pretrained(folder)
    height, width = to_pair(model.config.image_size)
    scale = {"size": {"height": height, "width": width}, **SCALE, **settings}
    transformers.ViTImageProcessor(**scale).save_pretrained(folder)
    return folder


def output(model: Any, pixels: Tensor = PIXELS, **settings: Any) -> Tensor:
    actual = model(pixels, **settings)
    return actual.logits if hasattr(actual, "logits") else actual.pooler_output


def assert_close_outputs(actual: Tensor, expected: Tensor) -> None:
    assert_parity(actual, expected)


def tensors(folder: Path, stem: str) -> dict[str, Tensor]:
    weights = open_state_dict(folder).add_prefix(stem)
    return {name: weights[name] for name in weights.names}


@pytest.mark.parametrize("name", CLASSES)
@torch.inference_mode()
def test_outputs_are_equal_both_ways(name: str, tmp_path: Path) -> None:
    model = build_hf_model(name)
    imported = from_hf(save_folder(model, tmp_path / "in"))
    assert_close_outputs(imported.model(PIXELS), output(model))
    to_hf(imported, tmp_path / "out")
    assert_close_outputs(
        imported.model(PIXELS), output(getattr(transformers, name).from_pretrained(tmp_path / "out").eval())
    )
    before, after = (tensors(tmp_path / each, "deit." if "DeiT" in name else "vit.") for each in ("in", "out"))
    assert before.keys() == after.keys() and all(torch.equal(before[each], after[each]) for each in before)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == [name] and written["id2label"]["3"] == "crane (3)"


@pytest.mark.parametrize("name", ["ViTModel", "DeiTModel"])
@torch.inference_mode()
def test_base_models_are_encoders_that_can_be_inspected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_hf_model(name)
    imported = from_hf(save_folder(model, tmp_path / "in"))
    assert imported.task.kind == "encode-images"
    assert_close_outputs(imported.model.encoder(PIXELS, Context()).x, model(PIXELS).last_hidden_state)
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), "red").save("red.png")
    main(["inspect", "in", "red.png"])
    assert Path("attention.html").is_file()


@torch.inference_mode()
def test_both_heads_of_a_distilled_model_are_equal(tmp_path: Path) -> None:
    model = build_hf_model("DeiTForImageClassificationWithTeacher")
    actual, expected = read_folder(save_folder(model, tmp_path)).model.head_logits(PIXELS), model(PIXELS)
    assert_close_outputs(actual[0], expected.cls_logits)
    assert_close_outputs(actual[1], expected.distillation_logits)


@torch.inference_mode()
def test_positions_of_another_size_are_interpolated_alike(tmp_path: Path) -> None:
    larger = torch.randn(2, 3, 24, 24)
    for name in ("ViTForImageClassification", "DeiTForImageClassification"):
        model = build_hf_model(name)
        actual = read_folder(save_folder(model, tmp_path / name)).model(larger)
        assert_close_outputs(actual, output(model, larger, interpolate_pos_encoding=True))


@torch.inference_mode()
def test_images_that_are_grey_and_wide(tmp_path: Path) -> None:
    model = build_hf_model("ViTForImageClassification", image_size=(8, 16), num_channels=1)
    pixels = torch.randn(2, 1, 8, 16)
    imported = from_hf(save_folder(model, tmp_path / "in", image_mean=0.3, image_std=0.2))
    assert_close_outputs(imported.model(pixels), output(model, pixels))
    to_hf(imported, tmp_path / "out")
    assert_close_outputs(
        output(transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out"), pixels),
        output(model, pixels),
    )
    assert from_hf(tmp_path / "out").tokenisers.source == Pixels(
        8, 16, 1, (0.3,), (0.2,), fit=ImageFit((8, 16), 2, None)
    )


@torch.inference_mode()
def test_an_image_is_read_as_by_the_processor_of_transformers(tmp_path: Path) -> None:
    model = build_hf_model("ViTForImageClassification")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8))
    settings: list[dict[str, Any]] = [
        {},
        {"do_normalize": False},
        {"do_rescale": False, "image_mean": [99.0, 88.0, 77.0]},
    ]
    for number, processor in enumerate(settings):
        folder = save_folder(model, tmp_path / str(number), **processor)
        read = transformers.AutoImageProcessor.from_pretrained(folder)(picture, return_tensors="pt")["pixel_values"]
        expected = output(model, read).softmax(-1)[0].tolist()
        labels = ("cat", "crane", "dog", "crane (3)")
        actual = from_hf(folder).classify_images([picture])[0]
        assert actual == pytest.approx(dict(zip(labels, expected, strict=True)), abs=1e-5)


def test_a_folder_labels_image_files_and_becomes_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_folder(build_hf_model("DeiTForImageClassificationWithTeacher"), tmp_path / "hf")
    Image.new("RGB", (20, 16), "red").save(tmp_path / "red.png")
    loaded = from_hf(folder)
    loaded.save(tmp_path / "run")
    for source in (folder, tmp_path / "run"):
        main(["classify", str(source), str(tmp_path / "red.png"), "--json"])
        row = json.loads(capsys.readouterr().out)
        assert row["probabilities"] == pytest.approx(loaded.classify_images([tmp_path / "red.png"])[0])


def test_what_an_import_learnt_from_is_not_known_until_its_run_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, labels = tmp_path / "run", {number: str(number) for number in range(10)}
    folder = save_folder(
        build_hf_model("ViTForImageClassification", num_channels=1, id2label=labels),
        tmp_path / "hf",
        image_mean=0.5,
        image_std=0.5,
    )
    main(["import", str(folder), str(run)])
    for command in (["evaluate", str(run)], ["evaluate", str(folder)], ["inspect", str(run), "--view", "distance"]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(command)
        told = capsys.readouterr().err.splitlines()
        assert end.value.code == 2 and len(told) == 1
        assert "what an imported model learnt from is not known here" in told[0] and "config.toml" in told[0]
    config = run / "config.toml"
    said = config.read_text().replace('name = "unknown"', 'name = "digits"')
    config.write_text(said.replace('cache = ""', f'cache = "{tmp_path / "cache"}"'))
    (run / "manifest.json").unlink()
    main(["evaluate", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["items"] == 360


def test_labels_that_it_never_learnt_are_refused_not_counted_as_wrong(tmp_path: Path) -> None:
    loaded = from_hf(
        save_folder(
            build_hf_model("ViTForImageClassification", num_channels=1), tmp_path, image_mean=0.5, image_std=0.5
        )
    )
    data = ImagesConfig(name="digits", cache=str(tmp_path / "cache"))
    with pytest.raises(UserError, match="the label '0' is none of those that were learnt: cat, crane, dog"):
        loaded.task.evaluate(loaded.model, loaded.task.load_test_pairs(data))


@torch.inference_mode()
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("vit-tiny", "ViTForImageClassification"),
        ("deit-tiny", "DeiTForImageClassificationWithTeacher"),
        ({"kind": "deit-tiny", "class_tokens": 1}, "ViTForImageClassification"),
    ],
)
def test_a_headwise_model_is_exported(kind: Any, name: str, tmp_path: Path) -> None:
    """The data decided its size: 20 pixels, and not the 16 of its config."""
    config = MODELS.parse(kind)
    model = config.with_image_size(20, 20, 1).build(0, 3, "classify-images").eval()
    tokenisers = Tokenisers(Pixels(20, 20, 1, (0.5,), (0.3,)), Labels(["boot", "coat", "bag"]))
    write_folder(model, config, "classify-images", tokenisers, tmp_path / "out")
    again = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    pixels = torch.randn(2, 1, 20, 20)
    assert_close_outputs(model(pixels), output(again, pixels))
    assert again.config.id2label == {0: "boot", 1: "coat", 2: "bag"}


@torch.inference_mode()
@pytest.mark.parametrize("name", ["ViTForImageClassification", "DeiTForImageClassification"])
def test_sizes_may_be_lists_of_height_and_width(name: str, tmp_path: Path) -> None:
    model = build_hf_model(name, image_size=[8, 20], patch_size=[4, 4])
    imported = from_hf(save_folder(model, tmp_path))
    pixels = torch.randn(2, 3, 8, 20)
    assert imported.experiment.model.image == (8, 20)
    assert_close_outputs(imported.model(pixels), output(model, pixels))


def test_unsupported_settings_are_refused_both_ways(tmp_path: Path) -> None:
    model = build_hf_model("ViTForImageClassification")
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(UserError, match=r"has no preprocessor_config\.json, so images cannot be read"):
        from_hf(tmp_path / "bare")
    model.config.qkv_bias = False
    with pytest.raises(UserError, match="qkv_bias"):
        from_hf(save_folder(model, tmp_path / "unbiased"))
    with pytest.raises(UserError, match="image_mean and image_std are not of 3 channels"):
        from_hf(save_folder(build_hf_model("ViTModel"), tmp_path / "grey", image_mean=[0.5, 0.5], image_std=[0.5, 0.5]))
    pooled = MODELS.parse({"kind": "vit-tiny", "class_tokens": 0})
    tokenisers = Tokenisers(Pixels(16, 16, 1, (0.5,), (0.3,)), Labels(["a", "b"]))
    with pytest.raises(UserError, match=r"class_tokens: config\.json of vit cannot express this"):
        write_folder(pooled.build(0, 2, "classify-images"), pooled, "classify-images", tokenisers, tmp_path / "mean")


def test_an_encoder_alone_begins_a_classifier_of_larger_images(tmp_path: Path) -> None:
    save_folder(build_hf_model("ViTModel", num_channels=1), tmp_path / "hf", image_mean=0.5, image_std=0.5)
    data = {"name": "digits", "max_images": 32, "valid_size": 8, "size": 24, "cache": str(tmp_path / "cache")}
    train = {"steps": 1, "batch_size": 8, "threads": 1}
    tables = {"task": "classify-images", "data": data, "train": train, "init_from": str(tmp_path / "hf")}
    said: list[str] = []
    run, _ = train_experiment(parse_experiment(tables), tmp_path / "runs", announce=said.append)
    assert "newly initialised: heads; unused: pool" in said[0]
    assert headwise.load(run.path).model.encoder.stem.positions.grid == (6, 6)
