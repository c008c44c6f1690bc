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
ENOUGH_STEPS = 2000  # steps that the size of batches leaves time for, if they need not be too small for it
POOLER_STEPS = 6000  # from which BERT's pooler is learnt, which transformers has; mean pooling learns sooner
MAX_TOKENS = 512  # of a text that is classified; the rest is cut
MAX_WORDS = 4096  # of a text whose words have tags, or that has an answer; longer ones are left out
PARAMETERS_PER_TOKEN = 10  # of the layers, at most: a larger model learns small data by heart
EFFICIENCY = 0.4  # FLOPs of a training step, relative to large matrix products
TEST_ROWS = 2000  # of the held-out test part, at most about
FEW_ROWS = 100  # below it scores say little
LEAST_ROWS = 10  # different sources; of fewer, none can be held out
FEW_CHARACTERS = 20_000  # of plain texts
IMAGE_SIDE = 64  # pixels to which larger images are resized


@dataclass(frozen=True)
class Plan:
    """An experiment, the reasons for its settings, and warnings about the data."""

    experiment: Experiment
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    statistics: Statistics | None = None


Outputs = Callable[[int, int], int]  # width, depth -> the size of the output vocabulary


def count_no_outputs(width: int, depth: int) -> int:
    """For models with few outputs, such as labels."""
    return 0


