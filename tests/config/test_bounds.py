"""Numbers that no tensor can hold are refused by the config."""

import pytest

from headwise.config.base import shorten
from headwise.errors import UserError
from headwise.experiment.config import Experiment


@pytest.mark.parametrize("change", ["seed={}", "train.batch_size={}", "train.steps={}", "model.width={}"])
def test_integers_beyond_64_bits_are_refused(tmp_path, change):
    (tmp_path / "a.toml").write_text('[data]\ntrain = "pairs.tsv"\n[train]\nsteps = 1\n')
    with pytest.raises(UserError, match=f"{change[:4]}.*the number has more than 64 bits"):
        Experiment.read(tmp_path / "a.toml", [change.format(10**30)])


def test_long_values_are_shortened_in_sentences(tmp_path):
    (tmp_path / "a.toml").write_text(f'name = "{"x" * 10_000}"\n[data]\ntrain = "a"\n[train]\nsteps = 1\n')
    with pytest.raises(UserError) as error:
        Experiment.read(tmp_path / "a.toml")
    assert len(str(error.value)) < 300 and " ... " in str(error.value)
    assert shorten("short") == "'short'"
