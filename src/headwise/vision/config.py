"""The config of image data (`[data]` with `kind = "images"`)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from headwise.data.config import Content, DataConfig

Pixels = Annotated[int, Field(ge=1)]
Format = Literal["folders", "idx", "cifar", "rows", "npz", "coco", "captions", "listed", "digits"]
LISTS = ("listed", "captions")  # formats that are tables of image files


class ImagesConfig(DataConfig):
    """Images: a data set by `name`, or files. Without `valid`, a part of `train` is held out for validation."""

    content: ClassVar[Content] = "images"
    kind: Literal["images"] = "images"
    format: Format = "folders"
    columns: tuple[str | int, ...] = ()  # of a table that lists images: that of their files, then of their targets
    size: tuple[Pixels, Pixels] | tuple[()] = ()  # rows and columns, or one side; empty: that of the files
    channels: Literal[0, 1, 3] = 0  # 0: as in the files
    classes: tuple[str, ...] = ()  # names of numbered labels, from 0; empty: their numbers
    damaged: Literal["refuse", "skip"] = "refuse"  # images that cannot be decoded
    stratify: bool | Literal["auto"] = "auto"  # hold out the same share of each class; auto: of files with classes
    max_images: int = Field(0, ge=0)  # maximum of training images; 0: all
    valid_size: int = Field(5000, gt=0)  # images of a held-out validation part, at most about
    mean: tuple[float, ...] = ()  # of each channel, in 0..1; empty: measured on the training images
    std: tuple[float, ...] = ()

    @field_validator("size", mode="before")
    @classmethod
    def _expand_side(cls, value: object) -> object:
        return ((value, value) if value else ()) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _check_consistency(self) -> ImagesConfig:
        if self.name and (self.train or self.valid or self.test):
            raise ValueError("give either the `name` of a set or files, not both")
        if not self.name and not self.train:
            raise ValueError('there is nothing to learn from; set `train`, or `name` (such as "digits")')
        if self.columns and self.format not in LISTS:
            raise ValueError(f"`columns` are those of a table, in one of these formats: {', '.join(LISTS)}")
        if len(self.columns) != 2 and (self.columns or self.format == "listed"):
            raise ValueError('`columns` are two, that of the image files and that of the targets: ["file", "label"]')
        if len(self.mean) != len(self.std):
            raise ValueError("`mean` and `std` are one number each for every channel; give both or neither")
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError("valid_fraction and test_fraction leave nothing to train on; make them smaller")
        return self
