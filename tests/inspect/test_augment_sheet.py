"""Contact sheets, and the command that draws them."""

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.cli.main import main
from headwise.inspect.augment_sheet import draw_contact_sheet, select_by_label
from headwise.inspect.svg import Grid, Text
from headwise.vision.augment import Flip, Mixup
from headwise.vision.augment.tables import AUGMENTATIONS
from headwise.vision.images import Images


def images(count=4):
    pixels = np.arange(count * 3 * 6 * 8, dtype=np.uint8).reshape(count, 3, 6, 8)
    return Images(pixels, [("cat", "dog")[number % 2] for number in range(count)], [""] * count)


def test_a_sheet_has_a_row_for_each_augmentation_and_captions_mixed_labels():
    before = torch.get_rng_state()
    drawing = draw_contact_sheet(images(), {"flip": [Flip(1.0)], "both": [Flip(1.0), Mixup(1.0)]}, "pets")
    tiles = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    assert len(tiles) == 3 * 4
    assert (tiles[0].pixels == images().pixels[0].transpose(1, 2, 0)).all()
    assert (tiles[4].pixels == tiles[0].pixels[:, ::-1]).all()
    texts = [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
    assert texts.count("cat") >= 4 and "both" in texts and any("%" in text for text in texts)
    assert (torch.get_rng_state() == before).all()


def test_images_are_selected_by_label_in_turn():
    many = Images(np.zeros((5, 1, 2, 2), np.uint8), ["a", "a", "a", "b", "c"], [""] * 5)
    assert select_by_label(many, 4).targets == ["a", "b", "c", "a"]


NEGATIVE = """
from typing import Literal
from headwise.vision.augment.base import AugmentationConfig
from headwise.vision.augment.tables import AUGMENTATIONS

@AUGMENTATIONS.add
class NegativeConfig(AugmentationConfig):
    kind: Literal["negative"] = "negative"
    def build(self):
        return lambda images, targets: (1 - images, targets)
"""


def test_the_command_draws_named_augmentations_and_those_of_an_experiment(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(AUGMENTATIONS, "loaded", dict(AUGMENTATIONS.loaded))  # what is added here is of this test alone
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    out = tmp_path / "sheet.png"
    main(["augment", "shift", '{kind="erase", probability=1.0}', "--data", "digits", "--count", "3", "--out", str(out)])
    with Image.open(out) as drawn:
        assert drawn.width > 600
    assert str(out) in capsys.readouterr().err

    file = tmp_path / "mine.toml"
    file.write_text(
        'task = {kind = "classify-images", augment = ["negative", "cutmix"]}\n'
        'data = {kind = "images", name = "digits"}\nmodel = {kind = "vit"}\ntrain = {steps = 1}\n'
    )
    plugin = tmp_path / "negatives.py"
    plugin.write_text(NEGATIVE)
    main(["augment", str(file), "--with", str(plugin), "--out", str(tmp_path / "own.svg"), "--count", "2"])
    shown = (tmp_path / "own.svg").read_text()
    assert "negative" in shown and "cutmix" in shown and "all of them" in shown and ">mine<" in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["flop", "--data", "digits"], "no augmentation is called 'flop'; did you mean flip?"),
        (["flip"], "--data: name an image dataset or a folder of images"),
        (["flip", "--data", "digits", "--out", "sheet.gif"], "sheet.gif: the file ends in '.gif'"),
        (["flip", "--set", "a=b", "--data", "digits"], "--set: changes an experiment"),
    ],
)
def test_errors_are_one_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["augment", *arguments])
    said = capsys.readouterr().err
    assert exit_.value.code == 2 and sentence in said and said.count("\n") == 1
