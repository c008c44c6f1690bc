"""Word vectors with negative sampling: skip-gram and CBOW (Mikolov et al. 2013, "Efficient Estimation of Word
Representations" and "Distributed Representations of Words")."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from headwise.embeddings.model import ContinuousBagOfWords, SkipGram
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry


class WordVectorConfig(ModelConfig):
    """Settings of word vectors that are trained with negative sampling."""

    tasks: ClassVar[tuple[str, ...]] = ("embed",)
    width: int = Field(100, ge=1)
    window: int = Field(5, ge=1)  # largest context on each side; each word draws its own from 1 to this
    negatives: int = Field(5, ge=1)  # negative samples for each pair
    power: float = Field(0.75, ge=0)  # negatives are drawn in proportion to count ** power
    subsample: float = Field(1e-4, ge=0)  # words of a higher relative frequency are subsampled; 0: none
    epochs: int = Field(5, ge=1)
    lr: float = Field(0.1, gt=0)  # of Adagrad, with linear decay to 0


class SkipGramConfig(WordVectorConfig):
    """Word vectors trained to tell the words of their context from random negatives."""

    kind: Literal["skipgram"] = "skipgram"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> SkipGram:
        self.resolve_task(task)
        return SkipGram(vocab, self)


class CbowConfig(WordVectorConfig):
    """Word vectors whose mean over a context is trained to tell the word from random negatives."""

    kind: Literal["cbow"] = "cbow"

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> ContinuousBagOfWords:
        self.resolve_task(task)
        return ContinuousBagOfWords(vocab, self)


SIZES: dict[str, dict[str, Any]] = {"base": {}, "large": {"width": 300}, "tiny": {"width": 16, "window": 2}}

SKIPGRAM_ENTRY = Entry(
    name="skipgram",
    paper="Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality",
    year=2013,
    family="vectors",
    config=SkipGramConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(
        Check(
            "the loss in closed form",
            "tests/embeddings/test_skipgram.py::test_loss_and_slopes_are_those_of_equation_4",
        ),
    ),
)

CBOW_ENTRY = Entry(
    name="cbow",
    paper="Mikolov et al., Efficient Estimation of Word Representations in Vector Space",
    year=2013,
    family="vectors",
    config=CbowConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(
        Check("the loss by autograd", "tests/embeddings/test_cbow.py::test_a_step_follows_the_gradient_of_the_loss"),
    ),
)
