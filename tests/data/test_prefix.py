"""A prefix before every source."""

import pytest

from headwise.config.base import validate
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.errors import UserError


def test_a_prefix_is_put_before_sources_and_does_not_change_the_split(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"source {number}\ttarget {number}\n" for number in range(60)))
    data = TextDataConfig(train=str(tmp_path / "pairs.tsv"), valid_fraction=0.2, test_fraction=0.2)
    plain, prefixed = load_corpus(data), load_corpus(data.replace(prefix="translate: "))
    for part in ("train", "valid", "test"):
        ours, theirs = list(getattr(prefixed, part)), list(getattr(plain, part))
        assert ours == [(f"translate: {source}", target) for source, target in theirs] and ours


def test_texts_without_sources_refuse_a_prefix():
    with pytest.raises(UserError, match="has no sources"):
        validate(TextDataConfig, {"train": "book.txt", "format": "text", "prefix": "sum: "})
