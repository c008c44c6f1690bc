import logging
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from headwise.data import examples
from headwise.data import prepare as preparing
from headwise.data.batches import Batches
from headwise.data.collate import collate
from headwise.data.config import TextDataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import prepare
from headwise.errors import UserError
from headwise.text import BOS, EOS
from headwise.text.config import TOKENISERS
from headwise.text.tokenisers import Tokenisers

LETTERS = TOKENISERS.parse({"kind": "characters", "target": "words"})


@pytest.fixture
def data(tmp_path):
    lines = [f"Word{i}\t{' '.join('AB'[int(bit)] for bit in f'{i:b}')}\n" for i in range(100)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    return TextDataConfig(root=str(tmp_path), train="pairs.tsv", cache=str(tmp_path / "cache"), lowercase=True)


def list_cache(data):
    """The files of the cache and when they were written."""
    files = sorted(path for path in Path(data.cache).rglob("*") if path.is_file())
    return {path: path.stat().st_mtime_ns for path in files}


def test_from_files_to_batches_and_back(data):
    prepared = prepare(data, LETTERS)
    assert (len(prepared.train), len(prepared.valid), len(prepared.valid_pairs)) == (95, 5, 5)
    pairs = set()
    for indices in Batches(prepared.train.lengths, seed=1, tokens_per_batch=100).plan(0):
        batch = collate(prepared.train, indices)
        assert batch.target_in[:, 0].unique().tolist() == [BOS]
        assert (batch.target_out == EOS).sum(1).unique().tolist() == [1]
        for source, target in zip(batch.source.tolist(), batch.target_out.tolist(), strict=True):
            pairs.add((prepared.tokenisers.source.decode(source), prepared.tokenisers.target.decode(target)))
    assert ("word5", "b a b") in pairs
    assert len(pairs) == 95


def test_pairs_stay_as_in_the_file(data):
    assert all(source.startswith("Word") for source, _ in prepare(data, LETTERS).valid_pairs)


def test_cache_is_reused(data):
    prepare(data, LETTERS)
    before = list_cache(data)
    assert len(before) == 6
    prepare(data, LETTERS)
    assert list_cache(data) == before


def test_cache_key_depends_on_files_settings_and_tokenisers(data, tmp_path):
    prepare(data, LETTERS)
    assert len(list_cache(data)) == 6
    prepare(data.replace(max_length=20), LETTERS)
    prepare(data, TOKENISERS.parse("bytes"))
    assert len(list_cache(data)) == 18
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(pairs.read_text().replace("Word7\t", "Ward7\t"))
    os.utime(pairs, ns=(1, 1))
    prepare(data, LETTERS)
    assert len(list_cache(data)) == 24


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "meta"])
def test_damaged_cache_is_noticed_and_rebuilt(data, damage, caplog):
    good = prepare(data, LETTERS).train
    tokens = np.array(good.tokens)
    del good
    path = next(path for path in list_cache(data) if "train" in str(path) and path.name == "tokens.bin")
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[17] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-2])
    elif damage == "remove":
        path.unlink()
    else:
        path.with_name("meta.json").write_text("[]")
    assert np.array_equal(prepare(data, LETTERS).train.tokens, tokens)
    assert "is damaged" in caplog.text


def test_failed_build_leaves_nothing(data):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UserError, match=r"File too large.*data.cache"):
            prepare(data, LETTERS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list_cache(data) == {}
    assert list(Path(data.cache).iterdir()) == []


def test_unusable_cache_folder(data, tmp_path):
    with pytest.raises(UserError, match=r"data.cache"):
        prepare(data.replace(cache=str(tmp_path / "pairs.tsv")), LETTERS)


def test_given_tokenisers_override_the_config(data, tmp_path):
    first = prepare(data, LETTERS)
    first.tokenisers.save(tmp_path / "tokenizer.json")
    other = data.replace(lowercase=False)
    again = prepare(other, Tokenisers.load(tmp_path / "tokenizer.json"))
    assert np.array_equal(again.train.tokens, first.train.tokens)


def test_overlong_pairs_are_left_out_and_counted(data, tmp_path, caplog):
    with open(tmp_path / "pairs.tsv", "a") as file:
        file.write(f"{'x' * 10_000}\tA\n")
    with caplog.at_level(logging.WARNING):
        prepared = prepare(data, LETTERS)
    assert prepared.train.dropped + prepared.valid.dropped == 1
    assert prepared.train.lengths.max() <= 512
    assert "1 of" in caplog.text
    assert "data.max_length = 512" in caplog.text
    with pytest.raises(UserError, match=r"data.max_length: all \d+ pairs of the train part"):
        prepare(data.replace(max_length=1), LETTERS)


def test_large_vocabularies_get_wide_tokens(tmp_path):
    rows = [([70_000, 4], [5])]
    for folder, vocab, dtype in ((tmp_path / "a", 70_001, "int32"), (tmp_path / "b", 300, "uint16")):
        folder.mkdir()
        examples.write_examples(folder, rows if vocab > 300 else [([299], [5])], vocab, 10)
        assert Examples.load(folder).tokens.dtype == dtype
    source, target = Examples.load(tmp_path / "a")[0]
    assert (source.tolist(), target.tolist()) == ([70_000, 4], [5])


def test_chunks_do_not_change_the_examples(data, monkeypatch, tmp_path):
    at_once = prepare(data, LETTERS).train
    monkeypatch.setattr(examples, "CHUNK_PAIRS", 7)
    chunked = prepare(data.replace(cache=str(tmp_path / "other")), LETTERS).train
    assert np.array_equal(at_once.tokens, chunked.tokens)
    assert np.array_equal(at_once.bounds, chunked.bounds)


def test_index_out_of_range():
    rows = Examples.from_rows([([4], [5])])
    assert len(list(rows)) == 1
    with pytest.raises(IndexError):
        rows[1]


def test_long_work_reports_on_stderr(data, monkeypatch, capsys):
    monkeypatch.setattr(preparing, "REPORT_SECONDS", 0.0)
    prepare(data, LETTERS)
    assert "tokenising the train part: " in capsys.readouterr().err
    prepare(data, LETTERS)
    assert not capsys.readouterr().err  # it is in the cache


def test_ids_that_encode_heads_are_not_truncated(tmp_path):
    """Word + size * head: of a usual vocabulary and a long sentence more than 16 bits."""
    words = [f"w{number}|60" for number in range(2000)]
    lines = [" ".join(words[start : start + 80]) + "\tX\n" for start in range(0, 1920, 60)]
    (tmp_path / "trees.tsv").write_text("".join(lines))
    data = TextDataConfig(root=str(tmp_path), train="trees.tsv", cache=str(tmp_path / "cache"))
    prepared = prepare(data, TOKENISERS.parse({"kind": "parsed", "target": "words"}))
    size = prepared.tokenisers.source.size
    source, _ = prepared.train[0]
    assert source.max() > 2**16 and set((source // size).tolist()) == {60}


def test_the_end_of_long_sources_is_cut_where_asked(data, tmp_path):
    with open(tmp_path / "pairs.tsv", "a") as file:
        file.write(f"{'x' * 10_000}\tA\n")
    prepared = prepare(data.replace(truncate=True, max_length=20), LETTERS)
    assert prepared.train.dropped == prepared.valid.dropped == 0
    assert max(prepared.train.lengths[:, 0].max(), prepared.valid.lengths[:, 0].max()) == 20
