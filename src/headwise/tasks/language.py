"""Language modelling: the next token of a text, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from headwise.blocks.heads import Loss
from headwise.config.data import DataConfig, TokeniserConfig
from headwise.config.decode import GREEDY, DecodeConfig
from headwise.config.train import TrainConfig
from headwise.data.blocks import Blocks, TextBatch
from headwise.data.examples import Examples, tokenise
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.errors import UserError
from headwise.evaluate.perplexity import nats_per_character, perplexity
from headwise.tasks.base import Evaluation, Task, by_token, device_of, evaluating
from headwise.text import PAD
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import Watch

UNLIMITED = 2**62  # tokens: documents are cut into blocks, not left out


class Language(Task):
    """Texts on the target side; there is no source."""

    kind = "language-model"

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            if tokeniser.target.kind != "same":
                raise UserError("tokeniser.target: a language model has one side; leave it out")
            tokeniser = tokeniser.changed(shared=True)
        return prepare(data.changed(max_length=UNLIMITED), tokeniser)

    def data(self, examples: Examples, seed: int, config: TrainConfig) -> Blocks:
        return Blocks(examples, self.config.context, seed, config.tokens_per_batch, config.batch_size)

    def teach(self, model: Any, examples: Examples) -> None:
        model.fit(target for _, target in examples)

    @property
    def watch(self) -> Watch:
        return Watch("nll", lower=True)

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        return model(batch.ids, labels=batch.labels, smoothing=self.smoothing)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        nll, counts = self.likelihoods(model, examples, stride=self.config.context)
        return {"nll": float(nll.sum() / counts.sum())}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Each token is predicted from at least half of the context, where the text has as much."""
        examples = Examples.of(tokenise(pairs, self.tokenisers))
        nll, counts = self.likelihoods(model, examples, stride=max(self.config.context // 2, 1))
        normalise = self.tokenisers.target.normalise
        characters = sum(len(normalise(text)) for _, text in pairs)
        scores = [perplexity(nll, counts), nats_per_character(nll, counts, characters)]
        return Evaluation([], [], [], scores)

    def likelihoods(self, model: nn.Module, examples: Examples, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Summed negative log-likelihood and number of tokens of each block."""
        blocks = Blocks(examples, self.config.context)
        starts, firsts = blocks.windows(stride)
        device = device_of(model)
        nll, counts = np.zeros(len(starts)), np.zeros(len(starts))
        # A batch's logits have about 64 MB, whatever the vocabulary.
        rows = max(1, 2**24 // (self.tokenisers.target.size * self.config.context))
        with evaluating(model):
            for first in range(0, len(starts), rows):
                here = slice(first, first + rows)
                batch = blocks.batch(starts[here])
                labels = batch.labels
                labels[np.arange(labels.shape[1]) < firsts[here, None]] = PAD
                batch = batch.to(device)
                nll[here] = losses(model, batch).sum(1).cpu().numpy()
                counts[here] = (labels != PAD).sum(1).numpy()
        return nll, counts


def losses(model: Any, batch: TextBatch) -> Tensor:
    """The negative log-likelihood of each token, (B, T); a model that looks them up is asked for these alone."""
    if hasattr(model, "score"):
        found = -model.score(model.contexts(batch.ids), batch.labels)
        return found.masked_fill(batch.labels == PAD, 0.0)
    return by_token(model(batch.ids), batch.labels)
