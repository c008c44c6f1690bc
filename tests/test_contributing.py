"""The examples of CONTRIBUTING.md are whole files that work with `--with`, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.cache import DecodingCache
from headwise.blocks.stream import Context, Stream
from headwise.config.plugins import use_parts
from headwise.experiment.config import Experiment
from headwise.testing import assert_causal, assert_parity
from headwise.train.config import OPTIMIZERS
from headwise.train.schedules import SCHEDULES

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = {re.match(r"# (\S+)\n", block)[1]: block for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.S)}  # type: ignore[index]
EXAMPLES = {name: block for name, block in BLOCKS.items() if not name.startswith("test_")}
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
    assert [file for file, _ in COMMANDS] == list(EXAMPLES) and len(EXAMPLES) == 4


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


def test_paths_that_it_names_exist() -> None:
    folders = "src/headwise|tests|docs|experiments|benchmarks|blocks|train|models|tasks"
    named = re.findall(rf"`((?:{folders})/[\w./-]+?)`", GUIDE)
    outside = {
        "src/headwise/blocks/mixers/fading_mean.py",
        "src/headwise/models/NAME.py",
        "src/headwise/tasks/NAME.py",
        "src/headwise/cli/NAME.py",
    }
    missing = [path for path in named if not ((ROOT / path).exists() or (ROOT / "src/headwise" / path).exists())]
    assert len(named) > 20 and set(missing) == outside
