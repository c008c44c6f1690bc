"""The config of image data: short forms and errors."""

import subprocess
import sys
from typing import get_args

import pytest

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.vision.config import Format, ImagesConfig
from headwise.vision.readers.tables import READERS, UNLABELLED


def test_a_size_is_one_side_or_rows_and_columns():
    sizes = [ImagesConfig(name="digits", size=size).size for size in (0, 32, (24, 32))]
    assert sizes == [(), (32, 32), (24, 32)]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, 'nothing to learn from; set `train`, or `name` (such as "digits")'),
        ({"name": "digits", "train": "x"}, "not both"),
        ({"name": "digits", "channels": 4}, "channels"),
        ({"name": "digits", "size": -1}, "size"),
        ({"name": "digits", "mean": (0.5,)}, "give both or neither"),
        ({"name": "digits", "format": "cofo"}, "format"),
        ({"name": "digits", "damaged": "keep"}, "damaged"),
        ({"name": "digits", "sise": 3}, "did you mean size"),
        ({"train": "x", "valid_fraction": 0.6, "test_fraction": 0.5}, "leave nothing to train on"),
    ],
)
def test_errors_name_the_setting(fields, sentence):
    with pytest.raises(UserError) as caught:
        validate(ImagesConfig, fields, "x.toml")
    assert sentence in str(caught.value)


def test_every_format_has_one_reader():
    assert sorted(get_args(Format)) == sorted(READERS) and set(UNLABELLED) < set(READERS)


def test_images_are_read_without_torch():
    code = "import sys, headwise.vision.corpora; assert not {'torch', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
