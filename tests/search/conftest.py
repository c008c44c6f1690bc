"""A small experiment on made-up pairs."""

from itertools import product

import pytest

EXPERIMENT = """
[data]
train = "{folder}/pairs.tsv"
cache = "{folder}/cache"
[task]
sample = 0
[model]
kind = "transformer-tiny"
dropout = 0.1
[train]
steps = 12
validate_every = 4
batch_size = 16
threads = 1
schedule = {{ lr = 0.001 }}
"""


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """The experiment file."""
    folder = tmp_path_factory.mktemp("search")
    words = ["".join(letters) for letters in product("abcd", repeat=3)]
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1].upper()}\n" for word in words))
    path = folder / "small.toml"
    path.write_text(EXPERIMENT.format(folder=folder))
    return path
