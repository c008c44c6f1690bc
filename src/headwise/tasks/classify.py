"""Sequence classification: one label for a text, such as its sentiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig, TextDataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError, nearest
from headwise.evaluate.agreement import label_f1, matthews
from headwise.evaluate.labels import Labels, accuracy_by_text, confusion_matrix, macro_f1
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.text_classifier import SequenceClassifier
from headwise.tasks.auxiliary_loss import AuxiliaryFields, add_auxiliary, build_classifier
from headwise.tasks.base import Evaluation, TextTask, TrainingData
from headwise.tasks.tag import batch_texts, encode_texts
from headwise.text import UNK
from headwise.text.config import LabelsConfig, TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

Scorer = Callable[[Labels, Labels, int], Score]  # outputs, references, resamples


def find_scorer(name: str) -> Scorer:
    """The score of single labels that `task.scores` names.

    >>> find_scorer("f1-of:yes")([["yes"], ["no"]], [["yes"], ["yes"]], 0).value.__round__(2)
    66.67
    """
    if name.startswith("f1-of:"):
        label = name.removeprefix("f1-of:")
        return lambda outputs, references, resamples: label_f1(label, unwrap(outputs), unwrap(references), resamples)
    if name not in SCORES:
        raise UserError(f"task.scores: there is no '{name}'; {nearest(name, [*SCORES, 'f1-of:LABEL'])}")
    return SCORES[name]


def unwrap(labels: Labels) -> list[str]:
    """The labels of texts that have one each."""
    return [label for (label,) in labels]


SCORES: dict[str, Scorer] = {
    "accuracy": accuracy_by_text,
    "f1": macro_f1,
    "matthews": lambda outputs, references, resamples: matthews(unwrap(outputs), unwrap(references), resamples),
}


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": Tensor.sigmoid,
    "none": lambda logits: logits,
}


class Classify(TextTask["ClassifyConfig", SequenceClassifier]):
    """Sequence classification: sources are texts, targets their labels."""

    @classmethod
    def adapt_data(cls, data: DataConfig) -> DataConfig:
        assert isinstance(data, TextDataConfig)
        return data.replace(stratify=True) if data.stratify == "auto" else data

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return prepare_labelled(cls.adapt_data(data), tokeniser)

    def build(self, model: ModelConfig) -> SequenceClassifier:
        outputs = 0 if self.tokenisers.shared else self.tokenisers.target.size
        return build_classifier(self.config, model, self.tokenisers.source.size, outputs)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric(self.config.scores[0], lower=False)

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> TrainingData:
        self._check_single_label("learnt")
        return super().build_batches(examples, seed, config)

    def _check_single_label(self, done: str) -> None:
        """Refuse a multi-label model and a regression of several numbers: the data have exactly one label for each
        text."""
        if self.config.function != "softmax":
            raise UserError(
                f"task.function: labels that do not exclude each other cannot be {done} here, where each text has one; "
                "`classify` gives the value of each"
            )

    def loss(self, model: SequenceClassifier, batch: PairBatch, state: LossState) -> Loss:
        labels, smoothing = batch.target_out[:, 0], self.label_smoothing
        if not self.config.auxiliary:
            return model(batch.source, labels=labels, label_smoothing=smoothing)
        loss, language_model = model(batch.source, labels=labels, label_smoothing=smoothing, language_model=True)
        return add_auxiliary(loss, language_model, self.config.auxiliary)

    def validate(self, model: SequenceClassifier, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        outputs = [[most_probable(row)] for row in self.predict_probabilities(model, [text for text, _ in pairs])]
        references = self.normalise_labels(pairs)
        return {name: find_scorer(name)(outputs, references, 0).value for name in self.config.scores}

    def evaluate(
        self, model: SequenceClassifier, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        self._check_single_label("scored")
        sources = [text for text, _ in pairs]
        references = self.normalise_labels(pairs)
        outputs = [[most_probable(row)] for row in self.predict_probabilities(model, sources)]
        names, counts = confusion_matrix(outputs, references)
        labels = [label for (label,) in outputs]
        return Evaluation(sources, labels, references, self.score_outputs(labels, references), names, counts)

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        return [find_scorer(name)([[label] for label in outputs], references, resamples) for name in self.config.scores]

    def normalise_labels(self, pairs: Sequence[Pair]) -> list[list[str]]:
        """The label of each pair, normalised as in training."""
        normalise = self.tokenisers.target.normalise
        return [[" ".join(normalise(label).split())] for _, label in pairs]

    def predict_probabilities(
        self, model: SequenceClassifier, texts: Sequence[str], tokens: int = 8192
    ) -> list[dict[str, float]]:
        """The probability of each label for each text, by softmax or, for multi-label models, sigmoid (`function`); the
        numbers of a regression of several."""
        names = self.tokenisers.target.vocabulary[UNK + 1 :]
        by_text: list[dict[str, float]] = [{} for _ in texts]
        device = get_device(model)
        rows = encode_texts(self.tokenisers.source, texts, model.max_length)
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens):
                logits = model(ids.to(device))[:, UNK + 1 :].float()  # special tokens are no labels
                probabilities = FUNCTIONS[self.config.function](logits)
                for number, row in zip(numbers, probabilities.tolist(), strict=True):
                    by_text[number] = dict(zip(names, row, strict=True))
        return by_text


def prepare_labelled(data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
    """Prepare texts or pairs of texts with a label or number each."""
    if isinstance(tokeniser, TokeniserConfig):
        return prepare(data, tokeniser.replace(shared=False, target=LabelsConfig(), pairs=True))
    return prepare(data, tokeniser.accept_pairs())


def most_probable(probabilities: dict[str, float]) -> str:
    return max(probabilities, key=probabilities.__getitem__)


class ClassifyConfig(AuxiliaryFields):
    """Sequence classification: a label for each text or pair of texts. The first of `scores` chooses the best
    checkpoint; `f1-of:LABEL` is F1 of one label, such as f1-of:1."""

    task_class = Classify
    pairs = True
    labelled = True
    confusion = True
    command = "classify"
    fits = "labelled"
    baselines = ("majority", "bag of words")
    kind: Literal["classify"] = "classify"
    scores: tuple[str, ...] = ("accuracy", "f1")
    # From logits to probabilities. For imported models only: sigmoid, multi-label classification; none, a regression of
    # several numbers, whose names are the labels.
    function: Literal["softmax", "sigmoid", "none"] = "softmax"
