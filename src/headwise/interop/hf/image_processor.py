"""`preprocessor_config.json`: how an image processor of `transformers` resizes, crops and normalises images.

DISCREPANCY: without `size`, the classes of `transformers` have a default, 224 pixels in most; where it does not give
images of the model's size, they are resized to that here. A detector (DETR) reads images of one size here,
centre-cropped and resized as everywhere in Headwise, because `transformers` would resize each to a size of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from headwise.config.base import Config, validate
from headwise.errors import UserError, nearest
from headwise.interop.folders import read_json
from headwise.vision.fit import ImageFit
from headwise.vision.pixels import Pixels

PROCESSOR = "preprocessor_config.json"
NESTED_PROCESSOR = "processor_config.json"  # of newer folders; its table `image_processor` goes before the other file
MAX_BYTE = 255
BILINEAR, BICUBIC = 2, 3  # Pillow's numbers
HALF = (0.5,)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
LEVIT_SCALE = 256 / 224
WARPED_SIDE = 384  # from which on ConvNext's processor distorts instead of cropping

# Keys without effect on the pixels of an input image.
IGNORED_KEYS = frozenset({
    "image_processor_type", "feature_extractor_type", "processor_class", "_processor_class", "auto_map",
    "return_tensors", "device", "disable_grouping", "do_reduce_labels", "reduce_labels", "format",
    "do_convert_annotations", "_valid_processor_keys", "_valid_kwargs_names", "transformers_version",
    "image_seq_length",
})  # fmt: skip


class ProcessorClass(NamedTuple):
    """The defaults of a class of `transformers`."""

    resample: int = BICUBIC
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    square: bool = True  # a single number is both sides, not the shorter side
    crop: bool = False
    size: int = 224


CLASSES = {
    "ViTImageProcessor": ProcessorClass(BILINEAR),
    "DeiTImageProcessor": ProcessorClass(crop=True, size=256),
    "BeitImageProcessor": ProcessorClass(),
    "BitImageProcessor": ProcessorClass(BICUBIC, *CLIP, square=False, crop=True),
    "ConvNextImageProcessor": ProcessorClass(square=False, size=384),
    "LevitImageProcessor": ProcessorClass(BICUBIC, *IMAGENET, square=False, crop=True),
    "DetrImageProcessor": ProcessorClass(BILINEAR, *IMAGENET, square=False),
}
Side = Annotated[int, Field(gt=0)]


class Size(Config):
    """The forms of `size` that `transformers` knows."""

    height: Side | None = None
    width: Side | None = None
    shortest_edge: Side | None = None
    longest_edge: Side | None = None

    @model_validator(mode="after")
    def _check_form(self) -> Size:
        if (self.height is None) != (self.width is None) or (self.height is None and self.shortest_edge is None):
            raise ValueError("needs height and width, or shortest_edge")
        return self


class Processor(Config):
    """The keys of an image processor: resize, centre crop, (byte * rescale_factor - mean) / std."""

    kind: str
    do_resize: bool = True
    size: Size | None = None
    resample: Annotated[int, Field(ge=0, le=5)] = BICUBIC
    do_center_crop: bool = False
    crop_size: Size = Size(height=224, width=224)
    crop_pct: float = Field(224 / 256, gt=0)
    do_rescale: bool = True
    rescale_factor: float = Field(1 / MAX_BYTE, gt=0)
    do_normalize: bool = True
    image_mean: tuple[float, ...] = HALF
    image_std: tuple[float, ...] = HALF
    do_convert_rgb: bool = False
    do_pad: bool = False
    data_format: Literal["channels_first"] = "channels_first"

    @field_validator("image_std")
    @classmethod
    def _check_std(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if min(values, default=1.0) <= 0:
            raise ValueError(f"must be above 0, as pixels are divided by it (it is {list(values)})")
        return values

    @field_validator("image_mean", "image_std", mode="before")
    @classmethod
    def _wrap_number(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value

    @classmethod
    def read(cls, data: Mapping[str, Any], kind: str, where: str) -> Processor:
        """Validate the contents of a `preprocessor_config.json`; `kind` is the class of a file that names none."""
        name = str(data.get("image_processor_type") or data.get("feature_extractor_type") or kind)
        name = name.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
        if name not in CLASSES:
            raise UserError(f"{where}: image_processor_type '{name}' is not known; {nearest(name, CLASSES)}")
        defaults, values = CLASSES[name], {key: value for key, value in data.items() if value is not None}
        square = bool(values.pop("default_to_square", defaults.square))
        unknown = [key for key in values if key not in cls.model_fields and key not in IGNORED_KEYS]
        if unknown:
            raise UserError(f"{where}: {unknown[0]}: nothing here knows what this key changes; remove it if it is none")
        values = {key: value for key, value in values.items() if key in cls.model_fields and key != "kind"}
        for key, both in (("size", square), ("crop_size", True)):
            if key in values:
                values[key] = expand_size(values[key], both)
        processor: Processor = validate(
            cls,
            {
                "kind": name,
                "resample": defaults.resample,
                "do_center_crop": defaults.crop,
                "image_mean": defaults.mean,
                "image_std": defaults.std,
                **values,
            },
            where,
        )
        return processor

    def to_pixels(self, image: tuple[int, int], channels: int, where: str = PROCESSOR) -> Pixels:
        """The same steps for a model of images of this shape; pixels here are from 0 to 1."""
        scale = MAX_BYTE * self.rescale_factor if self.do_rescale else MAX_BYTE
        mean_std = (self.image_mean, self.image_std) if self.do_normalize else ((0.0,), (1.0,))
        if any(len(values) not in (1, channels) for values in mean_std):
            raise UserError(f"{where}: image_mean and image_std are not of {channels} channels; correct it")
        if self.do_convert_rgb and channels != 3:
            raise UserError(f"{where}: do_convert_rgb: the model reads {channels} channels; remove it")
        mean, std = (tuple(value / scale for value in values * (channels // len(values))) for values in mean_std)
        if self.kind == "DetrImageProcessor":
            return Pixels(*image, channels, mean, std)
        if self.do_pad:
            raise UserError(f"{where}: do_pad: padding is only known of DetrImageProcessor; remove it")
        fit = self.build_fit(image, where)
        return Pixels(*(fit.shape or image), channels, mean, std, fit=fit)

    def build_fit(self, image: tuple[int, int], where: str) -> ImageFit:
        """Resize and crop. LeViT's and ConvNext's processors enlarge the shorter side before they crop."""
        if self.size and self.size.longest_edge:
            raise UserError(f"{where}: size: longest_edge is only known of DetrImageProcessor; use height and width")
        if self.crop_size.height is None or self.crop_size.width is None:
            raise UserError(f"{where}: crop_size: needs height and width; add them")
        crop = (self.crop_size.height, self.crop_size.width) if self.do_center_crop else None
        if not self.do_resize:
            return ImageFit(None, self.resample, crop)
        if self.size is None:
            defaults = CLASSES[self.kind]
            usual = Size(**expand_size(defaults.size, defaults.square))
            fit = self.replace(size=usual).build_fit(image, where)
            return fit if fit.shape in (None, image) else ImageFit(image, self.resample, crop and image)
        edge = self.size.shortest_edge
        if self.size.height and self.size.width:
            if self.kind == "ConvNextImageProcessor":
                raise UserError(f"{where}: size: ConvNextImageProcessor needs shortest_edge; use it")
            return ImageFit((self.size.height, self.size.width), self.resample, crop)
        assert edge is not None
        if self.kind == "ConvNextImageProcessor":
            square = (edge, edge)
            if crop not in (None, square):
                raise UserError(f"{where}: crop_size: differs from size, which crops already; remove do_center_crop")
            if edge >= WARPED_SIDE:
                return ImageFit(square, self.resample, None)
            return ImageFit(int(edge / self.crop_pct), self.resample, square)
        return ImageFit(int(LEVIT_SCALE * edge) if self.kind.startswith("Levit") else edge, self.resample, crop)


def expand_size(size: Any, square: bool) -> Any:
    """Older files have a number, or height and width in a list."""
    if isinstance(size, int):
        return {"height": size, "width": size} if square else {"shortest_edge": size}
    if isinstance(size, list | tuple) and len(size) == 2:
        return {"height": size[0], "width": size[1]}
    return {key: side for key, side in size.items() if side is not None} if isinstance(size, Mapping) else size


def find_processor(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The file with the image processor of a folder, and its keys; None where there is none."""
    path, nested = folder / PROCESSOR, folder / NESTED_PROCESSOR
    values = read_json(nested).get("image_processor") if nested.is_file() else None
    if values is None:
        return (path, read_json(path)) if path.is_file() else None
    if not isinstance(values, dict):
        raise UserError(f"{nested}: image_processor: is {values!r:.80}, but must be a table; correct it")
    return nested, values


