"""Files that are no files: a FIFO or a device in the place of data is refused, and not waited for."""

import os
from pathlib import Path

import pytest

from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.explain.source import load_file
from headwise.interop.gguf import GgufFile
from headwise.ngram import from_arpa

READERS = {
    "a.tsv": lambda path: list(load_corpus(TextDataConfig(train=str(path), format="tsv")).train),
    "a.gguf": GgufFile,
    "a.arpa": from_arpa,
    "a.toml": Experiment.read,
    "example.toml": lambda path: load_file(object, path),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("how", ["fifo", "device"])
def test_only_regular_files_are_read(tmp_path: Path, name: str, how: str) -> None:
    path = tmp_path / name
    if how == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match=f"{name}.*not a regular file"):
        READERS[name](path)
