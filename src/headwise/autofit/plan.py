"""Choose tokeniser, model and schedule for recognised data and a time limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwise.autofit.budget import count_nouns
from headwise.autofit.plan_images import plan_images
from headwise.autofit.plan_texts import PLANNERS
from headwise.autofit.recognition import Recognition
from headwise.autofit.statistics import Statistics, compute_statistics
from headwise.config.base import validate
from headwise.data.config import DATA, TextDataConfig
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.tasks.base import TaskConfig
from headwise.tasks.tables import TASKS, task_config
from headwise.tuning.config import find_pretrained, parse_run_reference
from headwise.vision.config import ImagesConfig

TEST_ROWS = 2000  # of the held-out test part, at most about
TEST_CHARACTERS = 100_000  # of one text, at most about
LEAST_CHARACTERS = 10_000  # of one text; of the end of a shorter one, a test part says nothing
LEAST_TEXTS = 20  # of a folder; of fewer, none is held out to test, only to validate
FEW_ROWS = 100  # below it scores say little
LEAST_ROWS = 10  # different sources; of fewer, none can be held out
FEW_CHARACTERS = 20_000  # of plain texts


@dataclass(frozen=True)
class Plan:
    """An experiment, the reasons for its settings, and warnings about the data."""

    experiment: Experiment
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    statistics: Statistics | None = None


def plan(recognition: Recognition, minutes: float, name: str, init_from: str = "", task: str = "") -> Plan:
    """Choose task, tokeniser, size and schedule for this data and this time."""
    if init_from:
        check_pretrained(init_from)
    kind = task or find_task(recognition.shape)
    if recognition.data.get("kind") == "images":
        images = DATA.parse(dict(recognition.data))
        assert isinstance(images, ImagesConfig)
        settings, reasons, many = plan_images(images, recognition.shape, minutes)
        experiment, reasons = _assemble(name, kind, settings, reasons, init_from)
        return Plan(experiment, reasons, (f"{many} images are few: expect wide intervals",) if many < FEW_ROWS else ())
    data = validate(TextDataConfig, _hold_out(recognition, kind), "fit")
    assert isinstance(data, TextDataConfig)
    statistics = compute_statistics(data)
    if data.format != "text" and not data.valid and statistics.distinct_sources < LEAST_ROWS:
        count = count_nouns(statistics.distinct_sources, "different text")
        raise UserError(f"{data.train[0]}: has {count}, too few to hold some out; add rows, at least {LEAST_ROWS}")
    data = data.replace(**_choose_fractions(statistics, data))
    settings, reasons = PLANNERS[task_config(kind).fits](statistics, minutes, kind)
    settings["data"] = data.replace(**settings.get("data", {}))
    experiment, reasons = _assemble(name, kind, settings, reasons, init_from)
    return Plan(_limit_lengths(experiment), reasons, _warn_of_size(statistics, task_config(kind)), statistics)


def _assemble(
    name: str, kind: str, settings: dict[str, Any], reasons: tuple[str, ...], init_from: str
) -> tuple[Experiment, tuple[str, ...]]:
    """The experiment of these settings; with `init_from` that of fine-tuning, and its reasons."""
    fields = {"name": name, **settings, "task": {"kind": kind, **settings.get("task", {})}}
    if init_from:
        fields = _fine_tune(fields, init_from)
        reasons = (
            f"starts from the weights of {init_from}, with its model and tokeniser",
            f"cosine decay from {fields['train']['schedule']['lr']:g}, at most {fields['train']['epochs']} epochs",
        )
    return validate(Experiment, fields), reasons


def _limit_lengths(experiment: Experiment) -> Experiment:
    """Texts and contexts no longer than the learned positions of the model, which may be a pretrained one."""
    limit = getattr(getattr(experiment.model, "positions", None), "max_length", 0)
    if not limit:
        return experiment
    if getattr(experiment.task, "context", 0) > limit:
        return experiment.replace(task=experiment.task.replace(context=limit))
    data = experiment.data
    if not experiment.task.unpaired and isinstance(data, TextDataConfig) and data.max_length > limit - 3:
        return experiment.replace(data=data.replace(max_length=limit - 3))  # EOS, and ids before and after a text
    return experiment


def find_task(shape: str) -> str:
    """The task that declares to learn from such data."""
    return next(name for name in TASKS.names if task_config(name).fits == shape)


def _hold_out(recognition: Recognition, kind: str) -> dict[str, Any]:
    return {**recognition.data, "one_to_one": task_config(kind).one_to_one}


def _choose_fractions(statistics: Statistics, data: TextDataConfig) -> dict[str, Any]:
    """A tenth for testing and a twentieth for validation; more of small data, less of large ones; nothing for testing
    of a short text or of few texts."""
    settings: dict[str, Any] = {"one_to_one": False}
    rows = statistics.distinct_sources
    if not data.test and statistics.rows == 1:
        if statistics.characters >= LEAST_CHARACTERS:
            share = max(TEST_CHARACTERS / statistics.characters, 0.001)
            settings["test_fraction"] = round(min(0.1, share), 4)
    elif not data.test and (data.format != "text" or rows >= LEAST_TEXTS):
        settings["test_fraction"] = round(min(0.1 if rows >= 1000 else 0.2, max(TEST_ROWS / rows, 0.001)), 4)
    if not data.valid and rows < 2000:
        settings["valid_fraction"] = 0.1
    return settings


def check_pretrained(init_from: str) -> None:
    """Find the run or folder to start from; a repository is downloaded unless the cache has it, as `import` does."""
    try:
        folder = find_pretrained(*parse_run_reference(init_from)).path
    except UserError as error:
        raise UserError(f"--from: {error}") from None
    if not any((folder / name).is_file() for name in ("config.toml", "config.json")):
        problem = "is neither a run nor a Hugging Face folder" if folder.is_dir() else "there is no such folder"
        raise UserError(
            f"--from: {folder}: {problem}; name a run, a Hugging Face folder, or a repository such as org/name"
        )


def _fine_tune(fields: dict[str, Any], init_from: str) -> dict[str, Any]:
    """The settings of fine-tuning: model and tokeniser are those of the pretrained weights."""
    train = dict(fields["train"])
    train["schedule"] = {"kind": "cosine", "lr": 5e-5, "warmup": 50}
    train["epochs"] = 4
    others = {key: value for key, value in fields.items() if key not in ("model", "tokeniser")}
    return {**others, "train": train, "init_from": init_from}


def _warn_of_size(statistics: Statistics, task: type[TaskConfig]) -> tuple[str, ...]:
    warnings = []
    if statistics.rows < FEW_ROWS and not task.unpaired:
        warnings.append(
            f"{statistics.rows} rows are few: expect a model that has learnt them by heart, and wide intervals"
        )
    if task.unpaired and statistics.characters < FEW_CHARACTERS:
        warnings.append(f"{statistics.characters:,} characters are few: expect a model that has learnt them by heart")
    if (repeated := statistics.rows - statistics.distinct_sources) > 0.2 * statistics.rows:
        warnings.append(
            f"{repeated:,} of {statistics.rows:,} rows repeat a source; repeated ones stay on one side of the split"
        )
    return tuple(warnings)
