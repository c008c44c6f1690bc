import os
import random

import pytest
import torch
from torch import nn

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.checkpoint import (
    Checkpoint,
    average_checkpoints,
    load_latest,
    load_weights,
    read_checkpoint,
    restore,
    save,
    unique_tensors,
)
from headwise.runs.manifest import Damaged


class Tied(nn.Module):
    def __init__(self, vocab: int = 7):
        super().__init__()
        self.embed = nn.Embedding(vocab, 4)
        self.head = nn.Linear(4, vocab)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.tensor(3))


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", {"train": {"average_checkpoints": 2}})


def checkpoint(step: int, **extra) -> Checkpoint:
    torch.manual_seed(step)
    return Checkpoint({"step": step, **extra}, unique_tensors(Tied()), {"embed.weight/step": torch.tensor(1.0)})


def test_a_saved_checkpoint_comes_back_bit_by_bit(run):
    written = checkpoint(5)
    save(run, written)
    result = load_latest(run)
    assert result is not None
    assert result.state == written.state
    for part in ("model", "optimizer"):
        assert getattr(result, part).keys() == getattr(written, part).keys()
        assert all(torch.equal(getattr(result, part)[name], t) for name, t in getattr(written, part).items())


def test_a_tied_tensor_is_stored_once_and_stays_tied(run):
    model, other = Tied(), Tied()
    assert set(unique_tensors(model)) == {"embed.weight", "head.bias", "seen"}
    save(run, Checkpoint({"step": 1}, unique_tensors(model)))
    restore(other, load_weights(run))
    assert other.head.weight is other.embed.weight
    assert torch.equal(other.head.weight, model.embed.weight)


def test_tensors_that_are_views_of_one_storage_are_saved(run):
    table = torch.arange(12.0).reshape(4, 3)
    save(run, Checkpoint({"step": 1}, {"first": table[:2], "rest": table[2:], "turned": table.T}))
    result = load_weights(run)
    assert torch.equal(result["rest"], table[2:])
    assert torch.equal(result["turned"], table.T)


def test_another_architecture_is_refused_and_the_tensors_named(run):
    save(run, checkpoint(1))
    model = Tied(vocab=8)
    before = model.embed.weight.clone()
    with pytest.raises(UserError, match=r"embed.weight is \(7, 4\), the model has \(8, 4\)"):
        restore(model, load_weights(run), str(run.path))
    with pytest.raises(UserError, match="weight is missing"):
        restore(nn.Linear(4, 7), load_weights(run))
    assert torch.equal(model.embed.weight, before)


def test_pruning_keeps_the_last_ones_and_the_best(run):
    for step in (1, 2, 3, 4, 10):
        save(run, checkpoint(step, best={"name": "nll", "value": 1.0, "step": 2}), keep=2)
    assert run.steps() == [2, 4, 10]
    assert (run.read_pointer("best"), run.read_pointer("last")) == (2, 10)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-10", "step-2", "step-4"]
    assert torch.equal(load_weights(run, "best")["embed.weight"], checkpoint(2).model["embed.weight"])
    assert torch.equal(load_weights(run, "step-4")["embed.weight"], checkpoint(4).model["embed.weight"])
    with pytest.raises(UserError, match="no checkpoint 'step-3'; known: best, last, average, step-2"):
        load_weights(run, "step-3")


def test_the_average_is_the_mean_of_the_last_checkpoints(run):
    for step in (1, 2, 3):
        save(run, checkpoint(step))
    means = {
        name: (checkpoint(2).model[name] + checkpoint(3).model[name]) / 2 for name in ("embed.weight", "head.bias")
    }
    for result in (average_checkpoints(run, 2), load_weights(run, "average")):
        torch.testing.assert_close({name: result[name] for name in means}, means)
        assert result["seen"].equal(torch.tensor(3))
    assert torch.equal(average_checkpoints(run, 1)["embed.weight"], checkpoint(3).model["embed.weight"])


def test_the_moving_average_is_what_gets_used(run):
    model, ema = unique_tensors(Tied()), unique_tensors(Tied())
    save(run, Checkpoint({"step": 1}, model, ema=ema))
    assert torch.equal(load_weights(run)["embed.weight"], ema["embed.weight"])


def test_a_run_without_checkpoints_says_so(run):
    assert load_latest(run) is None
    for which in ("best", "average"):
        with pytest.raises(UserError, match="train it first"):
            load_weights(run, which)


def test_every_truncation_is_rejected_by_name(run):
    folder = save(run, checkpoint(1))
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for percent in range(100):
            file.write_bytes(whole[: len(whole) * percent // 100])
            with pytest.raises(Damaged, match=file.name):
                read_checkpoint(folder)
        file.unlink()
        with pytest.raises(Damaged, match=file.name):
            read_checkpoint(folder)
        file.write_bytes(whole)
    assert read_checkpoint(folder).step == 1


def test_a_thousand_flipped_bits_are_rejected_by_name(run):
    folder = save(run, checkpoint(1))
    chance = random.Random(0)
    files = {file: file.read_bytes() for file in sorted(folder.iterdir())}
    for _ in range(1000):
        file = chance.choice(list(files))
        place = chance.randrange(len(files[file]))
        right = files[file][place]
        with file.open("r+b", buffering=0) as opened:
            os.pwrite(opened.fileno(), bytes([right ^ 1 << chance.randrange(8)]), place)
            with pytest.raises(Damaged, match=file.name):
                read_checkpoint(folder)
            os.pwrite(opened.fileno(), bytes([right]), place)
    assert read_checkpoint(folder).step == 1


def test_a_damaged_checkpoint_gives_way_to_the_one_before_with_a_warning(run, caplog):
    for step in (1, 2):
        save(run, checkpoint(step))
    file = run.checkpoint_path(2) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    result = load_latest(run)
    assert result is not None
    assert result.step == 1
    assert str(file) in caplog.text
    run.rewind(1)
    assert run.steps() == [1]
    (run.checkpoint_path(1) / "manifest.json").unlink()
    with pytest.raises(UserError, match="all checkpoints are damaged"):
        load_latest(run)


def test_nothing_is_unpickled(run):
    folder = save(run, checkpoint(1))
    assert {file.suffix for file in folder.iterdir()} == {".json", ".safetensors"}
