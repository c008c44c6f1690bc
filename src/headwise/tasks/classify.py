"""Classification: one label for a text, such as its sentiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError, nearest
from headwise.evaluate.agreement import f1_of, matthews
from headwise.evaluate.labels import Labels, accuracy_by_text, confusion, macro_f1
from headwise.evaluate.score import Score
from headwise.tasks.base import Evaluation, Task, TaskConfig
from headwise.tasks.tag import batch_texts
from headwise.text import EOS, UNK
from headwise.text.config import LabelsConfig, TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

Scorer = Callable[[Labels, Labels, int], Score]  # outputs, references, resamples


def scorer(name: str) -> Scorer:
    """A score of single labels by its name.

    >>> scorer("f1-of:yes")([["yes"], ["no"]], [["yes"], ["yes"]], 0).value.__round__(2)
    66.67
    """
    if name.startswith("f1-of:"):
        label = name.removeprefix("f1-of:")
        return lambda outputs, references, resamples: f1_of(label, single(outputs), single(references), resamples)
    if name not in SCORES:
        raise UserError(f"task.scores: there is no '{name}'; {nearest(name, [*SCORES, 'f1-of:LABEL'])}")
    return SCORES[name]


def single(labels: Labels) -> list[str]:
    return [label for (label,) in labels]


SCORES: dict[str, Scorer] = {
    "accuracy": accuracy_by_text,
    "f1": macro_f1,
    "matthews": lambda outputs, references, resamples: matthews(single(outputs), single(references), resamples),
}


class Classify(Task["ClassifyConfig"]):
    """Texts and their labels."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            return prepare(data, tokeniser.replace(shared=False, target=LabelsConfig(), pairs=True))
        return prepare(data, tokeniser.paired())

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric(self.config.scores[0], lower=False)

    def data(self, examples: Examples, seed: int, config: TrainConfig) -> Any:
        self._check_single("learnt")
        return super().data(examples, seed, config)

    def _check_single(self, done: str) -> None:
        """Refuse a model that gives each label a probability of its own, where a text has exactly one label."""
        if self.config.function != "softmax":
            raise UserError(
                f"task.function: labels that do not exclude each other cannot be {done} here, where each text has one; "
                "`classify` gives their probabilities"
            )

    def loss(self, model: nn.Module, batch: PairBatch, state: LossState) -> Loss:
        return model(batch.source, labels=batch.target_out[:, 0], label_smoothing=self.label_smoothing)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        outputs = [[best(found)] for found in self.predict_probabilities(model, [text for text, _ in pairs])]
        chosen = self.config.scores
        return {name: scorer(name)(outputs, self.references(pairs), 0).value for name in chosen}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        self._check_single("scored")
        sources = [text for text, _ in pairs]
        references = self.references(pairs)
        outputs = [[best(found)] for found in self.predict_probabilities(model, sources)]
        names, counts = confusion(outputs, references)
        scores = [scorer(name)(outputs, references, 1000) for name in self.config.scores]
        return Evaluation(sources, [label for (label,) in outputs], references, scores, names, counts)

    def references(self, pairs: Sequence[Pair]) -> list[list[str]]:
        normalise = self.tokenisers.target.normalise  # a model that never saw a capital is not asked for one
        return [[" ".join(normalise(label).split())] for _, label in pairs]

    def predict_probabilities(self, model: Any, texts: Sequence[str], tokens: int = 8192) -> list[dict[str, float]]:
        """The probability of each label for each text: they sum to 1, or each stands for itself (`function`)."""
        names = self.tokenisers.target.vocabulary[UNK + 1 :]
        found: list[dict[str, float]] = [{} for _ in texts]
        device = get_device(model)
        rows = [[*ids, EOS] for ids in self.tokenisers.source.encode_batch(texts)]
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens):
                logits = model(ids.to(device))[:, UNK + 1 :].float()  # special tokens are no labels
                probabilities = logits.sigmoid() if self.config.function == "sigmoid" else logits.softmax(-1)
                for number, row in zip(numbers, probabilities.tolist(), strict=True):
                    found[number] = dict(zip(names, row, strict=True))
        return found


def best(found: dict[str, float]) -> str:
    return max(found, key=found.__getitem__)


class ClassifyConfig(TaskConfig):
    """Learn a label for each text, or for each two. `scores` says what is told of it; the first one chooses the best
    checkpoint, `f1-of` is F1 of one label: f1-of:1."""

    task_class = Classify
    labelled = True
    confusion = True
    command = "classify"
    kind: Literal["classify"] = "classify"
    scores: tuple[str, ...] = ("accuracy", "f1")
    # From logits to probabilities. sigmoid: each label by itself, so that a text has any number of them (multi-label);
    # only models from elsewhere have it.
    function: Literal["softmax", "sigmoid"] = "softmax"
