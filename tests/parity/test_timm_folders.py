"""Folders of timm, in and out. timm is not installed for tests: `benchmarks/timm_parity.py --record` writes what its
models compute, with weights that follow from their names, and the names and shapes of every size."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from timm_folders import (
    CASES,
    RECORDED,
    WIDTH,
    build_config,
    build_images,
    digest_names,
    list_shapes,
    save_timm_folder,
    to_convolution,
)

import headwise
from headwise import UserError
from headwise.cli.main import main
from headwise.interop.hf.check import check_folder
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.refusal import InexpressibleError
from headwise.interop.hf.write import write_folder
from headwise.interop.timm import FAMILIES, import_architecture, load_family
from headwise.interop.timm.config import PretrainedCfg
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.fit import ImageFit
from headwise.vision.pixels import Pixels

TIMM: dict[str, Any] = json.loads(RECORDED.read_text())
COMPARED = (  # all of them are compared in benchmarks/timm_parity.py
    "mixer_s32_224", "mixer_b16_224", "mixer_l16_224", "cait_xxs24_224", "cait_xxs24_384", "cait_xs24_384",
    "cait_m36_384", "volo_d1_224", "volo_d2_384", "volo_d5_224", "levit_128s", "levit_128", "levit_192", "levit_256",
    "levit_384", "levit_conv_256",
)  # fmt: skip
ODD = [(37, 23), (22, 51), (16, 16), (60, 41), (11, 7)]  # widths and heights


def read_config(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return data


def change_config(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(read_config(folder) | changes))


def change_preset(folder: Path, **changes: Any) -> None:
    change_config(folder, pretrained_cfg={**read_config(folder)["pretrained_cfg"], **changes})


def find_side(name: str) -> int:
    last = name.split("_")[-1]
    return int(last) if last.isdecimal() and not name.startswith("levit") else 224


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_timm_folder("cait", tmp_path / "theirs")


@pytest.mark.parametrize("name", COMPARED)
def test_names_and_shapes_are_those_of_timm(name: str) -> None:
    side = find_side(name)
    shapes = list_shapes(name, {"img_size": side})
    if "_conv_" in name:
        shapes = {key: to_convolution(key, tensor) for key, tensor in shapes.items()}
    tensors, _, digest = TIMM["names"][name]
    assert (len(shapes), digest_names({key: tuple(tensor.shape) for key, tensor in shapes.items()})) == (
        tensors,
        digest,
    )


@pytest.mark.parametrize("label", CASES)
@torch.no_grad()
def test_an_imported_model_computes_the_logits_of_timm_and_is_written_back(label: str, tmp_path: Path) -> None:
    folder = save_timm_folder(label, tmp_path / "theirs")
    imported = read_folder(folder)
    expected = torch.tensor(TIMM["logits"][label], dtype=torch.float64)
    actual = imported.model.double()(build_images(CASES[label][1]))[:, :WIDTH]
    assert (actual - expected).abs().max() < 1e-5 * expected.abs().max()
    write_folder(imported.model.float(), imported.config, imported.task, imported.tokenisers, tmp_path / "ours")
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "ours"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name].float().flatten(), after[name].float().flatten()) for name in before)
    again = read_folder(tmp_path / "ours")
    assert again.config == imported.config and again.task == imported.task
    assert again.tokenisers and imported.tokenisers and again.tokenisers.to_json() == imported.tokenisers.to_json()
    data = read_config(tmp_path / "ours")
    assert data["pretrained_cfg"]["crop_pct"] == 0.9 and not set(data["model_args"]) - set(CASES[label][1])


@pytest.mark.parametrize("name", ["cait_xxs24_384", "levit_192", "mixer_b16_224", "volo_d4_448"])
def test_a_size_of_timm_is_written_without_arguments(name: str) -> None:
    architecture: Any = load_family(name)
    hf_config = architecture.hf_config.read(build_config(name, {"img_size": find_side(name)}))
    written = architecture.hf_config.from_model_config(architecture.config(**hf_config.to_settings("", ())), 0)
    assert (written.architecture, written.model_args) == (name, {})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_is_used_fixed_or_without_effect(family: str) -> None:
    schema = import_architecture(FAMILIES[family]).hf_config
    classes = {
        "norm_layer",
        "act_layer",
        "block_layer",
        "mlp_layer",
        "block_layers",
        "block_layers_token",
        "patch_layer",
    }
    classes |= {"attn_block", "mlp_block", "attn_block_token_only", "mlp_block_token_only", "stem_backbone"}
    not_in_json = classes | {"stem_stride"}  # classes of Python, which no config.json can name; they are refused
    known = set(schema.model_fields) | set(schema.ignored_keys)
    assert set(TIMM["keys"][schema.class_name]) <= known | not_in_json
    assert set(TIMM["keys"]["PretrainedCfg"]) <= set(PretrainedCfg.model_fields) | set(PretrainedCfg.ignored_keys)


@pytest.mark.parametrize(
    ("label", "arguments", "complaint"),
    [
        ("cait", {"global_pool": "avg"}, r"^here: model_args: global_pool: "),
        ("cait", {"mlp_ratio_token_only": 2.0}, "mlp_ratio_token_only must equal mlp_ratio"),
        ("cait", {"num_heads": 5}, "embed_dim 36 must be a multiple of num_heads 5"),
        ("cait", {"attn_block": "ClassAttn"}, "model_args: attn_block: 'ClassAttn' is not supported"),
        ("cait", {"depth": 10**9}, "model_args: depth: "),
        ("mixer", {"embed_dim": 256}, "model_args.embed_dim: timm's mixer_s32_224 sets it itself"),
        ("mixer", {"stem_norm": True}, "stem_norm"),
        ("volo", {"use_aux_head": False}, "use_aux_head"),
        ("volo", {"mlp_ratio": [3, 3, 3, 2]}, "mlp_ratio: must be equal in all stages"),
        ("volo", {"pooling_scale": 1}, "pooling_scale"),
        ("volo", {"layers": [1, 1, 1, 1]}, "model_args.layers: timm's volo_d1_384 sets it itself"),
        ("levit", {"act_layer": "gelu"}, "act_layer"),
        ("levit", {"mlp_ratio": 3}, "mlp_ratio"),
        ("levit", {"attn_ratio": [2, 2, 3]}, "attn_ratio: must be equal in all stages"),
        ("levit", {"depth": [1, 1]}, "must have one number for each stage"),
        ("levit of convolutions", {"use_conv": False}, "sets it itself"),
    ],
)
def test_unsupported_arguments_are_refused(label: str, arguments: dict[str, Any], complaint: str) -> None:
    name, others = CASES[label]
    with pytest.raises(UserError, match=complaint):
        load_family(name).hf_config.read(build_config(name, {**others, **arguments}), "here")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"num_classes": 7}, "model_args.num_classes: is 7, but the checkpoint has 5 classes"),
        ({"depth": 4}, "has no blocks.3.attn.proj.bias"),
        ({"depth": 2}, "config.json does not ask for blocks.2"),
        ({"img_size": [48, 36]}, "input_size: 48 x 36 pixels are no multiple of 8"),
        ({"img_size": [64, 64]}, "pos_embed is"),
        ({"embed_dim": 10**8, "num_heads": 1}, "asks for a larger model than the checkpoint"),
    ],
)
def test_arguments_of_another_checkpoint_are_refused(arguments: dict[str, Any], complaint: str, folder: Path) -> None:
    change_config(folder, model_args={**read_config(folder)["model_args"], **arguments})
    with pytest.raises(UserError, match=complaint):
        read_folder(folder)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"crop_mode": "border"}, r"pretrained_cfg\.crop_mode"),
        ({"interpolation": "random"}, r"pretrained_cfg\.interpolation"),
        ({"crop_pct": 1e-9}, r"pretrained_cfg\.crop_pct"),
        ({"mean": [0.5, 0.5]}, r"pretrained_cfg\.mean: has 2 numbers, and the model reads 3 channels"),
        ({"std": [0.5, 0.0, 0.5]}, r"pretrained_cfg\.std"),
        ({"label_offset": 1}, r"pretrained_cfg\.label_offset"),
        ({"custom_load": True}, r"pretrained_cfg\.custom_load"),
        ({"label_names": ["a"]}, "label_names: has 1 names for 5 classes"),
        (
            {"sharpness": 3},
            r"pretrained_cfg\.sharpness: 3 is not supported, as nothing here knows what this key changes",
        ),
        ({"fixed_input_size": False}, "pretrained_cfg.input_size: is 224 x 224 pixels, and the model reads 48 x 32"),
    ],
)
def test_unsupported_preprocessing_is_refused(changes: dict[str, Any], complaint: str, folder: Path) -> None:
    change_preset(folder, **changes)
    with pytest.raises(UserError, match=complaint):
        read_folder(folder)


def test_unknown_architectures_and_keys_are_refused(folder: Path) -> None:
    change_config(folder, architecture="mixer_b17_224")
    with pytest.raises(
        UserError, match="architecture 'mixer_b17_224' of timm is not known; did you mean mixer_b16_224"
    ):
        read_folder(folder)
    change_config(folder, architecture="cait_xxs24_224", rotary_dim=3)
    with pytest.raises(UserError, match="rotary_dim: 3 is not supported"):
        read_folder(folder)


def test_keys_without_effect_change_nothing(folder: Path) -> None:
    before = read_folder(folder)
    change_preset(folder, test_input_size=[3, 96, 96], test_crop_pct=1.0, hf_hub_id="timm/", tag="x", notes=["y"])
    arguments = {**read_config(folder)["model_args"], "drop_path_rate": 0.3, "init_values": 0.5}
    change_config(
        folder, model_args=arguments, num_features=7, label_descriptions={"a": "b"}, model_type="timm_wrapper"
    )
    after = read_folder(folder)
    assert after.config == before.config.replace(layer_scale=0.5) and after.tokenisers and before.tokenisers
    assert after.tokenisers.to_json() == before.tokenisers.to_json()


def test_an_older_file_has_one_table(folder: Path) -> None:
    """Without `pretrained_cfg`, its keys are beside `architecture`."""
    before, data = read_folder(folder), read_config(folder)
    flat = {**data.pop("pretrained_cfg"), **data, "labels": ["a", "b", "c", "d", "e"]}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in flat.items() if key != "global_pool"}))
    after = read_folder(folder)
    assert after.config == before.config and after.tokenisers and before.tokenisers
    assert after.tokenisers.source == before.tokenisers.source
    assert after.tokenisers.target.vocabulary[-5:] == ["a", "b", "c", "d", "e"]


def test_labels_may_have_gaps(folder: Path) -> None:
    change_config(folder, label_names={"1": "cat", "3": "dog"})
    tokenisers = read_folder(folder).tokenisers
    assert tokenisers and tokenisers.target.vocabulary[-5:] == ["LABEL_0", "cat", "LABEL_2", "dog", "LABEL_4"]


def prepare(image: Image.Image, size: tuple[int, int], crop_pct: float, mode: str) -> np.ndarray:
    """timm's evaluation transform, step by step: torchvision's Resize (timm's ResizeKeepRatio of other sides), then
    its CenterCrop, which pads first."""
    (rows, columns), (width, height) = size, image.size
    target = int(rows / crop_pct), int(columns / crop_pct)
    if mode == "squash":
        image = image.resize(target[::-1], Image.Resampling.BILINEAR)
    elif target[0] == target[1]:
        short, long = sorted((width, height))
        sides = {short: target[0], long: target[0] if short == long else int(target[0] * long / short)}
        image = image.resize((sides[width], sides[height]), Image.Resampling.BILINEAR)
    else:
        ratio = min(height / target[0], width / target[1])
        image = image.resize((round(width / ratio), round(height / ratio)), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    missing = [max(0, want - have) for want, have in zip(size, pixels.shape, strict=False)]
    pixels = np.pad(pixels, [(short // 2, (short + 1) // 2) for short in missing] + [(0, 0)])
    top, left = (round((have - want) / 2) for want, have in zip(size, pixels.shape, strict=False))
    return pixels[top : top + rows, left : left + columns]


@pytest.mark.parametrize(
    ("size", "crop_pct", "mode"),
    [((48, 48), 0.9, "center"), ((48, 32), 0.875, "center"), ((48, 48), 1.15, "center"), ((32, 48), 0.7, "squash"),
     ((48, 48), 1.0, "squash"), ((40, 40), 0.83, "center")],
)  # fmt: skip
def test_images_are_prepared_as_timm_does(size: tuple[int, int], crop_pct: float, mode: str, tmp_path: Path) -> None:
    data = build_config("cait_xxs24_224", {**CASES["cait"][1], "img_size": size})
    data["pretrained_cfg"] |= {"crop_pct": crop_pct, "crop_mode": mode, "interpolation": "bilinear"}
    hf_config: Any = load_family("cait_xxs24_224").hf_config.read(data)
    pixels = hf_config.read_pixels(tmp_path, None)
    written = hf_config.build_files("Cait", "classify-images", list("abcde"), pixels)["config.json"]
    again = load_family("cait_xxs24_224").hf_config.read({**written, "model_args": data["model_args"]})
    assert again.read_pixels(tmp_path, None) == pixels == Pixels.from_json(pixels.to_json(), pixels.normalise)
    for width, height in ODD:
        noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
        expected = prepare(Image.fromarray(noise), size, crop_pct, mode)
        actual = pixels.read(Image.fromarray(noise))
        assert np.array_equal(actual.permute(1, 2, 0).numpy(), expected)
    mean, std = (np.array(data["pretrained_cfg"][key]) for key in ("mean", "std"))
    assert np.allclose(pixels.normalise_images(actual).permute(1, 2, 0), (expected / 255 - mean) / std, atol=1e-6)


def build_tiny(name: str, **settings: Any) -> tuple[Any, Any, Tokenisers]:
    """A tiny model of the catalogue, with its config and the pixels of its training data."""
    from headwise.models.cait import CaitConfig
    from headwise.models.levit import LevitConfig
    from headwise.models.mixer import MixerConfig
    from headwise.models.volo import VoloConfig

    kinds: dict[str, Any] = {"cait": CaitConfig, "levit": LevitConfig, "mixer": MixerConfig, "volo": VoloConfig}
    config = kinds[name](**settings)
    tokenisers = Tokenisers(Pixels(*config.image, config.channels, (0.5,) * config.channels, (0.2,) * config.channels),
                            Labels(["a", "b", "c"]))  # fmt: skip
    return config.build(0, 3).eval(), config, tokenisers


@torch.no_grad()
def test_a_model_that_was_trained_here_is_exported(tmp_path: Path) -> None:
    settings = {
        "image": 32,
        "channels": 1,
        "patch": 8,
        "width": 20,
        "heads": 2,
        "depth": 2,
        "hidden": 30,
        "class_depth": 1,
    }
    model, config, tokenisers = build_tiny("cait", **settings)
    write_folder(model, config, "classify-images", tokenisers, tmp_path / "ours")
    data = read_config(tmp_path / "ours")
    assert data["label_names"] == ["a", "b", "c"] and data["pretrained_cfg"]["input_size"] == [1, 32, 32]
    assert data["model_args"]["depth_token_only"] == 1 and data["model_args"]["mlp_ratio"] == 1.5
    imported = read_folder(tmp_path / "ours")
    images = torch.randn(2, 1, 32, 32)
    assert_parity(imported.model(images), model(images))


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("cait", {"shared": True}, "^shared: timm has no layers that share weights"),
        ("cait", {"layer_scale": 0.0}, "^layer_scale: config.json of timm/cait cannot express this"),
        ("cait", {"class_tokens": 2}, "^class_tokens: "),
        ("cait", {"norm": "rms"}, "^norm: "),
        ("mixer", {"patch": 16, "width": 40, "heads": 4}, "^model: timm's MlpMixer has the sizes mixer_s32_224, "),
        ("volo", {"width": 24, "heads": 4, "depth": 3}, "^model: timm's VOLO has the sizes volo_d1_224, "),
    ],
)
def test_what_timm_cannot_express_is_refused(
    name: str, settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    tiny = {"cait": {"image": 32, "width": 20, "heads": 2, "depth": 2}, "mixer": {"image": 32, "depth": 2},
            "volo": {"image": 32, "outlook": {"kind": "outlook", "heads": 2}}}[name]  # fmt: skip
    model, config, tokenisers = build_tiny(name, **{**tiny, **settings})
    with pytest.raises(InexpressibleError, match=complaint):
        write_folder(model, config, "classify-images", tokenisers, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@torch.no_grad()
def test_levit_has_two_layouts(tmp_path: Path) -> None:
    settings = {"image": 32, "widths": (16, 24, 32), "depths": (1, 1, 1), "heads": (2, 3, 2), "head_width": 8}
    model, config, tokenisers = build_tiny("levit", **settings)
    write_folder(model, config, "classify-images", tokenisers, tmp_path / "hf")
    write_folder(model, config, "classify-images", tokenisers, tmp_path / "timm", layout="timm")
    assert read_config(tmp_path / "hf")["model_type"] == "levit" and "model_type" not in read_config(tmp_path / "timm")
    images = torch.randn(2, 3, 32, 32)
    for path in (tmp_path / "hf", tmp_path / "timm"):
        assert_parity(read_folder(path).model(images), model(images))
    imported = read_folder(tmp_path / "timm")  # a model of timm goes back to timm
    write_folder(imported.model, imported.config, imported.task, imported.tokenisers, tmp_path / "again")
    assert read_config(tmp_path / "again")["architecture"].startswith("levit_")


def test_a_processor_of_transformers_is_written_where_timm_can_follow_it(tmp_path: Path) -> None:
    hf_config: Any = load_family("cait_s24_224").hf_config.read(build_config("cait_s24_224", {"img_size": 224}))

    def write(fit: ImageFit) -> dict[str, Any]:
        pixels = Pixels(224, 224, 3, (0.5,) * 3, (0.5,) * 3, fit=fit)
        data: dict[str, Any] = hf_config.build_files("Cait", "classify-images", ["a", "b"], pixels)["config.json"]
        return data["pretrained_cfg"]

    assert write(ImageFit((224, 224), 2, None))["crop_mode"] == "squash"
    assert write(ImageFit(256, 3, (224, 224)))["crop_pct"] == 0.875
    for fit in (ImageFit(None, 3, (224, 224)), ImageFit((256, 240), 3, (224, 224))):
        with pytest.raises(UserError, match=r"^preprocessing: timm"):
            write(fit)


def test_the_commands_import_classify_and_export(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(folder, label_names=["a", "b", "c", "d", "e"])
    run, out, image = tmp_path / "run", tmp_path / "out", tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 70, 3), np.uint8)).save(image)
    for arguments in (["import", str(folder), str(run)], ["export", str(run), str(out), "--to", "hf"]):
        assert main(arguments) in (None, 0)
    assert "written in timm's layout: timm.create_model('local-dir:" in capsys.readouterr().err
    before, after = headwise.from_hf(folder), headwise.load(run)
    again = headwise.from_hf(out)
    assert before.classify_images([image]) == after.classify_images([image]) == again.classify_images([image])


def test_a_check_needs_timm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(
        UserError, match="--check: compares with timm, which is not installed; install it: pip install timm"
    ):
        check_folder(folder)


def test_damaged_checkpoints_are_refused(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    save_file({**state, "extra": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"config\.json does not ask for extra"):
        read_folder(folder)
    del state["cls_token"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(UserError, match="has no cls_token"):
        read_folder(folder)


@torch.inference_mode()
def test_levit_with_silu_is_read_and_written(tmp_path: Path) -> None:
    """The same as `transformers`' LeViT, which has hard swish alone, with its activations replaced."""
    from transformers import LevitConfig, LevitForImageClassificationWithTeacher

    settings = {"hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 2], "depths": [1, 2, 1], "num_labels": 5}
    shape = {"image_size": 64, "key_dim": [8] * 3, "attention_ratio": [2] * 3, **settings}
    hf_model = LevitForImageClassificationWithTeacher(LevitConfig(**shape)).eval()
    hf_model.save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "preprocessor_config.json").write_text('{"image_mean": 0.4, "image_std": 0.2}')
    imported = read_folder(tmp_path / "hf")
    arguments = {"embed_dim": [16, 24, 32], "num_heads": [2, 3, 2], "depth": [1, 2, 1], "key_dim": 8, "img_size": 64}
    hf_config: Any = load_family("levit_128s").hf_config
    images = torch.randn(2, 3, 64, 64)
    for act_layer, attn_act_layer in (("silu", None), ("silu", "hard_swish"), ("hard_swish", "silu")):
        acts = {"act_layer": act_layer, "attn_act_layer": attn_act_layer, "num_classes": 5}
        timm_config = hf_config.read(build_config("levit_128s", {**arguments, **acts}))
        config: Any = imported.config.replace(
            **{
                key: timm_config.to_settings("classify-images", ())[key]
                for key in ("activation", "mixer", "feedforward")
            }
        )
        model = config.build(0, 5, "classify-images").eval()
        model.load_state_dict(imported.model.state_dict())
        assert_parity(
            model(images), replace_activations(hf_model, act_layer, attn_act_layer or act_layer)(images).logits
        )
        tokenisers = Tokenisers(Pixels(64, 64, 3, (0.5,) * 3, (0.5,) * 3), Labels(list("abcde")))
        folder = tmp_path / f"{act_layer} {attn_act_layer}"
        write_folder(model, config, "classify-images", tokenisers, folder, layout="timm")
        again = read_folder(folder)
        assert again.config == config
        assert_parity(again.model(images), model(images))


def replace_activations(model: Any, activation: str, attention_activation: str) -> Any:
    """A copy of `transformers`' LeViT with the activations of timm's names."""
    kinds = {"silu": torch.nn.SiLU, "hard_swish": torch.nn.Hardswish}
    model = deepcopy(model)
    for module in list(model.modules()):
        for child, part in list(module.named_children()):
            if isinstance(part, torch.nn.Hardswish):
                is_attention = "Attention" in type(module).__name__
                setattr(module, child, kinds[attention_activation if is_attention else activation]())
    return model
