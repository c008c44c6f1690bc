"""`preprocessor_config.json`: the pixels that a model reads are those of `transformers`' image processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from headwise import UserError
from headwise.interop.hf.image_processor import CLASSES, IGNORED_KEYS, Processor, build_processor_config, read_pixels
from headwise.vision.pixels import Pixels

ODD = [(37, 23), (22, 51), (16, 16), (9, 64), (11, 7)]  # widths and heights
SCALE = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}
SQUARE = {"height": 18, "width": 18}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("ViTImageProcessor", {"size": {"height": 15, "width": 21}}),
    "number": ("ViTImageProcessor", {"size": 18, "resample": 0, **SCALE}),
    "lanczos": ("ViTImageProcessor", {"size": SQUARE, "resample": 1}),
    "box": ("ViTImageProcessor", {"size": SQUARE, "resample": 4}),
    "hamming": ("ViTImageProcessor", {"size": SQUARE, "resample": 5}),
    "bytes": ("ViTImageProcessor", {"size": SQUARE, "do_rescale": False, "image_mean": [99.0] * 3}),
    "offset": ("ViTImageProcessor", {"size": SQUARE, "rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3}),
    "plain": ("ViTImageProcessor", {"size": SQUARE, "do_normalize": False}),
    "cropped": ("DeiTImageProcessor", {"size": 25, "crop_size": 18}),
    "padded": ("DeiTImageProcessor", {"size": 14, "crop_size": {"height": 17, "width": 19}}),
    "crop-only": ("DeiTImageProcessor", {"do_resize": False, "crop_size": 19}),
    "uncropped": ("DeiTImageProcessor", {"size": SQUARE, "do_center_crop": False}),
    "shortest": ("BitImageProcessor", {"size": {"shortest_edge": 21}, "crop_size": SQUARE}),
    "shortest-number": ("BitImageProcessor", {"size": 21, "crop_size": 18}),
    "levit": ("LevitImageProcessor", {"size": 18, "crop_size": 18}),
    "levit-exact": ("LevitImageProcessor", {"size": {"height": 20, "width": 24}, "crop_size": 18}),
    "convnext": ("ConvNextImageProcessor", {"size": {"shortest_edge": 18}, "crop_pct": 0.9}),
    "convnext-number": ("ConvNextImageProcessor", {"size": 18}),
    "convnext-large": ("ConvNextImageProcessor", {"size": 384}),
    "beit": ("BeitImageProcessor", {"size": 20, "do_center_crop": True, "crop_size": 18, "do_reduce_labels": True}),
}


def draw_image(width: int, height: int, mode: str = "RGB") -> Image.Image:
    channels = len(mode)
    noise = np.random.default_rng(width * height).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(noise)


def read_file(data: dict[str, Any], folder: Path, image: tuple[int, int] = (18, 18)) -> Pixels:
    (folder / "preprocessor_config.json").write_text(json.dumps(data))
    pixels = read_pixels(folder, image, 3, "ViTImageProcessor")
    assert pixels is not None
    return pixels


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("key", ["image_processor_type", "feature_extractor_type"])
def test_pixels_are_those_of_transformers(case: str, key: str, tmp_path: Path) -> None:
    name, settings = CASES[case]
    processor = getattr(transformers, f"{name}Pil")(**settings)
    named = name if key == "image_processor_type" else name.replace("ImageProcessor", "FeatureExtractor")
    pixels = read_file({key: named, **settings}, tmp_path)
    for size in ODD:
        image = draw_image(*size)
        expected = processor(image, return_tensors="pt").pixel_values
        actual = pixels.normalise_images(pixels.read(image)[None])
        assert actual.shape == expected.shape
        assert (actual - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "DetrImageProcessor"])
def test_a_missing_size_is_that_of_the_class_where_the_model_has_it(name: str, tmp_path: Path) -> None:
    processor = getattr(transformers, f"{name}Pil")()
    shape = tuple(processor(draw_image(16, 16), return_tensors="pt").pixel_values.shape[-2:])
    pixels = read_file({"image_processor_type": name}, tmp_path, shape)
    for size in ODD:
        expected = processor(draw_image(*size), return_tensors="pt").pixel_values
        actual = pixels.normalise_images(pixels.read(draw_image(*size))[None])
        assert actual.shape == expected.shape
        assert (actual - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    other = read_file({"image_processor_type": name}, tmp_path, (18, 18))  # of a model that it does not suit
    assert (other.height, other.width) == (18, 18)


@pytest.mark.parametrize("case", CASES)
def test_saved_files_are_read_and_written_alike(case: str, tmp_path: Path) -> None:
    """A file with every key, as `transformers` saves it; then ours, which `transformers` reads."""
    name, settings = CASES[case]
    getattr(transformers, f"{name}Pil")(**settings).save_pretrained(tmp_path)
    pixels = read_pixels(tmp_path, (18, 18), 3, "ViTImageProcessor")
    assert pixels == read_file({"image_processor_type": name, **settings}, tmp_path)
    assert Pixels.from_json(json.loads(json.dumps(pixels.to_json())), pixels.normalise) == pixels
    written = build_processor_config(pixels)
    again = transformers.ViTImageProcessorPil(**{key: value for key, value in written.items() if "type" not in key})
    for size in ODD:
        image = draw_image(*size)
        expected = again(image, return_tensors="pt").pixel_values
        actual = pixels.normalise_images(pixels.read(image)[None])
        assert (actual - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)


def test_transparent_images_are_composed_over_white_as_do_convert_rgb_does(tmp_path: Path) -> None:
    settings = {"size": 18, "crop_size": 18, "do_convert_rgb": True}
    pixels, image = (
        read_file({"image_processor_type": "BitImageProcessor", **settings}, tmp_path),
        draw_image(9, 22, "RGBA"),
    )
    expected = transformers.BitImageProcessorPil(**settings)(image, return_tensors="pt").pixel_values[0]
    assert torch.allclose(pixels.normalise_images(pixels.read(image)), expected, atol=1e-5)


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES.values()}))
def test_every_key_of_a_processor_is_used_fixed_or_without_effect(name: str) -> None:
    known = set(Processor.model_fields) | IGNORED_KEYS | {"default_to_square"}
    never_set = {"pad_size", "input_data_format", "size_divisor"}  # refused unless null
    keys = set(getattr(transformers, f"{name}Pil").valid_kwargs.__annotations__)
    assert keys - known <= never_set


def test_the_table_of_a_newer_folder_goes_before_the_older_file(tmp_path: Path) -> None:
    settings = {"image_processor_type": "BitImageProcessor", "size": 18, "crop_size": 18}
    nested = {"image_processor": {**settings, "image_mean": [0.1, 0.2, 0.3]}, "processor_class": "ViTProcessor"}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    pixels, image = read_file({**settings, "resample": 0}, tmp_path), draw_image(30, 20)
    expected = transformers.AutoImageProcessor.from_pretrained(tmp_path)(image, return_tensors="pt").pixel_values[0]
    assert torch.allclose(pixels.normalise_images(pixels.read(image)), expected, atol=1e-5)
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": 7}))
    with pytest.raises(UserError, match=r"processor_config\.json: image_processor: is 7, but must be a table"):
        read_file(settings, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_processor_type": "CLIPSegProcessor"}, "image_processor_type 'CLIPSegProcessor' is not known"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order: nothing here knows"),
        ({"do_pad": True}, "do_pad"),
        ({"resample": 9}, "resample"),
        ({"size": {"height": 4}}, "size"),
        ({"size": {"shortest_edge": 4, "longest_edge": 9}}, "longest_edge"),
        ({"data_format": "channels_last"}, "data_format"),
        ({"image_mean": [0.5, 0.5]}, "not of 3 channels"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 4, "width": 4}}, "shortest_edge"),
    ],
)
def test_what_cannot_be_followed_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read_file(settings, tmp_path)


@pytest.mark.parametrize("side", [18, 224])
def test_images_that_the_processor_leaves_at_another_size_are_refused(side: int, tmp_path: Path) -> None:
    size = {} if side == 224 else {"size": side}  # 224 is the default
    settings = {"image_processor_type": "BitImageProcessor", "do_center_crop": False, **size}
    pixels = read_file(settings, tmp_path, (side, side))
    assert pixels.read(draw_image(36, 36)).shape == (3, side, side)
    with pytest.raises(UserError, match=f"has 36 x 18 pixels, and the model reads {side} x {side}"):
        pixels.read(draw_image(36, 18))


@pytest.mark.parametrize("case", ["padded", "shortest", "exact"])
def test_the_crop_in_the_image_is_where_the_pixels_come_from(case: str, tmp_path: Path) -> None:
    name, settings = CASES[case]
    pixels = read_file({"image_processor_type": name, **settings}, tmp_path)
    x0, y0, x1, y1 = pixels.compute_crop(60, 40)
    ramp = Image.fromarray(np.broadcast_to(np.arange(60, dtype=np.uint8) * 4, (40, 60)).copy())
    row = pixels.read(ramp)[0, pixels.height // 2].double()
    centres = (x0 + (torch.arange(pixels.width) + 0.5) * (x1 - x0) / pixels.width - 0.5) * 4
    inside = (centres > 8) & (centres < 228)
    assert (row - centres)[inside].abs().max() < 3 and y1 > y0