def read_pixels(folder: Path, image: tuple[int, int], channels: int, kind: str) -> Pixels | None:
    """Read the image processor of a folder; None where there is none."""
    if (found := find_processor(folder)) is None:
        return None
    path, values = found
    return Processor.read(values, kind, str(path)).to_pixels(image, channels, str(path))


def build_processor_config(pixels: Pixels) -> dict[str, Any]:
    """`preprocessor_config.json`. The centre crop of Headwise is written as its nearest equivalent: the shorter side
    is resized first, and whole pixels are cropped."""
    shape, fit = (pixels.height, pixels.width), pixels.fit
    if fit is None:
        fit = ImageFit(min(shape), BICUBIC, shape) if shape[0] == shape[1] else ImageFit(shape, BICUBIC, None)
    data: dict[str, Any] = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": fit.size is not None,
        "size": expand_size(fit.size if fit.size is not None else shape, square=False),
        "resample": fit.resample,
        "do_center_crop": fit.crop is not None,
    }
    if fit.crop is not None:
        data["crop_size"] = expand_size(fit.crop, square=True)
    rescale = {"do_rescale": True, "rescale_factor": 1 / MAX_BYTE}
    return data | rescale | {"do_normalize": True, "image_mean": list(pixels.mean), "image_std": list(pixels.std)}
