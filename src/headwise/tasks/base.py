"""What every task can do: prepare data, build a model for it, turn batches into losses and outputs into scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.hard import HardAttention, others, reinforce_loss
from headwise.blocks.heads import Loss
from headwise.blocks.record import collect
from headwise.config.base import Config
from headwise.data.batches import Batches
from headwise.data.collate import PairBatch, collate
from headwise.data.config import DataConfig
from headwise.data.corpora import load_corpus
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.text import PAD
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

if TYPE_CHECKING:
    from headwise.data.sniff import Facts


class PairData:
    """Examples in batches, for the training loop: order by epoch, tensors by numbers."""

    def __init__(self, examples: Examples, seed: int, tokens_per_batch: int = 0, batch_size: int = 0):
        self.examples = examples
        self.batches = Batches(examples.lengths, seed, 0 if batch_size else tokens_per_batch, batch_size)

    @property
    def summary(self) -> str:
        return (
            f"{len(self.examples):,} pairs to train on; {len(self.batches):,} batches an epoch, "
            f"{100 * self.batches.padding:.1f} % padding"
        )

    def plan(self, epoch: int) -> Sequence[np.ndarray]:
        return self.batches.plan(epoch)

    def batch(self, numbers: np.ndarray) -> PairBatch:
        return collate(self.examples, numbers)


@dataclass(frozen=True)
class ImageDescription:
    """What a model says of an image: the probability of each label, or a sentence; nothing where it says neither."""

    probabilities: Mapping[str, float] = field(default_factory=dict)
    sentence: str = ""


@dataclass(frozen=True)
class Evaluation:
    """What a model made of a test set: each source once, with all its references; and the scores.

    `confusion` counts how often each label (row) was taken for which (column), where there are labels.
    """

    sources: list[str]
    outputs: list[str]
    references: list[list[str]]
    scores: list[Score]
    labels: list[str] = field(default_factory=list)
    confusion: np.ndarray | None = None


class Sample(NamedTuple):
    """What a model made of one example while it was trained, beside what it should have made."""

    source: str
    output: str
    reference: str

    def to_dict(self, most: int = 600) -> dict[str, str]:
        """By name, long texts cut."""
        return {name: text[:most] + "…" * (len(text) > most) for name, text in self._asdict().items()}


class TaskConfig(Config):
    """The `[task]` table of an experiment: a `kind`, settings of its own, and the declaration of the task: all that
    commands, studio, fine-tuning and auto-fit need to know of it, so that a new task changes none of them."""

    kind: str
    task_class: ClassVar[type[Task[Any]]]  # what the config builds
    needs: ClassVar[str] = ""  # the kind of model that it is learnt by; empty: one of its own kind
    reads: ClassVar[Literal["texts", "images"]] = "texts"  # the kind of data that it is learnt from
    unpaired: ClassVar[bool] = False  # learnt from texts alone, which have no sources
    one_to_one: ClassVar[bool] = False  # a target has one word for each word of its source
    labelled: ClassVar[bool] = False  # targets are labels, which come from the data and not from a pretrained model
    confusion: ClassVar[bool] = False  # an evaluation counts which label was taken for which
    writes: ClassVar[Literal["", "target", "continuation"]] = ""  # what its model generates token by token
    command: ClassVar[str] = ""  # `headwise COMMAND RUN` uses its runs; empty: none does

    @property
    def shape(self) -> str:
        """What a model must be able to do, of `ModelConfig.tasks`."""
        return self.needs or self.kind

    @property
    def transduces(self) -> bool:
        """Whether it turns source texts into target texts."""
        return self.writes == "target" and self.reads == "texts" and not self.unpaired

    @classmethod
    def suits(cls, facts: Facts) -> bool:
        """Whether `headwise fit` chooses it for such pairs."""
        return False

    def for_model(self, model: ModelConfig) -> Self:
        """The same with what it leaves to the model filled in."""
        return self

    def build(self, tokenisers: Tokenisers, label_smoothing: float = 0.0) -> Task[Any]:
        """The task for these vocabularies."""
        return self.task_class(self, tokenisers, label_smoothing)


Settings = TypeVar("Settings", bound=TaskConfig)


class Task(ABC, Generic[Settings]):
    """Knows data and scores, not what kind of model learns them. What its data, examples and pairs are is its own
    matter: pairs of texts, or images."""

    config: Settings

    def __init__(self, config: Settings, tokenisers: Tokenisers, label_smoothing: float = 0.0):
        self.config, self.tokenisers, self.label_smoothing = config, tokenisers, label_smoothing

    @property
    def kind(self) -> str:
        return self.config.kind

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        """Read and tokenise the data; tokenisers that exist already are kept."""
        return prepare(data, tokeniser)

    def build(self, model: ModelConfig) -> nn.Module:
        """The model for this task and these vocabularies."""
        outputs = 0 if self.tokenisers.shared else self.tokenisers.target.size
        return model.build(self.tokenisers.source.size, outputs, self.config.shape)

    def data(self, examples: Any, seed: int, config: TrainConfig) -> Any:
        """Batches for the training loop."""
        return PairData(examples, seed, config.tokens_per_batch, config.batch_size)

    @property
    def units(self) -> str:
        """What it tells apart, in words."""
        sides = dict.fromkeys((self.tokenisers.source, self.tokenisers.target))
        return f"vocabulary {' + '.join(f'{side.size:,}' for side in sides)}"

    @property
    def image(self) -> tuple[int, int, int] | tuple[()]:
        """Channels, rows and columns of what it reads, where that is images."""
        return ()

    def load_test_pairs(self, data: DataConfig) -> Any:
        """The data's test part, or their validation part where there is none."""
        corpus = load_corpus(data)
        return list(corpus.test or corpus.valid)

    def fit_model(self, model: Any, examples: Any) -> None:
        """Let a model without gradients learn: one pass over the examples."""
        model.fit(examples)

    @property
    @abstractmethod
    def checkpoint_metric(self) -> Metric:
        """The score that decides which checkpoint is best."""

    @property
    def teacher_run(self) -> str:
        """The run or folder of the teacher whose outputs count in the loss; empty where there is none."""
        return ""

    def set_teacher(self, task: Task[Any], model: nn.Module) -> None:
        """Give it the model that `teacher_run` names, with that model's own task."""
        raise TypeError(f"{self.kind} learns without a teacher")

    def init_state(self, model: nn.Module) -> LossState:
        """What its losses depend on beside model and batch, before the first step."""
        return LossState()

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any, state: LossState) -> Loss:
        """Sums over the tokens of a batch."""

    @abstractmethod
    def validate(self, model: nn.Module, examples: Any, pairs: Any) -> Mapping[str, float]:
        """Scores while training."""

    def samples(self, model: Any, pairs: Any, count: int) -> list[Sample]:
        """What the model makes of a few pairs, the same each time, to look at while it is trained."""
        made = self.evaluate(model, first(pairs, count))
        return [
            Sample(*each) for each in zip(made.sources, made.outputs, map(" / ".join, made.references), strict=True)
        ]

    def describe_image(self, model: Any, image: Tensor, config: DecodeConfig) -> ImageDescription:
        """What a model that reads images says of one (1, C, H, W) of bytes."""
        return ImageDescription()

    def max_context(self, model: nn.Module) -> int:
        """How many tokens a model has in sight while it goes on with a text; 0: all."""
        return 0

    @abstractmethod
    def evaluate(self, model: Any, pairs: Any, config: DecodeConfig = GREEDY, language: str = "en") -> Evaluation:
        """Outputs and scores with intervals."""