def limit_vocabulary(size: int) -> Outputs:
    """At most `size` word pieces, and no more than cost twice as much as the layers."""
    return lambda width, depth: min(size, max(24 * width * depth // 1000 * 1000, 1000))


@dataclass(frozen=True)
class Budget:
    """What the choice of a size depends on."""

    minutes: float
    tokens: float  # of an epoch
    speed: float  # FLOP/s of training

    def choose(
        self, ladder: tuple[tuple[int, int, int], ...], stacks: int = 1, outputs: Outputs = count_no_outputs
    ) -> tuple[tuple[int, int, int], float]:
        """The largest size that the data carry and that has time for enough epochs, and the number of its epochs.

        Each token passes one of `stacks` stacks with as many layers; `outputs` is the size of the vocabulary that a
        model of this width and depth predicts from."""
        chosen, epochs = ladder[0], 0.0
        for size in ladder:
            width, _, depth = size
            parameters = 12 * width**2 * depth  # of the layers that a token passes
            # 6 FLOPs for each parameter and token; of two stacks one has outputs
            cost = 6 * (parameters + outputs(width, depth) * width / stacks)
            possible = self.minutes * 60 * self.speed / (cost * self.tokens)
            fits = parameters * stacks**2 <= PARAMETERS_PER_TOKEN * self.tokens and possible >= ENOUGH_EPOCHS
            if fits or not epochs:
                chosen, epochs = size, possible
        return chosen, epochs

    def choose_batch(self, epochs: float, smallest: int, largest: int) -> tuple[int, int]:
        """Tokens of a batch that leave time for enough steps, and steps of warmup, a tenth of them at most."""
        affordable = epochs * self.tokens
        batch = round(min(max(affordable / ENOUGH_STEPS, smallest), largest))
        return batch, round(min(max(affordable / batch / 10, 10), 200))


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
    if data.format != "text" and not data.valid and statistics.distinct_sources < LEAST_ROWS:
        count = count_nouns(statistics.distinct_sources, "different text")
        raise UserError(f"{data.train[0]}: has {count}, too few to hold some out; add rows, at least {LEAST_ROWS}")
    data = data.replace(**_choose_fractions(statistics.distinct_sources, data))
    settings, reasons = PLANNERS[task_config(kind).fits](statistics, minutes, kind)
    data = data.replace(**settings.pop("data", {}))
    fields: dict[str, Any] = {"name": name, "task": kind, "data": data, **settings}
    if isinstance(settings.get("task"), Mapping):
        fields["task"] = {"kind": kind, **settings["task"]}
    if init_from:
        fields = _fine_tune(fields, init_from)
        reasons = (
            f"starts from the weights of {init_from}, with its model and tokeniser",
            f"cosine decay from {fields['train']['schedule']['lr']:g}, at most {fields['train']['epochs']} epochs",
        )
    experiment = _limit_lengths(validate(Experiment, fields))
    return Plan(experiment, reasons, _warn_of_size(statistics, task_config(kind)), statistics)


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
    if task.unpaired and statistics.characters < FEW_CHARACTERS:
        warnings.append(f"{statistics.characters:,} characters are few: expect a model that has learnt them by heart")
    if (repeated := statistics.rows - statistics.distinct_sources) > 0.2 * statistics.rows:
        warnings.append(
            f"{repeated:,} of {statistics.rows:,} rows repeat a source; repeated ones stay on one side of the split"
        )
    return tuple(warnings)


Settings = tuple[dict[str, Any], tuple[str, ...]]


def plan_pairs(statistics: Statistics, minutes: float, kind: str = "") -> Settings:
    """An encoder-decoder (Vaswani et al. 2017) that transformers can load: with a shared vocabulary pre-norm layers, as
    Pegasus has, otherwise post-norm layers, as Marian has."""
    sides = statistics.source, statistics.target
    largest = choose_bpe_size(statistics.rows * sum(side.mean_words for side in sides))
    kinds = [choose_tokeniser(side, largest)[0]["kind"] for side in sides]
    tokens = statistics.rows * sum(_count_tokens(side, kind) for side, kind in zip(sides, kinds, strict=True))
    vocabulary = limit_vocabulary(largest if "bpe" in kinds else 0)
    budget = Budget(minutes, tokens, measure_speed())
    (width, heads, depth), epochs = budget.choose(ENCODER_DECODERS, 2, vocabulary)
    size = vocabulary(width, depth)
    (tokeniser, source_reason), (target, target_reason) = (choose_tokeniser(side, size) for side in sides)
    if tokeniser != target:
        tokeniser = {**tokeniser, "target": target}
    elif tokeniser["kind"] == "bpe" and statistics.same_alphabet:
        tokeniser = {**tokeniser, "shared": True}
        target_reason += "; both sides are written in the same letters and share one vocabulary"
    dropout = _choose_dropout(epochs)
    batch, warmup = budget.choose_batch(epochs, 1024, 4096)
    model = {
        "kind": "transformer", "width": width, "heads": heads, "encoder": {"depth": depth}, "decoder": {"depth": depth},
        "wiring": "pre" if tokeniser.get("shared") else "post", "dropout": dropout,
    }  # fmt: skip
    train = {
        "minutes": minutes,
        "tokens_per_batch": batch,
        "schedule": {"kind": "cosine", "lr": min(4e-3, 0.25 / width), "warmup": warmup},
        "optimizer": {"kind": "adamw"},
    }
    return {"tokeniser": tokeniser, "model": model, "train": train}, (
        f"source: {source_reason}; target: {target_reason}",
        f"a Transformer of width {width} with {depth} + {depth} layers: {_explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay over the whole time, batches of {batch:,} tokens",
    )


def plan_encoder(statistics: Statistics, minutes: float, kind: str = "classify") -> Settings:
    """A small BERT with a head, for one label or number a text, tags, or spans."""
    spans = task_config(kind).fits == "spans"
    cuts = not task_config(kind).one_to_one and not spans
    if spans:
        tokeniser, reason, length, longest = _choose_span_tokens(statistics)
    else:
        tokeniser, reason, length, longest = _choose_encoder_tokens(statistics.source, cuts)
    budget = Budget(minutes, statistics.rows * (min(length, longest) + 1), measure_speed())
    (width, heads, depth), epochs = budget.choose(ENCODERS)
    _, warmup = budget.choose_batch(epochs, round(32 * length), round(32 * length))
    # Where an answer begins is learnt late and at once: after some thousand steps, and with no progress before.
    epochs = min(epochs, max(20.0, 2 * ENOUGH_STEPS * 32 / statistics.rows) if spans else 20.0)
    pool = "pooler" if epochs * statistics.rows / 32 >= POOLER_STEPS else "mean"
    dropout = 0.1 if statistics.rows > 200_000 or spans else 0.3
    model = {
        "kind": "bert", "width": width, "heads": heads, "depth": depth, "hidden": 2 * width, "dropout": dropout,
        "pool": pool, "positions": {"kind": "learned", "max_length": max(longest + 3, 512)},
    }  # fmt: skip
    train: dict[str, Any] = {
        "minutes": minutes,
        "epochs": max(round(epochs), 3),
        "batch_size": 32,
        "schedule": {"kind": "cosine", "lr": 0.001, "warmup": min(warmup, 100)},
        "optimizer": {"kind": "adamw", "weight_decay": 0.01},
        "patience": 0 if spans else 4,
    }
    if length > 128:  # of long texts, attention in batches of 32 does not fit in every memory
        train["tokens_per_batch"] = train.pop("batch_size") * 128
    data = {"max_length": max(longest, MAX_TOKENS - 3), "truncate": cuts}
    return {"tokeniser": tokeniser, "model": model, "train": train, "data": data}, (
        reason,
        f"a BERT encoder of width {width} with {count_nouns(depth, 'layer')}: {_explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay, batches of 32 texts{'' if spans else ', early stopping'}",
    )


def _choose_span_tokens(statistics: Statistics) -> tuple[dict[str, Any], str, float, int]:
    """Word pieces for texts with answers, the reason, and about how many a text has, on average and at most."""
    side = statistics.source
    size = choose_bpe_size(statistics.rows * side.mean_words)
    reason = f"answers are parts of the text, also rare words: {size:,} word pieces (BPE), so that none is unknown"
    return {"kind": "bpe", "size": size}, reason, 2 * side.mean_words, min(3 * side.most_words, MAX_WORDS)


def _choose_encoder_tokens(side: Side, cuts: bool) -> tuple[dict[str, Any], str, float, int]:
    """Tokeniser of the texts of an encoder, the reason, and the tokens of a text on average and at most."""
    if cuts and (side.mean_words <= 2 or side.mean_characters > 15 * side.mean_words):
        what = "short texts" if side.mean_words <= 2 else "texts without spaces between words"
        reason = f"{what}, of {side.mean_characters:.0f} characters on average: one token a character"
        return {"kind": "characters"}, reason, side.mean_characters, min(side.longest, MAX_TOKENS)
    cut = min(side.most_words, MAX_TOKENS if cuts else MAX_WORDS)
    reason = f"texts of {side.mean_words:.0f} words on average: one token a word that occurs twice or more"
    if cut < side.most_words:
        reason += f"; what comes after {cut} words is not read" if cuts else f"; those of more than {cut} are left out"
    return {"kind": "words", "min_count": 2}, reason, side.mean_words, cut


def plan_language_model(statistics: Statistics, minutes: float, kind: str = "") -> Settings:
    """A LLaMA on characters or word pieces, which learns faster than a GPT-2 of the same size."""
    characters = statistics.characters
    by_character = characters < 2_000_000
    largest = choose_bpe_size(characters / 6)
    tokens = characters if by_character else characters / 4
    vocabulary = limit_vocabulary(0 if by_character else largest)
    budget = Budget(minutes, tokens, measure_speed())
    (width, heads, depth), epochs = budget.choose(DECODERS, outputs=vocabulary)
    size = vocabulary(width, depth)
    tokeniser: dict[str, Any] = {"kind": "characters"} if by_character else {"kind": "bpe", "size": size}
    context = 64 if minutes < 3 else 128 if minutes < 30 else 256
    batch, warmup = budget.choose_batch(epochs, max(1024, 8 * context), 32 * context)
    dropout = _choose_dropout(epochs)
    model = {
        "kind": "llama", "width": width, "heads": heads, "depth": depth, "hidden": 3 * width, "tie": "auto",
        "dropout": dropout,
    }  # fmt: skip
    train = {
        "minutes": minutes,
        "batch_size": batch // context,
        "label_smoothing": 0.0,
        "schedule": {"kind": "cosine", "lr": min(6e-3, 0.4 / width), "warmup": min(warmup, 100)},
        "optimizer": {"kind": "adamw", "betas": [0.9, 0.99], "weight_decay": 0.1},
        "validate_every": 500,
    }
    unit = "one token a character" if by_character else f"{size:,} word pieces (BPE)"
    return {"task": {"context": context}, "tokeniser": tokeniser, "model": model, "train": train}, (
        f"{characters:,} characters: {unit}",
        f"a LLaMA of width {width} with {depth} layers and a context of {context} tokens: {_explain_size(epochs)}",
        f"dropout {dropout:g}, cosine decay over the whole time",
    )


PLANNERS: dict[str, Callable[[Statistics, float, str], Settings]] = {
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
    data = data.replace(size=(side, side), damaged="skip", **({} if data.test else {"test_fraction": 0.1}))
    patches = (side // patch) ** 2
    budget = Budget(minutes, many * patches, measure_speed())
    (width, heads, depth), epochs = budget.choose(VISION)
    batch, warmup = budget.choose_batch(epochs, 8 * patches, 64 * patches)
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
        "batch_size": min(batch // patches, 16 if recognition.shape == "boxes" else 64),
        "label_smoothing": 0.1 if recognition.shape == "images" else 0.0,
        "schedule": {"kind": "cosine", "lr": 0.001, "warmup": min(warmup, 100), "floor": 0.01},
        "optimizer": {"kind": "adamw", "weight_decay": 0.05},
    }
    fields: dict[str, Any] = {"name": name, "task": task, "data": data, "model": model, "train": train}
    if recognition.shape == "captions":
        fields["tokeniser"] = {"kind": "words"}
    if init_from:
        fields = _fine_tune(fields, init_from)
    reasons = (
        f"images resized to {side} x {side} pixels",
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
    sizes = sorted((size for path in files if (size := read_image_size(path))), key=max)
    if not sizes:
        raise UserError(f"{files[0]}: is not an image that can be read, nor are the others; replace them")
    return sizes[len(sizes) // 2], len(index.targets)


def read_image_size(path: Path) -> tuple[int, int] | None:
    """Width and height of an image, from its header; None if it is damaged."""
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


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
