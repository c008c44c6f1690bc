"""What every task can do: prepare data, build a model for it, turn batches into losses and outputs into scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.hard import HardAttention, others, reinforce_loss
from headwise.blocks.heads import Loss
from headwise.blocks.record import collect
from headwise.config.base import Config
from headwise.config.model import ModelConfig
from headwise.data.batches import Batches
from headwise.data.collate import PairBatch, collate
from headwise.data.config import TokeniserConfig
from headwise.data.corpora import load_corpus
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import eval_mode as unmoved
from headwise.evaluate.score import Score
from headwise.text import PAD
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import Metric


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


class Task(ABC):
    """Knows data and scores, not what kind of model learns them. What its data, examples and pairs are is its own
    matter: pairs of texts, or images."""

    kind: ClassVar[str]

    def __init__(self, config: Config, tokenisers: Tokenisers, label_smoothing: float = 0.0):
        self.config: Any = config
        self.tokenisers, self.label_smoothing = tokenisers, label_smoothing

    @classmethod
    def prepare(cls, data: Any, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        """Read and tokenise the data; tokenisers that exist already are kept."""
        return prepare(data, tokeniser)

    def build(self, model: ModelConfig) -> nn.Module:
        """The model for this task and these vocabularies."""
        outputs = 0 if self.tokenisers.shared else self.tokenisers.target.size
        return model.build(self.tokenisers.source.size, outputs, self.kind)

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

    def held_out(self, data: Any) -> Any:
        """The data's test part, or their validation part where there is none."""
        corpus = load_corpus(data)
        return list(corpus.test or corpus.valid)

    def prepare_model(self, model: Any, examples: Any) -> None:
        """Let a model without gradients learn: one pass over the examples."""
        model.fit(examples)

    @property
    @abstractmethod
    def checkpoint_metric(self) -> Metric:
        """The score that decides which checkpoint is best."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Loss:
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

    def max_context(self, model: nn.Module) -> int:
        """How many tokens a model has in sight while it goes on with a text; 0: all."""
        return 0

    @abstractmethod
    def evaluate(self, model: Any, pairs: Any, config: DecodeConfig = GREEDY, language: str = "en") -> Evaluation:
        """Outputs and scores with intervals."""


def first(pairs: Any, count: int) -> Any:
    """The first of pairs, or of images."""
    return pairs.take(range(min(count, len(pairs)))) if hasattr(pairs, "take") else list(islice(pairs, count))


def get_device(model: Any) -> torch.device:
    """Where a model's weights are; engines without weights in torch run on the CPU."""
    if isinstance(model, nn.Module):
        for tensor in chain(model.parameters(), model.buffers()):
            return tensor.device
    return torch.device("cpu")


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the model is as it was."""
    with unmoved(model), torch.inference_mode():
        yield


def per_token(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The negative log-likelihood of each label, (B, T); 0 where the label is the padding."""
    flat, given = logits.flatten(0, 1).float(), labels.flatten()  # (B, T, V) -> (B * T, V)
    each = F.cross_entropy(flat, given, ignore_index=PAD, reduction="none", label_smoothing=label_smoothing)
    return each.view_as(labels)


def learn(model: nn.Module, *inputs: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Loss:
    """The model's loss. Where it makes hard choices, with REINFORCE's gradient for them (blocks/attention/hard.py)."""
    if not (model.training and any(isinstance(module, HardAttention) for module in model.modules())):
        return model(*inputs, labels=labels, label_smoothing=label_smoothing)
    with collect("hard") as side:
        logits = model(*inputs)
    nll = per_token(logits, labels).sum(1)  # (B, T) -> (B,)
    smooth = per_token(logits, labels, label_smoothing).sum(1)
    counts = (labels != PAD).sum(1)
    rows = reinforce_loss(smooth, side.all("hard"), others(smooth, counts))
    return Loss(rows.sum(), nll.detach().sum(), counts.sum())
