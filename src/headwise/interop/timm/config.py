"""`config.json` of timm: the arguments of a model, its labels and its evaluation transform.

timm builds a model by the function `architecture`, whose own arguments `model_args` replaces; the size and the channels
of images are those of `input_size` (`timm/models/_hub.py`, `_builder.py`). Images are prepared as `timm.data` does for
`pretrained_cfg`: resized to `input_size` / `crop_pct`, cropped, normalised (`transforms_imagenet_eval`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, HfConfigBase
from headwise.interop.hf.images import ImageConfig, ImageSize, JsonFiles, Side, to_pair
from headwise.interop.hf.labels import MAX_LABELS
from headwise.interop.timm import WRAPPER
from headwise.interop.timm.transform import INTERPOLATIONS, Interpolation, build_fit, describe_fit
from headwise.vision.pixels import Pixels

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEFAULT_SIDE = 224
NO_HEAD = "{}(num_classes=0)"  # the class of a model without a classifier
Classes = Annotated[int, Field(ge=0, le=MAX_LABELS)]
Count = Annotated[int, Field(gt=0, le=1000)]  # of layers or heads
Variants = Mapping[str, Mapping[str, Any]]
LabelNames = tuple[str, ...] | dict[int, str]  # a dict has gaps
Width = Annotated[int, Field(gt=0)]
Ratio = Annotated[float, Field(gt=0, le=100)]


class PretrainedCfg(HfConfigBase):
    """The keys of `pretrained_cfg` that change outputs, with the defaults of `timm.models.PretrainedCfg`."""

    library = "timm"
    ignored_keys = (
        *("url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag"),  # the source
        *("license", "description", "origin_url", "paper_name", "paper_ids", "notes", "label_descriptions"),  # texts
        # Sizes that timm uses on request alone, and the names of modules that it replaces for other inputs or classes.
        *("test_input_size", "test_crop_pct", "test_pool_size", "min_input_size", "pool_size"),
        *("first_conv", "classifier", "num_features"),
    )

    model_type: str = "timm"
    custom_load: Literal[False] = False
    input_size: tuple[Side, Side, Side] = (3, DEFAULT_SIDE, DEFAULT_SIDE)  # channels, rows, columns
    fixed_input_size: bool = False  # images of input_size, not of the class's default
    interpolation: Interpolation = "bicubic"
    crop_pct: float = Field(0.875, ge=0.1, le=4)
    crop_mode: Literal["center", "squash"] = "center"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[Annotated[float, Field(gt=0)], ...] = IMAGENET_STD
    num_classes: Classes = 1000
    label_offset: Literal[0] = 0
    label_names: LabelNames | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _default_of_null(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value


class TimmFile(HfConfigBase):
    """The keys of timm's `config.json`."""

    library = "timm"
    # `num_features` and `global_pool` describe the model; the last is transformers', for features of its own.
    ignored_keys = ("num_features", "global_pool", "label_descriptions", "do_pooling", "tie_word_embeddings")

    model_type: Literal["timm_wrapper"] = WRAPPER  # type: ignore[assignment]
    architecture: str
    num_classes: Classes | None = None
    label_names: LabelNames | None = None
    pretrained_cfg: PretrainedCfg = PretrainedCfg()
    model_args: dict[str, Any] = Field(default_factory=dict)


