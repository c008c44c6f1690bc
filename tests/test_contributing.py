"""The examples of CONTRIBUTING.md are whole files that work with `--with`, and what it names exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.cache import DecodingCache
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import PARTS
from headwise.catalog import MODELS
from headwise.config.plugins import forget_parts, list_parts_files, use_parts
from headwise.data.collate import PairBatch
from headwise.experiment.config import Experiment
from headwise.tasks.tables import TASKS
from headwise.testing import assert_causal, assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters
from headwise.train.config import OPTIMIZERS
from headwise.train.schedules import SCHEDULES
from headwise.train.state import LossState

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = {re.match(r"# (\S+)\n", block)[1]: block for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.S)}  # type: ignore[index]
EXAMPLES = {name: block for name, block in BLOCKS.items() if not name.startswith("test_")}
TESTS = {name: block for name, block in BLOCKS.items() if name.startswith("test_")}
COMMANDS = re.findall(r"--with (\S+) --set (.+)", GUIDE)


@pytest.fixture(autouse=True)
def added(tmp_path: Path) -> None:
    """Add every example as `--with` does."""
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text)
    use_parts(*(tmp_path / name for name in EXAMPLES))


def build(**settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build("gpt2-tiny", vocab=20, dropout=0.0, **settings).double().eval()


def test_there_is_an_example_and_a_command_for_each_table() -> None:
    assert [file for file, _ in COMMANDS] == list(EXAMPLES) and len(EXAMPLES) == 5


@pytest.mark.parametrize(("file", "settings"), COMMANDS, ids=[file for file, _ in COMMANDS])
def test_the_command_chooses_the_example(file: str, settings: str) -> None:
    changes = [change.strip("'") for change in re.split(r" --set ", settings)]
    resolved = Experiment.read(ROOT / "experiments/codespell.toml", changes).to_toml()
    assert f'kind = "{Path(file).stem}"' in resolved


def test_the_mixer_hides_the_future_and_steps_as_it_reads() -> None:
    model = build(mixer="fading_mean")
    part = model.decoder.stack.layers[0].parts[0]
    x = torch.randn(2, 6, 32, dtype=torch.float64)
    assert_causal(part, x)
    cache = DecodingCache(rows=2)
    steps = [part(Stream.of(x[:, t : t + 1]), Context(cache=cache)) for t in range(6)]
    assert_parity(torch.cat(steps, dim=1), part(x), 1e-12)


def test_the_score_mod_sharpens_later_queries() -> None:
    ids = torch.randint(4, 20, (1, 8))
    with headwise.record() as maps:
        build(mixer={"kind": "attention", "score_mods": [{"kind": "scalable_softmax", "s": 2.0}]})(ids)
    with headwise.record() as plain:
        build()(ids)
    # of the first layer: (H, T, T)
    sharp, flat = (recorded.stack_by_kind()["decoder"][0] for recorded in (maps, plain))
    assert sharp[:, 0, 0] == pytest.approx(1.0)  # the first token sees itself alone
    assert (sharp[:, -1].max(-1) > flat[:, -1].max(-1)).all()


def test_the_schedule_and_the_optimiser_are_those_they_say() -> None:
    rate = SCHEDULES.parse({"kind": "polynomial", "lr": 2.0, "warmup": 4, "power": 2}).build()  # type: ignore[attr-defined]
    assert [rate(2, 0.0), rate(4, 0.5), rate(9, 1.0)] == [1.0, 0.5, 0.0]
    model = build()
    optimizer = OPTIMIZERS.parse({"kind": "momentum", "weight_decay": 0.1}).build(model)  # type: ignore[attr-defined]
    assert isinstance(optimizer, torch.optim.SGD)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


def test_the_loss_of_the_task_is_binary_cross_entropy() -> None:
    task = TASKS.parse("multilabel").build(Tokenisers(Characters(list("ab")), Characters(list("xyz"))))  # type: ignore[attr-defined]
    model = task.build(MODELS.parse({"kind": "transformer-tiny", "dropout": 0.0})).double().eval()
    source, labels = torch.tensor([[4, 5, 2], [5, 2, 0]]), torch.tensor([[4, 6, 2], [5, 2, 0]])
    loss = task.loss(model, PairBatch(source, labels, labels, torch.arange(2)), LossState())
    p, true = model(source)[:, 4:].sigmoid(), torch.tensor([[1, 0, 1], [0, 1, 0]])
    assert_parity(loss.total, -(true * p.log() + (1 - true) * (1 - p).log()).sum(), 1e-12)
    assert loss.count == 2


@pytest.mark.parametrize("file", TESTS)
def test_the_tests_that_it_shows_pass(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for parts in list_parts_files():  # the tests import the same files as modules
        forget_parts(parts)
    for table in (PARTS, TASKS):
        monkeypatch.setattr(table, "loaded", dict(table.loaded))
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, Any] = {}
    exec(compile(TESTS[file], file, "exec"), namespace)
    (test,) = (value for name, value in namespace.items() if name.startswith("test_"))
    test(tmp_path) if "tmp_path" in test.__code__.co_varnames else test()
    monkeypatch.delitem(sys.modules, file.removeprefix("test_").removesuffix(".py"))


def test_paths_that_it_names_exist() -> None:
    folders = "src/headwise|tests|docs|experiments|benchmarks|blocks|train|models|tasks"
    named = re.findall(rf"`((?:{folders})/[\w./-]+?)`", GUIDE)
    outside = {
        "src/headwise/blocks/mixers/fading_mean.py",
        "src/headwise/tasks/multilabel.py",
        "src/headwise/models/NAME.py",
        "src/headwise/cli/NAME.py",
    }
    missing = [path for path in named if not ((ROOT / path).exists() or (ROOT / "src/headwise" / path).exists())]
    assert len(named) > 20 and set(missing) == outside
