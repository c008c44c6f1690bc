"""Training from the command line: a new run, a resumed one, a run of one's own parts."""

import tomllib

PARTS = '''
from typing import Literal
import torch
from torch import nn
from headwise.blocks.part import PartConfig
from headwise.blocks.stream import Part, Properties
from headwise.blocks.tables import PARTS


class Mean(Part):
    """The mean of all tokens."""

    @property
    def properties(self):
        return Properties(causal=False, steppable=False)

    def transform(self, stream, ctx):
        return stream.x.mean(1, keepdim=True).expand_as(stream.x)


@PARTS.add
class MeanConfig(PartConfig):
    kind: Literal["mean"] = "mean"

    def build(self, build_ctx):
        return Mean()
'''


def test_train_then_resume_to_a_longer_end(headwise, experiment_file, tmp_path):
    experiment = experiment_file(steps=8)
    first = headwise("train", experiment)
    assert (first.status, first.out.strip()) == (0, "runs/reverse")
    config = tomllib.loads((tmp_path / "runs/reverse/config.toml").read_text())
    assert config["train"]["steps"] == 8 and config["model"]["kind"] == "transformer"
    again = headwise("train", "--resume", "runs/reverse")
    assert again.status == 0 and "after 8 steps" in again.err  # nothing left to do
    assert headwise("train", experiment).out.strip() == "runs/reverse-2"


def test_set_changes_keys_before_they_are_checked(headwise, experiment_file, tmp_path):
    experiment = experiment_file(steps=4)
    headwise("train", experiment, "--set", "model.positions=rotary", "--set", "train.schedule={kind='noam', warmup=5}")
    config = tomllib.loads((tmp_path / "runs/reverse/config.toml").read_text())
    assert config["model"]["positions"]["kind"] == "rotary"
    assert config["train"]["schedule"]["kind"] == "noam"


def test_parts_of_ones_own(headwise, experiment_file, tmp_path):
    experiment = experiment_file(steps=4)
    (tmp_path / "mean.py").write_text(PARTS)
    layers = 'model.encoder.layers=[[{kind="mean"}, {kind="mlp"}]]'
    assert headwise("train", experiment, "--set", layers, "--with", "mean.py").status == 0
    assert headwise("translate", "runs/reverse", "abc", "--with", "mean.py", "--engine", "auto").status == 0


def test_fit_chooses_and_trains(headwise, pairs_file, tmp_path):
    planned = headwise("fit", pairs_file, "--dry-run", "--minutes", "0.05")
    assert tomllib.loads(planned.out)["tokeniser"]["kind"] == "characters"
    assert "one token a character" in planned.err
    done = headwise("fit", pairs_file, "--minutes", "0.05")
    assert done.out == "runs/pairs\n" and "held-out SER" in done.err
    assert headwise("translate", "runs/pairs", "abc").status == 0
