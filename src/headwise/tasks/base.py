"""Base of all tasks: prepare the data, build the model, compute losses and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.hard import HardAttention, compute_baseline, reinforce_loss
from headwise.blocks.losses import Loss
from headwise.blocks.record import collect
from headwise.config.base import Config
from headwise.data.batches import Batches
from headwise.data.collate import PairBatch, collate
from headwise.data.config import Content, DataConfig, TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.data.splits import truncate_sources
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.placement.config import Graphs
from headwise.proteins.chain_sets import Chains
from headwise.text import PAD
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.learner import AnyLearner, Learner
from headwise.train.state import Data, LossState, Metric
from headwise.vision.images import Images
from headwise.worlds.episodes import Episodes, EpisodeSeeds


class TrainingData(Data, Protocol):
    """Batches for the training loop, and a line about them for the user."""

    @property
    def summary(self) -> str: ...


class PairData:
    """Batches of pairs for the training loop: order by epoch, tensors by numbers."""

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
    """A model's output for an image: the probability of each label, or a sentence; empty for other models."""

    probabilities: Mapping[str, float] = field(default_factory=dict)
    sentence: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Outputs and scores of a test set; each source stands once, with all its references.

    `confusion` is the confusion matrix, true labels by predicted ones, where there are labels.
    """

    sources: list[str]
    outputs: list[str]
    references: list[list[str]]
    scores: list[Score]
    labels: list[str] = field(default_factory=list)
    confusion: np.ndarray | None = None


def shorten_path(name: str) -> str:
    """The file of an image and its folder: a run says nothing of the machine that it was trained on.

    >>> shorten_path("/home/me/pets/cat/1.png")
    'cat/1.png'
    """
    return "/".join(Path(name).parts[-2:])


class Sample(NamedTuple):
    """A model's output for one validation example during training, and the reference."""

    source: str
    output: str
    reference: str

    def to_dict(self, max_length: int = 600) -> dict[str, str]:
        """The texts by name, cut to `max_length` characters."""
        return {name: text[:max_length] + "…" * (len(text) > max_length) for name, text in self._asdict().items()}


class TaskConfig(Config):
    """The `[task]` table of an experiment: a `kind` and the task's settings. Class attributes declare what commands,
    studio, fine-tuning and auto-fit need to know of the task, so that a new task changes none of them."""

    kind: str
    task_class: ClassVar[type[AnyModelTask]]  # what `build` returns
    model_of: ClassVar[str] = ""  # the task whose model it trains, such as "classify" of a regression; empty: its own
    reads: ClassVar[Content] = "texts"  # the content of `[data]`
    unpaired: ClassVar[bool] = False  # trained on texts without sources
    one_to_one: ClassVar[bool] = False  # a target has one label for each word of its source
    pairs: ClassVar[bool] = False  # a source may be two texts with a tab between them
    labelled: ClassVar[bool] = False  # targets are labels, taken from the data and not from a pretrained model
    confusion: ClassVar[bool] = False  # an evaluation has a confusion matrix
    writes: ClassVar[Literal["", "target", "continuation"]] = ""  # what the model generates token by token
    divisible: ClassVar[bool] = False  # its loss is a sum over rows, so that several processes can share a batch
    command: ClassVar[str] = ""  # `headwise COMMAND RUN` applies its runs; empty: no command does
    fits: ClassVar[str] = ""  # the data for which `headwise fit` chooses it (`autofit.roles.Shape`); empty: none
    baselines: ClassVar[tuple[str, ...]] = ()  # what `headwise fit` compares it with (`autofit.baselines`)

    @property
    def model_task(self) -> str:
        """The task that the model is built for, one of `ModelConfig.tasks`."""
        return self.model_of or self.kind

    @property
    def transduces(self) -> bool:
        """Whether it turns source texts into target texts."""
        return self.writes == "target" and self.reads == "texts" and not self.unpaired

    def for_model(self, model: ModelConfig) -> Self:
        """The config with settings of "auto" resolved for this model."""
        return self

    def build(self, tokenisers: Tokenisers, label_smoothing: float = 0.0) -> AnyModelTask:
        """The task with these vocabularies."""
        return self.task_class(self, tokenisers, label_smoothing)


Settings = TypeVar("Settings", bound=TaskConfig)
Model = TypeVar("Model", bound=nn.Module)  # what `build` returns
ExampleSet = TypeVar(
    "ExampleSet", bound=Examples | Images | Chains | Episodes | Graphs | EpisodeSeeds
)  # training and validation data, tokenised or decoded
PairSet = TypeVar("PairSet", Sequence[Pair], Images, Chains, Episodes, Graphs, EpisodeSeeds)  # test data as in files


