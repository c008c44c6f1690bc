from typing import get_args

import pytest

from headwise.config.base import Config, slot, validate
from headwise.data.config import UNPAIRED, Format, TextDataConfig
from headwise.data.readers.tables import READERS
from headwise.data.readers.text import SPLITTERS
from headwise.errors import UserError
from headwise.text.config import TOKENISERS, CharactersConfig


class Experiment(Config):
    data: TextDataConfig = TextDataConfig()
    tokeniser: slot(TOKENISERS) = CharactersConfig()


def test_a_config_round_trips_through_json():
    table = {"data": {"name": "cmudict"}, "tokeniser": {"kind": "characters", "target": {"kind": "words"}}}
    experiment = validate(Experiment, table)
    assert experiment.tokeniser.target_side.kind == "words"
    assert validate(Experiment, experiment.model_dump(mode="json")) == experiment


def test_a_file_or_kind_may_be_a_string():
    assert TextDataConfig(train="pairs.tsv") == TextDataConfig(train=("pairs.tsv",))
    assert validate(Experiment, {"tokeniser": "bpe"}).tokeniser.target_side.kind == "bpe"


def test_every_format_has_one_reader():
    assert sorted(get_args(Format)) == sorted([*READERS, *SPLITTERS]) and set(SPLITTERS) == set(UNPAIRED)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"data": {"trian": "x"}}, "data.trian: unknown key; did you mean train"),
        ({"data": {"name": "cmudict", "train": "x"}}, "either the `name` of a corpus or files"),
        ({"data": {"train": ["a", "b", "c"]}}, "`train` takes one file or two"),
        ({"data": {"train": "a", "columns": ["one", 2]}}, "name all `columns`, or number all"),
        ({"data": {"normalise": "NFX"}}, "data.normalise"),
        ({"data": {"valid_fraction": 0.6, "test_fraction": 0.5}}, "leave nothing to train on"),
        ({"tokeniser": {"kind": "bpee"}}, "tokeniser.kind: no tokeniser is called 'bpee'; did you mean bpe"),
        ({"tokeniser": {"target": {"kind": "wrods"}}}, "tokeniser.target.kind: .* did you mean words"),
        ({"tokeniser": {"kind": "bpe", "size": 100}}, "tokeniser.size"),
        ({"tokeniser": {"shared": True, "target": "words"}}, "the same kind on both sides"),
        ({"tokeniser": {"target": {"kind": "words", "target": "bytes"}}}, "`target` is one side"),
    ],
)
def test_mistakes_name_the_key(table, complaint):
    with pytest.raises(UserError, match=complaint):
        validate(Experiment, table)
