"""Baselines: what anyone would try first on the same data. A task names its own in `TaskConfig.baselines`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headwise.autofit.bag_of_words import (
    MAX_TEXTS,
    TfIdf,
    find_nearest,
    fit_linear,
    split_character_trigrams,
)
from headwise.data.corpora import load_corpus
from headwise.data.texts import Pair
from headwise.evaluate.average_precision import average_precision
from headwise.evaluate.score import Score
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.models.ngram import NgramConfig
from headwise.tasks.base import Evaluation
from headwise.tasks.caption import stack_pixels
from headwise.tasks.detect import Detect
from headwise.tasks.regress import parse_number
from headwise.text.paired import SEPARATOR
from headwise.vision.boxes import Boxes, Detections
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images
from headwise.vision.images import Images

Predict = Callable[[Sequence[Pair], Sequence[str]], list[str]]  # training pairs, sources -> outputs
PredictImages = Callable[[Images, np.ndarray], list[str]]  # training images, pixels (N, C, H, W) -> outputs
MAX_PAIRS = 100_000  # training pairs of a nearest-neighbour search, at most
MAX_IMAGES = 20_000
SIDE = 16  # pixels of a side to which images are averaged before they are compared
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class BaselineResult:
    """The scores of a baseline on the test examples."""

    name: str
    scores: list[Score]


def predict_majority(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The most frequent label, for every text."""
    (label, _), *_ = Counter(target for _, target in train).most_common(1)
    return [label] * len(sources)


