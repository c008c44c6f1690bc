"""`headwise augment`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from headwise.cli.common import Changes, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.vision.augment.base import AugmentationConfig
    from headwise.vision.config import ImagesConfig


def augment(
    what: Annotated[
        list[str], Parameter(negative="", help="An experiment file, or augmentations by name or as tables.")
    ],
    /,
    *,
    data: Annotated[str, Parameter(help="A named image dataset, or a folder of images.")] = "",
    out: Annotated[Path, Parameter(help="The picture: .png or .svg.")] = Path("augment.png"),
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="Number of images.")] = 8,
    seed: Annotated[int, Parameter(help="Random seed.")] = 1,
    changes: Changes = None,
) -> None:
    """Draw examples of augmented images: a row for each augmentation, and one for all of them in sequence.

    For example:

        headwise augment my.toml --out sheet.png
        headwise augment flip mixup --data fashion-mnist
        headwise augment '{kind="crop", area=[0.3, 1]}' erase --data photos/ --count 5
    """
    from headwise.inspect.files import check_ending, save

    check_ending(out, ".png", ".svg")
    source, augmentations, title = select(what, data, changes or ())
    from headwise.inspect.augment_sheet import draw_contact_sheet, select_by_label
    from headwise.vision.corpora import load_images

    built = [config.build() for config in augmentations]
    rows = {describe(config): [part] for config, part in zip(augmentations, built, strict=True)}
    if len(built) > 1:
        rows["all of them"] = built
    images = select_by_label(load_images(source).train, count)
    say(f"picture: {save(draw_contact_sheet(images, rows, title, seed), out)}")


def select(
    what: Sequence[str], data: str, changes: Sequence[str]
) -> tuple[ImagesConfig, tuple[AugmentationConfig, ...], str]:
    """The images, the augmentations, and a title."""
    from headwise.config.base import validate
    from headwise.experiment.config import Experiment, parse_changes
    from headwise.tasks.classify_images import ClassifyImagesConfig
    from headwise.vision.config import ImagesConfig

    if what[0].endswith(".toml"):
        if len(what) > 1 or data:
            raise UserError(f"{what[0]}: data and augmentations are those of the experiment; change them with --set")
        experiment = Experiment.read(what[0], changes)
        augmentations = getattr(experiment.task, "augment", ())
        if not augmentations:
            raise UserError(f"{what[0]}: its task has no augmentation; set task.augment if it reads images")
        assert isinstance(experiment.data, ImagesConfig)
        return experiment.data, augmentations, experiment.name
    if changes:
        raise UserError("--set: changes an experiment file; without one write a table, such as '{kind=\"crop\"}'")
    if not data:
        raise UserError("--data: name an image dataset or a folder of images, such as --data digits")
    tables = [parse_changes([f"augment={name}"])["augment"] for name in what]
    task = validate(ClassifyImagesConfig, {"augment": tables})
    source = {"train": data} if Path(data).exists() else {"name": data}
    return validate(ImagesConfig, source, "--data"), task.augment, data


def describe(config: AugmentationConfig) -> str:
    """The name of an augmentation, and below it the settings that are not the defaults."""
    changed = config.model_dump(exclude_defaults=True)
    return "\n".join(
        [config.kind, *(f"{key} {format_value(value)}" for key, value in changed.items() if key != "kind")]
    )


def format_value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
