"""The examples of docs/parts.md are whole files that pass their checks, and what it says of them holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.catalog import MODELS
from headwise.cli.check import format_verdict
from headwise.config.plugins import use_parts
from headwise.tasks.language_model import LanguageModelConfig, LanguageModelTask
from headwise.testing import perturb_parameters
from headwise.testing.generative import check_ragged_prompts
from headwise.testing.parts_file import judge_file
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

PAGE = (Path(__file__).parents[1] / "docs" / "parts.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, flags=re.S))


@pytest.fixture(autouse=True)
def written(tmp_path: Path) -> None:
    for name, text in EXAMPLES.items():
        (tmp_path / f"{name}.py").write_text(text)


def build_task(kind: str, **settings: Any) -> tuple[LanguageModelTask, Any]:
    """A language model with this mixer, and its task."""
    letters = Characters("abcdefgh")
    task = LanguageModelTask(LanguageModelConfig(**settings), Tokenisers(letters, letters))
    return task, task.build(MODELS.parse({"kind": "transformer-tiny", "mixer": kind}))


def test_the_page_has_the_three_examples() -> None:
    assert list(EXAMPLES) == ["text_mean", "leaky_memory", "relu_attention"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes_its_checks(tmp_path: Path, name: str) -> None:
    verdicts = [verdict for _, verdict in judge_file(tmp_path / f"{name}.py")]
    assert len(verdicts) > 10
    assert not [str(verdict) for verdict in verdicts if not verdict.passed]
    lines = [format_verdict(verdict) for verdict in verdicts]
    shown = re.findall(rf"^ +(✓ {name.title().replace('_', '')} .*)$", PAGE, flags=re.M)
    assert set(shown) <= set(lines) and (shown or name != "text_mean")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_learns(tmp_path: Path, name: str) -> None:
    use_parts(tmp_path / f"{name}.py")
    torch.manual_seed(0)
    task = "masked" if name == "text_mean" else "language-model"
    model: Any = headwise.build("transformer-tiny", task=task, vocab=12, dropout=0.0, mixer=name)
    ids = torch.randint(4, 12, (8, 6))
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(15):
        optimizer.zero_grad()
        loss = model(ids, labels=ids.roll(-1, 1))
        (loss.total / loss.count).backward()
        optimizer.step()
        losses.append(loss.total.item())
    assert losses[-1] < 0.9 * losses[0]


def test_a_recurrent_part_keeps_its_memory_and_takes_ragged_prompts_and_packed_documents(tmp_path: Path) -> None:
    use_parts(tmp_path / "leaky_memory.py")
    task, model = build_task("leaky_memory", packing=True, context=8)
    assert task.get_max_context(model) == 0  # texts longer than the context go on with the state
    assert model.ragged
    check_ragged_prompts(perturb_parameters(model))


def test_what_is_not_declared_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "leaky_memory.py"
    file.write_text(file.read_text().replace("packing=True, joins=True, ragged=True, unbounded=True", "joins=True"))
    use_parts(file)
    with pytest.raises(UserError, match=r"task\.packing: LeakyMemory of 'transformer' would mix the texts"):
        build_task("leaky_memory", packing=True)
    task, model = build_task("leaky_memory", context=8)
    assert task.get_max_context(model) == 8 and not model.ragged
    use_parts(tmp_path / "text_mean.py")
    with pytest.raises(UserError, match="text_mean: would see the future in a decoder"):
        build_task("text_mean")


def test_the_sentence_of_the_page_is_the_one_that_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "leaky_memory.py"
    file.write_text(file.read_text().replace("torch.stack(states, dim=1)", "states[-1].unsqueeze(1)"))
    use_parts(file)
    with pytest.raises(UserError) as caught:
        build_task("leaky_memory")
    assert f"    headwise: {caught.value}\n" in PAGE