def predict_mean(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The mean of all numbers, for every text."""
    mean = np.mean([parse_number(target) for _, target in train])
    return [f"{mean:.6g}"] * len(sources)


def classify_bags(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """Logistic regression on TF-IDF features of words and bigrams."""
    train = train[:MAX_TEXTS]
    labels = sorted({target for _, target in train})
    if len(labels) < 2:
        return predict_majority(train, sources)
    numbers = {label: number for number, label in enumerate(labels)}
    model = TfIdf([source for source, _ in train])
    targets = torch.tensor([numbers[target] for _, target in train])
    table, bias = fit_linear(model.transform(source for source, _ in train), targets)
    return [labels[number] for number in (torch.sparse.mm(model.transform(sources), table) + bias).argmax(1).tolist()]


def regress_bags(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """Ridge regression on TF-IDF features of words and bigrams."""
    train = train[:MAX_TEXTS]
    model = TfIdf([source for source, _ in train])
    values = torch.tensor([[parse_number(target)] for _, target in train], dtype=torch.float64)
    scale = float(values.std()) or 1.0
    features = model.transform(source for source, _ in train)
    table, bias = fit_linear(features, (values - values.mean()) / scale)
    predictions = (torch.sparse.mm(model.transform(sources), table) + bias) * scale + values.mean()
    return [f"{value:.6g}" for value in predictions[:, 0].tolist()]


def copy_nearest(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The target of the most similar training source, by letter trigrams."""
    train = train[:MAX_PAIRS]
    nearest = find_nearest([source for source, _ in train], sources, split_character_trigrams)
    return [train[number][1] for number in nearest]


def tag_most_frequent(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The most frequent tag of each word; unknown words have the most frequent tag of words that occur once."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in train:
        for word, tag in zip(source.split(), target.split(), strict=True):
            counts[word][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    once = Counter(tag for tags in counts.values() if tags.total() == 1 for tag in tags)
    rare = (once or sum(counts.values(), Counter())).most_common(1)[0][0]
    return [" ".join(best.get(word, rare) for word in source.split()) for source in sources]


def answer_by_overlap(train: Sequence[Pair], sources: Sequence[str]) -> list[str]:
    """The sentence that shares most words with the question."""
    answers = []
    for source in sources:
        question, _, text = source.partition(SEPARATOR)
        asked = set(re.findall(r"\w+", question.lower()))
        sentences = _SENTENCE_END.split(text)
        answers.append(max(sentences, key=lambda sentence: len(asked & set(re.findall(r"\w+", sentence.lower())))))
    return answers


def predict_image_majority(train: Images, pixels: np.ndarray) -> list[str]:
    """The most frequent label, for every image."""
    (label, _), *_ = Counter(map(str, train.targets)).most_common(1)
    return [label] * len(pixels)


def copy_nearest_image(train: Images, pixels: np.ndarray) -> list[str]:
    """The label or caption of the nearest training image, by the distance of small copies."""
    known, queries = (torch.from_numpy(_shrink(part)) for part in (train.pixels[:MAX_IMAGES], pixels))
    nearest = [int(number) for chunk in queries.split(256) for number in torch.cdist(chunk, known).argmin(1)]
    return [str(train.targets[number]) for number in nearest]


def _shrink(pixels: np.ndarray) -> np.ndarray:
    """Images (N, C, H, W) averaged to at most `SIDE` pixels a side, as rows of floats."""
    images = torch.from_numpy(np.asarray(pixels, np.float32))  # a copy: a mapped file is read-only
    small = torch.nn.functional.adaptive_avg_pool2d(images, (min(SIDE, images.shape[2]), min(SIDE, images.shape[3])))
    return small.flatten(1).numpy()


TEXT_BASELINES: dict[str, Predict] = {
    "majority": predict_majority,
    "mean": predict_mean,
    "bag of words": classify_bags,
    "bag of words (ridge)": regress_bags,
    "nearest neighbour": copy_nearest,
    "most frequent tag": tag_most_frequent,
    "best sentence": answer_by_overlap,
}
IMAGE_BASELINES: dict[str, PredictImages] = {
    "majority": predict_image_majority,
    "nearest neighbour": copy_nearest_image,
}
NGRAM = "n-gram"  # a language model of its own: Kneser-Ney on the same tokens
MEAN_BOXES = "mean boxes"


def score_baselines(trained: TrainedModel, evaluation: Evaluation) -> list[BaselineResult]:
    """The baselines that the run's task names, on the same test examples and by the same scores."""
    experiment, task = trained.experiment, trained.task
    names = experiment.task.baselines
    if not names:
        return []
    if NGRAM in names:
        return [BaselineResult(NGRAM, score_ngram(trained))]
    if isinstance(trained.data, ImagesConfig):
        train, test = load_images(trained.data).train, task.load_test_pairs(trained.data)
        if isinstance(task, Detect):
            return [BaselineResult(MEAN_BOXES, score_mean_boxes(train, test, task.config.sides))]
        pixels = test.pixels if isinstance(test, Images) else stack_pixels(evaluation.sources)
        outputs = {name: IMAGE_BASELINES[name](train, pixels) for name in names}
    else:
        pairs = list(load_corpus(task.adapt_data(trained.data)).train)  # the split of training
        outputs = {name: TEXT_BASELINES[name](pairs, evaluation.sources) for name in names}
    return [BaselineResult(name, task.score_outputs(texts, evaluation.references)) for name, texts in outputs.items()]


def score_mean_boxes(train: Images[Boxes], test: Images[Boxes], sides: tuple[float, float]) -> list[Score]:
    """Average precision of the mean box of each class in every image, scored by how frequent the class is."""
    corners: dict[str, list[np.ndarray]] = defaultdict(list)
    for boxes in train.targets:
        for label, corner in zip(boxes.labels, boxes.corners, strict=True):
            corners[label].append(corner)
    total = sum(map(len, corners.values()))
    labels = sorted(corners, key=lambda label: -len(corners[label]))
    means = np.array([np.mean(corners[label], axis=0) for label in labels]).reshape(-1, 4)
    scores = np.array([len(corners[label]) / max(total, 1) for label in labels])
    detections = [Detections(means, tuple(labels), scores)] * len(test)
    return average_precision(detections, test.targets, resamples=200, sides=sides)


def score_ngram(trained: TrainedModel, order: int = 5) -> list[Score]:
    """Perplexity of an interpolated Kneser-Ney model with the run's tokeniser."""
    experiment: Experiment = trained.experiment
    task = trained.task
    prepared = experiment.task.task_class.prepare(trained.data, trained.tokenisers)
    model = task.build(NgramConfig(order=order))
    task.fit_model(model, prepared.train)
    return task.evaluate(model, task.load_test_pairs(trained.data)).scores
