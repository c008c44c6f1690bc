"""Word embeddings (skip-gram and CBOW), scored by how well they rank held-out context words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from headwise.blocks.losses import Loss
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.embeddings.model import WordVectors
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.tasks.base import Evaluation, TaskConfig, TextTask
from headwise.tasks.language_model import LanguageModelTask
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState, Metric

NEGATIVES = 99  # random words that a held-out context word is ranked against


class Embed(TextTask["EmbedConfig", WordVectors]):
    """Word embeddings. Texts are on the target side, as for a language model."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return LanguageModelTask.prepare(data, tokeniser)

    def fit_model(self, model: WordVectors, examples: Examples) -> None:
        model.fit(target for _, target in examples)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("accuracy", lower=False)

    def loss(self, model: WordVectors, batch: Any, state: LossState) -> Loss:
        raise TypeError("word embeddings are trained by the model's `fit`, not by batches")

    def validate(self, model: WordVectors, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        wins, counts = rank_contexts(model, examples)
        return {"accuracy": 100 * float(wins.sum() / counts.sum())}

    def evaluate(
        self, model: WordVectors, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """How often a true context word beats a random one, and its mean rank among `NEGATIVES` random ones."""
        statistics = np.column_stack(rank_contexts(model, Examples.from_rows(tokenise(pairs, self.tokenisers))))
        detail = f"{int(statistics[:, 1].sum()):,} pairs against {NEGATIVES} random words each"

        def accuracy(sums: np.ndarray) -> np.ndarray:
            return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)

        def rank(sums: np.ndarray) -> np.ndarray:
            return 1 + NEGATIVES * (1 - accuracy(sums) / 100)

        total = statistics.sum(0, keepdims=True)
        named = (("accuracy", accuracy, "%"), ("mean rank", rank, ""))
        scores = [
            Score(name, float(score(total)[0]), *bootstrap_interval(statistics, score), detail, unit)
            for name, score, unit in named
        ]
        return Evaluation([], [], [], scores)


def rank_contexts(model: WordVectors, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Wins and pairs of each row of words (see `WordVectors.rank_contexts`)."""
    wins, counts = model.rank_contexts((target for _, target in examples), NEGATIVES)
    if not counts.sum():
        raise UserError("the held-out text has no two known words near each other; give more text to validate on")
    return wins, counts


class EmbedConfig(TaskConfig):
    """Word embeddings: a vector for each word."""

    task_class = Embed
    command = "embed"
    unpaired = True
    kind: Literal["embed"] = "embed"