def first(pairs: Any, count: int) -> Any:
    """The first of pairs, or of images."""
    return pairs.take(range(min(count, len(pairs)))) if hasattr(pairs, "take") else list(islice(pairs, count))


def per_token(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The negative log-likelihood of each label, (B, T); 0 where the label is the padding."""
    flat, given = logits.flatten(0, 1).float(), labels.flatten()  # (B, T, V) -> (B * T, V)
    each = F.cross_entropy(flat, given, ignore_index=PAD, reduction="none", label_smoothing=label_smoothing)
    return each.view_as(labels)


@dataclass
class GenerationState(LossState):
    """Whether a model that writes makes hard choices; decided once, as a walk over all modules takes its time."""

    reinforce: bool = False

    @classmethod
    def of(cls, model: nn.Module) -> GenerationState:
        return cls(reinforce=any(isinstance(module, HardAttention) for module in model.modules()))


def generation_loss(
    model: nn.Module, *inputs: Tensor, labels: Tensor, label_smoothing: float, state: LossState
) -> Loss:
    """The model's loss. Where it makes hard choices, with REINFORCE's gradient for them (blocks/attention/hard.py)."""
    if not (model.training and isinstance(state, GenerationState) and state.reinforce):
        return model(*inputs, labels=labels, label_smoothing=label_smoothing)
    with collect("hard") as side:
        logits = model(*inputs)
    nll = per_token(logits, labels).sum(1)  # (B, T) -> (B,)
    smooth = per_token(logits, labels, label_smoothing).sum(1)
    counts = (labels != PAD).sum(1)
    rows = reinforce_loss(smooth, side.all("hard"), others(smooth, counts))
    return Loss(rows.sum(), nll.detach().sum(), counts.sum())
