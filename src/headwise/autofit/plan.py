"""Choose tokeniser, model and schedule for recognised data and a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from PIL import Image

from headwise.autofit.recognition import Recognition
from headwise.autofit.statistics import Side, Statistics, choose_bpe_size, choose_tokeniser, compute_statistics
from headwise.config.base import validate
from headwise.data.config import DATA, TextDataConfig
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.tasks.base import TaskConfig
from headwise.tasks.tables import TASKS, task_config
from headwise.tuning.config import find_pretrained, parse_run_reference
from headwise.vision.config import ImagesConfig
from headwise.vision.readers.tables import READERS

# width, heads, layers: each step up costs about three times as much
ENCODER_DECODERS = ((64, 4, 2), (128, 4, 3), (192, 6, 4), (256, 4, 4), (512, 8, 6))
ENCODERS = ((64, 4, 1), (128, 4, 2), (192, 6, 3), (256, 8, 4), (384, 6, 6))
DECODERS = ((64, 4, 2), (128, 4, 4), (192, 6, 4), (256, 8, 6), (384, 6, 6), (512, 8, 8))
VISION = ((64, 4, 3), (96, 3, 4), (128, 4, 6), (192, 3, 8))
ENOUGH_EPOCHS = 12  # epochs that a size must have time for
PARAMETERS_PER_TOKEN = 10  # of the layers, at most: a larger model learns small data by heart
EFFICIENCY = 0.4  # FLOPs of a training step, relative to large matrix products
TEST_ROWS = 2000  # of the held-out test part, at most about
FEW_ROWS = 100  # below it scores say little
IMAGE_SIDE = 64  # pixels to which larger images are resized


@dataclass(frozen=True)
class Plan:
    """An experiment, the reasons for its settings, and warnings about the data."""

    experiment: Experiment
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    statistics: Statistics | None = None


@dataclass(frozen=True)
class Budget:
    """What the choice of a size depends on."""

    minutes: float
    tokens: float  # of an epoch
    speed: float  # FLOP/s of training

    def choose(self, ladder: tuple[tuple[int, int, int], ...], passes: int = 1) -> tuple[tuple[int, int, int], float]:
        """The largest size that the data carry and that has time for enough epochs, and the number of its epochs.
        `passes` is the number of stacks with as many layers, of which each token passes one."""
        chosen, epochs = ladder[0], 0.0
        for size in ladder:
            width, _, depth = size
            parameters = 12 * width**2 * depth  # of the layers that a token passes
            # 6 FLOPs for each parameter and token
            possible = self.minutes * 60 * self.speed / (6 * parameters * self.tokens)
            fits = parameters * passes <= PARAMETERS_PER_TOKEN * self.tokens and possible >= ENOUGH_EPOCHS
            if fits or not epochs:
                chosen, epochs = size, possible
        return chosen, epochs


def plan(recognition: Recognition, minutes: float, name: str = "", init_from: str = "", task: str = "") -> Plan:
    """Choose task, tokeniser, size and schedule for this data and this time."""
    if init_from:
        check_pretrained(init_from)
    kind = task or find_task(recognition.shape)
    name = name or Path(str(recognition.data["train"][0])).name.split(".")[0] or "fit"
    if recognition.data.get("kind") == "images":
        return _plan_images(recognition, kind, minutes, name, init_from)
    data = validate(TextDataConfig, _hold_out(recognition, kind), "fit")
    assert isinstance(data, TextDataConfig)
    statistics = compute_statistics(data)
    data = data.replace(**_choose_fractions(statistics.distinct_sources, data))
    settings, reasons = PLANNERS[task_config(kind).fits](statistics, minutes)
    fields: dict[str, Any] = {"name": name, "task": kind, "data": data, **settings}
    if isinstance(settings.get("task"), Mapping):
        fields["task"] = {"kind": kind, **settings["task"]}
    if init_from:
        fields = _fine_tune(fields, init_from)
        reasons = (f"starts from the weights of {init_from}, with its model and tokeniser", *reasons[-1:])
    return Plan(validate(Experiment, fields), reasons, _warn_of_size(statistics, task_config(kind)), statistics)


def find_task(shape: str) -> str:
    """The task that declares to learn from such data."""
    return next(name for name in TASKS.names if task_config(name).fits == shape)


def _hold_out(recognition: Recognition, kind: str) -> dict[str, Any]:
    return {**recognition.data, "one_to_one": task_config(kind).one_to_one}


def _choose_fractions(rows: int, data: TextDataConfig) -> dict[str, Any]:
    """A tenth for testing and a twentieth for validation; more of small data, less of large ones."""
    settings: dict[str, Any] = {"one_to_one": False}
    if not data.test and data.format != "text":
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
    if (repeated := statistics.rows - statistics.distinct_sources) > 0.2 * statistics.rows:
        warnings.append(
            f"{repeated:,} of {statistics.rows:,} rows repeat a source; repeated ones stay on one side of the split"
        )
    return tuple(warnings)


Settings = tuple[dict[str, Any], tuple[str, ...]]


def plan_pairs(statistics: Statistics, minutes: float) -> Settings:
    """An encoder-decoder (Vaswani et al. 2017)."""
    sides = statistics.source, statistics.target
    size = choose_bpe_size(statistics.rows * sum(side.mean_words for side in sides))
    (tokeniser, source_reason), (target, target_reason) = (choose_tokeniser(side, size) for side in sides)
    kinds = tokeniser["kind"], target["kind"]
    if tokeniser != target:
        tokeniser = {**tokeniser, "target": target}
    elif tokeniser["kind"] == "bpe" and statistics.same_alphabet:
        tokeniser = {**tokeniser, "shared": True}
        target_reason += "; both sides are written in the same letters and share one vocabulary"
    tokens = statistics.rows * sum(_count_tokens(side, kind) for side, kind in zip(sides, kinds, strict=True))
    (width, heads, depth), epochs = Budget(minutes, tokens / 2, measure_speed()).choose(ENCODER_DECODERS, passes=2)
    dropout = _choose_dropout(epochs)
    batch = min(max(int(tokens / 50) // 256 * 256, 512), 4096)
    model = {
        "kind": "transformer", "width": width, "heads": heads, "encoder": {"depth": depth}, "decoder": {"depth": depth},
        "wiring": "pre", "dropout": dropout,
    }  # fmt: skip
    train = {
        "minutes": minutes,
        "tokens_per_batch": batch,
        "schedule": {"kind": "cosine", "lr": min(3e-3, 0.25 / width), "warmup": 200},
        "optimizer": {"kind": "adamw"},
    }
    return {"tokeniser": tokeniser, "model": model, "train": train}, (
        f"source: {source_reason}; target: {target_reason}",
        f"a Transformer of width {width} with {depth} + {depth} layers: {_explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay over the whole time, batches of {batch:,} tokens",
    )


def plan_encoder(statistics: Statistics, minutes: float) -> Settings:
    """A small BERT with a head, for one label or number a text, tags, or spans."""
    words = statistics.source.mean_words
    tokens = statistics.rows * (words + 1)
    (width, heads, depth), epochs = Budget(minutes, tokens, measure_speed()).choose(ENCODERS)
    epochs = min(epochs, 20.0)
    dropout = 0.1 if statistics.rows > 200_000 else 0.3
    model = {
        "kind": "bert", "width": width, "heads": heads, "depth": depth, "hidden": 2 * width, "dropout": dropout,
        "pool": "mean",
    }  # fmt: skip
    tokeniser: dict[str, Any] = {"kind": "words", "min_count": 2}
    train = {
        "minutes": minutes,
        "epochs": max(round(epochs), 3),
        "batch_size": 32,
        "schedule": {"kind": "cosine", "lr": 0.001, "warmup": 100},
        "optimizer": {"kind": "adamw", "weight_decay": 0.01},
        "patience": 4,
    }
    return {"tokeniser": tokeniser, "model": model, "train": train}, (
        f"texts of {words:.0f} words on average: one token a word that occurs twice or more",
        f"a BERT encoder of width {width} with {count_nouns(depth, 'layer')}: {_explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay, batches of 32 texts, early stopping",
    )


def plan_language_model(statistics: Statistics, minutes: float) -> Settings:
    """A GPT-2 on characters or word pieces."""
    characters = statistics.characters
    by_character = characters < 2_000_000
    size = choose_bpe_size(characters / 6)
    tokeniser: dict[str, Any] = {"kind": "characters"} if by_character else {"kind": "bpe", "size": size}
    tokens = characters if by_character else characters / 4
    (width, heads, depth), epochs = Budget(minutes, tokens, measure_speed()).choose(DECODERS)
    context = 128 if minutes < 30 else 256
    dropout = _choose_dropout(epochs)
    model = {"kind": "gpt2", "width": width, "heads": heads, "depth": depth, "dropout": dropout}
    train = {
        "minutes": minutes,
        "batch_size": 32,
        "label_smoothing": 0.0,
        "schedule": {"kind": "cosine", "lr": min(3e-3, 0.4 / width), "warmup": 100},
        "optimizer": {"kind": "adamw", "betas": [0.9, 0.99], "weight_decay": 0.1},
        "validate_every": 500,
    }
    unit = "one token a character" if by_character else f"{size:,} word pieces (BPE)"
    return {"task": {"context": context}, "tokeniser": tokeniser, "model": model, "train": train}, (
        f"{characters:,} characters: {unit}",
        f"a GPT-2 of width {width} with {depth} layers and a context of {context} tokens: {_explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay over the whole time",
    )


PLANNERS: dict[str, Callable[[Statistics, float], Settings]] = {
    "pairs": plan_pairs,
    "labelled": plan_encoder,
    "numbers": plan_encoder,
    "tagged": plan_encoder,
    "spans": plan_encoder,
    "texts": plan_language_model,
}


def _plan_images(recognition: Recognition, kind: str, minutes: float, name: str, init_from: str) -> Plan:
    """A Vision Transformer, DETR or a captioner for images of one size."""
    data = DATA.parse(dict(recognition.data))
    assert isinstance(data, ImagesConfig)
    size, many = measure_images(data)
    side = min(max(size), IMAGE_SIDE)
    patch = max(side // 8, 2)
    side = side // patch * patch
    data = data.replace(size=(side, side), **({} if data.test else {"test_fraction": 0.1}))
    patches = (side // patch) ** 2
    (width, heads, depth), epochs = Budget(minutes, many * patches, measure_speed()).choose(VISION)
    model: dict[str, Any] = {"width": width, "heads": heads, "depth": depth, "hidden": 2 * width}
    task: dict[str, Any] = {"kind": kind}
    if recognition.shape == "images":
        model |= {"kind": "vit", "patch": patch, "drop_path": 0.1}
        task["augment"] = [{"kind": "shift", "by": max(side // 16, 1)}]
        form = "a Vision Transformer"
    elif recognition.shape == "captions":
        model |= {"kind": "captioner", "patch": patch, "decoder": {"depth": 2}}
        form = "a Vision Transformer that reads and a decoder that writes"
    else:
        model = {
            "kind": "detr-small", "wiring": "pre", "dropout": 0.0, "queries": 16, "width": 64, "hidden": 128,
            "depth": 1, "decoder": {"depth": 2}, "backbone": {"width": 24, "depths": [1, 1], "bottleneck": False},
        }  # fmt: skip
        task["flip"] = 0.5
        form = "a small DETR"
    train = {
        "minutes": minutes,
        "batch_size": 16 if recognition.shape == "boxes" else 64,
        "label_smoothing": 0.1 if recognition.shape == "images" else 0.0,
        "schedule": {"kind": "cosine", "lr": 0.001, "warmup": 100, "floor": 0.01},
        "optimizer": {"kind": "adamw", "weight_decay": 0.05},
    }
    fields: dict[str, Any] = {"name": name, "task": task, "data": data, "model": model, "train": train}
    if recognition.shape == "captions":
        fields["tokeniser"] = {"kind": "words"}
    if init_from:
        fields = _fine_tune(fields, init_from)
    reasons = (
        f"{many:,} images, resized to {side} x {side} pixels",
        f"{form} on patches of {patch} x {patch}, width {model['width']}: {_explain_size(epochs)}",
    )
    warnings = (f"{many} images are few: expect wide intervals",) if many < FEW_ROWS else ()
    return Plan(validate(Experiment, fields), reasons, warnings)


def measure_images(data: ImagesConfig) -> tuple[tuple[int, int], int]:
    """The median width and height of the images, from a sample of their headers, and their number."""
    paths = tuple(Path(path) for path in data.train)
    parts = READERS[data.format](paths, data)
    index = parts.get("train", parts.get("", next(iter(parts.values()))))
    files = index.source.files[:: max(len(index.source.files) // 200, 1)]
    sizes = sorted((image_size(path) for path in files), key=max)
    return sizes[len(sizes) // 2], len(index.targets)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image, from its header."""
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, Image.DecompressionBombError):
        raise UserError(f"{path}: is not an image that can be read; remove it or replace it") from None


def _count_tokens(side: Side, kind: str) -> float:
    """Tokens of a text on average, roughly."""
    return {"words": side.mean_words, "bpe": 1.3 * side.mean_words}.get(kind, side.mean_characters) + 1


def count_nouns(count: int, noun: str) -> str:
    """
    >>> count_nouns(1, "epoch"), count_nouns(2000, "epoch")
    ('1 epoch', '2,000 epochs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _choose_dropout(epochs: float) -> float:
    return 0.0 if epochs < 4 else 0.1 if epochs < 40 else 0.2


def _explain_size(epochs: float) -> str:
    return f"the largest that the data carry, with time for about {count_nouns(max(round(epochs), 1), 'epoch')} here"


def measure_speed(size: int = 768) -> float:
    """FLOP/s of training steps on this machine, from matrix products that take a fraction of a second."""
    matrix = torch.rand(size, size)
    times = []
    for _ in range(5):
        start = perf_counter()
        matrix @ matrix
        times.append(perf_counter() - start)
    return EFFICIENCY * 2 * size**3 / sorted(times)[len(times) // 2]