class Task(ABC, Generic[Settings, Model, ExampleSet, PairSet]):
    """A task: its data, model, loss and scores. `TextTask` is the base of tasks on texts."""

    config: Settings
    learner_class: ClassVar[Callable[..., AnyLearner]] = Learner  # takes the steps of training
    # what `loss` computes on the host, waiting for the device; empty: nothing, shapes follow from those of the batch
    host_work: ClassVar[str] = ""

    def __init__(self, config: Settings, tokenisers: Tokenisers, label_smoothing: float = 0.0):
        self.config, self.tokenisers, self.label_smoothing = config, tokenisers, label_smoothing

    @property
    def kind(self) -> str:
        return self.config.kind

    @classmethod
    def adapt_data(cls, data: DataConfig) -> DataConfig:
        """The data with the settings that the task needs, such as a stratified split."""
        return data

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        """Read and tokenise the data; given tokenisers are used as they are."""
        return prepare(data, tokeniser)

    def set_sizes(self, model: ModelConfig) -> ModelConfig:
        """The config with the sizes that depend on the data: those of images."""
        return model

    def build(self, model: ModelConfig) -> Model:
        """The model for this task and these vocabularies."""
        outputs = 0 if self.tokenisers.shared else self.tokenisers.target.size
        return model.build(self.tokenisers.source.size, outputs, self.config.model_task)

    @abstractmethod
    def build_batches(self, examples: ExampleSet, seed: int, config: TrainConfig) -> TrainingData:
        """Batches for the training loop."""

    @property
    def units(self) -> str:
        """The size of the vocabulary or the number of classes, in words."""
        sides = dict.fromkeys((self.tokenisers.source, self.tokenisers.target))
        return f"vocabulary {' + '.join(f'{side.size:,}' for side in sides)}"

    @property
    def image(self) -> tuple[int, int, int] | tuple[()]:
        """Channels, rows and columns of the input images; empty for texts."""
        return ()

    @abstractmethod
    def load_test_pairs(self, data: DataConfig) -> PairSet:
        """The test split, or the validation split where there is none."""

    def fit_model(self, model: Model, examples: ExampleSet) -> None:
        """Fit a model without gradients in one pass over the examples."""
        raise TypeError(f"{self.kind} has no models that are fitted in one pass")

    @property
    @abstractmethod
    def checkpoint_metric(self) -> Metric:
        """The validation score by which the best checkpoint is chosen."""

    @property
    def teacher_run(self) -> str:
        """The run or folder of the teacher model of knowledge distillation; empty: none."""
        return ""

    def set_teacher(self, task: AnyModelTask, model: nn.Module) -> None:
        """Set the teacher model that `teacher_run` names, with the task that it was trained for."""
        raise TypeError(f"{self.kind} has no knowledge distillation")

    @property
    def lr_scales(self) -> Mapping[str, float]:
        """Factors of the learning rate by parameter name."""
        return {}

    def init_state(self, model: Model) -> LossState:
        """What the loss depends on besides model and batch, before the first step."""
        return LossState()

    @abstractmethod
    def loss(self, model: Model, batch: Any, state: LossState) -> Loss:
        """The loss of a batch of `build_batches`, as sums over its tokens or images."""

    @abstractmethod
    def validate(self, model: Model, examples: ExampleSet, pairs: PairSet) -> Mapping[str, float]:
        """Validation scores during training."""

    def draw_samples(self, model: Model, pairs: PairSet, count: int) -> list[Sample]:
        """Outputs for the first `count` pairs, to follow a training."""
        result = self.evaluate(model, take_first(pairs, count))
        references = map(" / ".join, result.references)
        sources = map(shorten_path, result.sources) if self.config.reads == "images" else result.sources
        return [Sample(*texts) for texts in zip(sources, result.outputs, references, strict=True)]

    def describe_image(self, model: Model, image: Tensor, config: DecodeConfig) -> ImageDescription:
        """The model's output for one image (1, C, H, W) of bytes."""
        return ImageDescription()

    def get_max_context(self, model: Model) -> int:
        """How many tokens the model sees while it continues a text; 0: all."""
        return 0

    @abstractmethod
    def evaluate(self, model: Model, pairs: PairSet, config: DecodeConfig = GREEDY, language: str = "en") -> Evaluation:
        """Outputs and scores with intervals."""

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        """The scores of outputs as `evaluate` lists them, also of another model; empty where outputs have none."""
        return []


AnyModelTask: TypeAlias = Task[Any, Any, Any, Any]


class TextTask(Task[Settings, Model, Examples, Sequence[Pair]]):
    """Base of tasks on pairs of texts."""

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> TrainingData:
        return PairData(examples, seed, config.tokens_per_batch, config.batch_size)

    def load_test_pairs(self, data: DataConfig) -> Sequence[Pair]:
        data = self.adapt_data(data)
        assert isinstance(data, TextDataConfig)
        corpus = load_corpus(data)
        return truncate_sources(corpus.test or corpus.valid, self.tokenisers.source, data)


def take_first(pairs: PairSet, count: int) -> PairSet:
    """The first `count` pairs, images, chains, episodes or graphs."""
    if isinstance(pairs, Images | Chains | Episodes | Graphs | EpisodeSeeds):
        return pairs.take(range(min(count, len(pairs))))
    return list(islice(pairs, count))


def token_nll(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The negative log-likelihood of each label, (B, T); 0 where the label is the padding."""
    flat = logits.flatten(0, 1).float()  # (B, T, V) -> (B * T, V)
    nll = F.cross_entropy(flat, labels.flatten(), ignore_index=PAD, reduction="none", label_smoothing=label_smoothing)
    return nll.view_as(labels)


@dataclass
class GenerationState(LossState):
    """Whether the model has hard attention; looked up once, since a walk over all modules is slow."""

    reinforce: bool = False

    @classmethod
    def of(cls, model: nn.Module) -> GenerationState:
        return cls(reinforce=any(isinstance(module, HardAttention) for module in model.modules()))


def generation_loss(
    model: nn.Module, *inputs: Tensor, labels: Tensor, label_smoothing: float, state: LossState
) -> Loss:
    """The model's loss; with hard attention, plus the REINFORCE loss of its samples (blocks/attention/hard.py)."""
    if not (model.training and isinstance(state, GenerationState) and state.reinforce):
        return model(*inputs, labels=labels, label_smoothing=label_smoothing)
    with collect("hard") as side:
        logits = model(*inputs)
    nll = token_nll(logits, labels).sum(1)  # (B, T) -> (B,)
    smooth = token_nll(logits, labels, label_smoothing).sum(1)
    counts = (labels != PAD).sum(1)
    rows = reinforce_loss(smooth, side.list_values("hard"), compute_baseline(smooth, counts))
    return Loss(rows.sum(), nll.detach().sum(), counts.sum())
