"""n-gram language models (Shannon 1948; smoothed as in Jelinek and Mercer 1980, Kneser and Ney 1995)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from headwise.config.base import Config, Table, slot
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.ngram.backoff import Backoff, NgramTable
from headwise.ngram.model import Ngram
from headwise.ngram.smooth import AddK, JelinekMercer, KneserNey, Smoothing

SMOOTHINGS = Table("smoothing", default="kneser-ney")

if TYPE_CHECKING:
    AnySmoothing: TypeAlias = Any
else:
    AnySmoothing = slot(SMOOTHINGS)


@SMOOTHINGS.add
class KneserNeyConfig(Config):
    kind: Literal["kneser-ney"] = "kneser-ney"
    modified: bool = False  # three discounts for each order instead of one (Chen and Goodman 1999)

    def build(self) -> Smoothing:
        return KneserNey(self.modified)


@SMOOTHINGS.add
class JelinekMercerConfig(Config):
    kind: Literal["jelinek-mercer"] = "jelinek-mercer"
    weight: float = Field(0.7, ge=0, lt=1)  # interpolation weight of the longer context

    def build(self) -> Smoothing:
        return JelinekMercer(self.weight)


@SMOOTHINGS.add
class AddKConfig(Config):
    kind: Literal["add-k"] = "add-k"
    k: float = Field(1.0, gt=0)

    def build(self) -> Smoothing:
        return AddK(self.k)


@SMOOTHINGS.add
class NoSmoothingConfig(Config):
    """Maximum likelihood: unseen n-grams have probability 0."""

    kind: Literal["none"] = "none"

    def build(self) -> Smoothing:
        return AddK(0.0)


class NgramConfig(ModelConfig):
    """A token depends on the `order` - 1 tokens before it."""

    kind: Literal["ngram"] = "ngram"
    tasks: ClassVar[tuple[str, ...]] = ("language-model",)
    order: int = Field(5, ge=1)
    smoothing: AnySmoothing = KneserNeyConfig()

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Ngram:
        self.resolve_task(task)
        return Ngram(self.order, vocab, self.smoothing.build())


class BackoffConfig(ModelConfig):
    """A back-off model estimated by another program, as `headwise import FILE.arpa RUN` imports it."""

    kind: Literal["backoff"] = "backoff"
    tasks: ClassVar[tuple[str, ...]] = ("language-model",)
    order: int = Field(3, ge=1)

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Backoff:
        self.resolve_task(task)
        return Backoff([NgramTable.empty(vocab) for _ in range(self.order)], vocab)


SIZES: dict[str, dict[str, Any]] = {"fivegram": {}, "trigram": {"order": 3}, "tiny": {"order": 2}}

ENTRY = Entry(
    name="ngram",
    paper="Shannon, A Mathematical Theory of Communication; Kneser and Ney 1995",
    year=1948,
    family="counts",
    config=NgramConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(
        Check(
            "nltk.lm: MLE, Lidstone",
            "tests/ngram/test_ngram.py::test_maximum_likelihood_and_add_k_are_those_of_nltk",
            "nltk",
        ),
        Check(
            "nltk.lm: interpolated Kneser-Ney with estimated discounts",
            "tests/ngram/test_ngram.py::test_kneser_ney_is_that_of_nltk_with_its_discounts_estimated",
            "nltk",
        ),
    ),
)