def split_flat_file(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older files have the keys of `pretrained_cfg` beside `architecture`."""
    if "pretrained_cfg" in data:
        return data
    own = {key: value for key, value in data.items() if key in TimmFile.model_fields or key == "num_features"}
    others = {key: value for key, value in data.items() if key not in own}
    if "labels" in others:
        others["label_names"] = others.pop("labels")
    return {**own, "pretrained_cfg": others}


def list_labels(names: LabelNames | None, classes: int, where: str) -> tuple[str, ...]:
    """The name of each class; classes without one are numbered."""
    named = names if isinstance(names, Mapping) else dict(enumerate(names or ()))
    if (isinstance(names, tuple) and len(names) != classes) or any(not 0 <= number < classes for number in named):
        raise UserError(f"{where}: label_names: has {len(named)} names for {classes} classes; correct it")
    return tuple(named.get(number, f"LABEL_{number}") for number in range(classes))


class TimmConfig(ImageConfig):
    """The arguments of a model, with those that its function in timm sets; and how its images are prepared."""

    library = "timm"
    # Rates of dropout, and where weights are allocated.
    ignored_keys: ClassVar[Collection[str]] = (
        *("drop_rate", "pos_drop_rate", "proj_drop_rate", "patch_drop_rate", "attn_drop_rate", "drop_path_rate"),
        *("device", "dtype"),
    )
    variants: ClassVar[Variants] = {}  # function of timm -> arguments that it sets
    locked: ClassVar[frozenset[str]] = frozenset()  # of these, those that model_args cannot change
    class_name: ClassVar[str]
    first_conv: ClassVar[str]

    architecture: str
    img_size: ImageSize = DEFAULT_SIDE
    in_chans: int = Field(3, gt=0)
    num_classes: Classes = 1000
    pretrained_cfg: PretrainedCfg = PretrainedCfg()
    label_names: tuple[str, ...] = ()
    model_args: dict[str, Any] = Field(default_factory=dict)  # of an exported model

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str = "config.json") -> Self:
        file: TimmFile = validate(TimmFile, split_flat_file(data), where)
        given = {key: value for key, value in file.model_args.items() if value is not None}
        variant, preset = cls.variants[file.architecture], file.pretrained_cfg
        if locked := sorted(cls.locked & variant.keys() & given.keys()):
            raise UserError(
                f"{where}: model_args.{locked[0]}: timm's {file.architecture} sets it itself; take another architecture"
            )
        classes = preset.num_classes if file.num_classes is None else file.num_classes
        channels, *size = preset.input_size
        values = {
            "in_chans": channels,
            "img_size": tuple(size) if preset.fixed_input_size else DEFAULT_SIDE,
            "num_classes": classes,
            **variant,
            **given,
            "model_type": cls.model_fields["model_type"].default,
            "architecture": file.architecture,
            "pretrained_cfg": preset,
            "label_names": list_labels(file.label_names or preset.label_names, classes, where),
            "model_args": {},
        }
        config: Self = validate(cls, values, f"{where}: model_args")
        config._check_input(classes, where)
        return config

    def _check_input(self, classes: int, where: str) -> None:
        """Refuse a model that reads other images than timm prepares for it, or has another head than it stores."""
        if self.num_classes != classes:
            raise UserError(
                f"{where}: model_args.num_classes: is {self.num_classes}, but the checkpoint has {classes} classes; "
                "remove it"
            )
        image, prepared = to_pair(self.img_size), self.pretrained_cfg.input_size[1:]
        if image != prepared and not self.pretrained_cfg.fixed_input_size:
            raise UserError(
                f"{where}: pretrained_cfg.input_size: is {prepared[0]} x {prepared[1]} pixels, and the model reads "
                f"{image[0]} x {image[1]}; set fixed_input_size"
            )

    def read_class_name(self, architecture: Architecture, data: Mapping[str, Any], where: str) -> str:
        return self.class_name if self.num_classes else NO_HEAD.format(self.class_name)

    def read_labels(self, data: Mapping[str, Any], task: str, where: str) -> list[str]:
        return list(self.label_names)

    def read_pixels(self, folder: Path, config: Any) -> Pixels:
        preset, channels = self.pretrained_cfg, self.in_chans
        for key in ("mean", "std"):
            if len(getattr(preset, key)) not in (1, channels):
                raise UserError(
                    f"{folder / 'config.json'}: pretrained_cfg.{key}: has {len(getattr(preset, key))} numbers, and the "
                    f"model reads {channels} channels; give one number for each"
                )
        mean, std = (values * (channels // len(values)) for values in (preset.mean, preset.std))
        rows, columns = to_pair(self.img_size)
        fit = build_fit((rows, columns), preset.crop_pct, preset.crop_mode, preset.interpolation)
        return Pixels(rows, columns, channels, mean, std, fit=fit)

    def build_files(self, class_name: str, task: str, labels: Sequence[str], pixels: Pixels) -> JsonFiles:
        classes = len(labels) if class_name == self.class_name else 0
        crop_pct, crop_mode, resample = describe_fit((pixels.height, pixels.width), pixels.fit)
        preset = {
            "tag": "headwise",
            "custom_load": False,
            "input_size": [pixels.channels, pixels.height, pixels.width],
            "fixed_input_size": True,
            "interpolation": INTERPOLATIONS[resample],
            "crop_pct": crop_pct,
            "crop_mode": crop_mode,
            "mean": list(pixels.mean),
            "std": list(pixels.std),
            "num_classes": classes,
            "pool_size": None,
            "first_conv": self.first_conv,
            "classifier": self.classifier,
        }
        data = {"architecture": self.architecture, "num_classes": classes, "num_features": self.num_features}
        data |= {"label_names": list(labels)} if classes else {}
        return {"config.json": {**data, "pretrained_cfg": preset, "model_args": dict(self.model_args)}}

    @property
    def classifier(self) -> str | list[str]:
        """Names of the classifiers' modules."""
        return "head"

    @property
    def num_features(self) -> int:
        """Width of the features that the head reads."""
        raise TypeError(f"{type(self).__name__} does not say how wide its features are")

    @classmethod
    def from_model_config(cls, config: Any, vocab: int) -> Self:
        """The variant that needs the fewest `model_args`, of the nearest image size."""
        arguments = cls.list_arguments(config)
        choices = []
        for name, variant in cls.variants.items():
            default = {key: field.default for key, field in cls.model_fields.items()} | dict(variant)
            changed = {key: value for key, value in arguments.items() if value != default[key]}
            if not cls.locked & variant.keys() & changed.keys():
                choices.append((len(changed), abs(_find_side(name) - max(config.image)), name, changed))
        if not choices:
            raise UserError(
                f"model: timm's {cls.class_name} has the sizes {', '.join(cls.variants)}, and this is none of them; "
                "train one of these to export it"
            )
        *_, name, changed = min(choices, key=lambda choice: choice[:2])
        values = {**cls.variants[name], **arguments, "architecture": name, "model_args": changed}
        image = {"img_size": config.image, "in_chans": config.channels}
        hf_config: Self = cls.model_validate(values | image)
        return hf_config

    @classmethod
    def list_arguments(cls, config: Any) -> dict[str, Any]:
        """The arguments of timm's class for a Headwise model config, without the size of images."""
        raise TypeError(f"{cls.__name__} cannot be exported")


def _find_side(name: str) -> int:
    """The image size in the name of an architecture.

    >>> _find_side("cait_xxs24_384"), _find_side("levit_128s")
    (384, 224)
    """
    *family, last = name.split("_")
    return int(last) if len(family) > 1 and last.isdecimal() else DEFAULT_SIDE


def find_ratio(hidden: int, width: int) -> float:
    """The `mlp_ratio` whose product with a width, rounded down, is `hidden`.

    >>> find_ratio(96, 24), int(find_ratio(29, 41) * 41)
    (4.0, 29)
    """
    ratio = hidden / width
    return ratio if int(ratio * width) == hidden else (hidden + 0.5) / width


def check_patches(image: tuple[int, int], patch: int, where: str) -> None:
    """Refuse images that cannot be cut into patches."""
    if image[0] % patch or image[1] % patch:
        raise UserError(
            f"{where}: input_size: {image[0]} x {image[1]} pixels are no multiple of {patch}; use other sizes"
        )
