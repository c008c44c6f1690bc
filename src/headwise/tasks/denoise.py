"""Span corruption: what is missing in a text is written by a decoder (Raffel et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any, Literal

import numpy as np
from pydantic import Field
from torch import nn

from headwise.blocks.evaluation import get_device
from headwise.blocks.heads import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.data.spans import SENTINELS, Spans, spans
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.hypothesis import Hypothesis
from headwise.errors import UserError
from headwise.evaluate.perplexity import perplexity
from headwise.models.config import ModelConfig
from headwise.tasks.base import Evaluation, GenerationState, PairData, Sample, Task, TaskConfig, first, generation_loss
from headwise.tasks.language_model import LanguageModelTask, beginnings
from headwise.tasks.mask_filling import MASK, FilledMask, fill_masks, masked_ids
from headwise.tasks.transduce import AT_ONCE, likelihoods
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric


class Denoise(Task["DenoiseConfig"]):
    """Texts on the target side, as for a language model. The last rows of the vocabulary are the sentinels."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return LanguageModelTask.prepare(data, tokeniser)

    @property
    def vocab(self) -> int:
        return self.tokenisers.target.size + SENTINELS

    def build(self, model: ModelConfig) -> nn.Module:
        return model.build(self.vocab, 0, self.config.shape)

    def data(self, examples: Examples, seed: int, config: TrainConfig) -> Spans:
        return self._spans(examples, seed, config.tokens_per_batch, config.batch_size)

    def _spans(self, examples: Examples, seed: int, tokens_per_batch: int = 0, batch_size: int = 0) -> Spans:
        config = self.config
        return Spans(
            examples,
            config.context,
            self.vocab,
            config.noise_density,
            config.mean_span,
            seed,
            tokens_per_batch,
            batch_size,
        )

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("nll", lower=True)

    def init_state(self, model: nn.Module) -> LossState:
        return GenerationState.of(model)

    def loss(self, model: nn.Module, batch: PairBatch, state: LossState) -> Loss:
        smoothing = self.label_smoothing
        return generation_loss(
            model, batch.source, batch.target_in, labels=batch.target_out, label_smoothing=smoothing, state=state
        )

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        nll, counts = self.likelihoods(model, examples)
        return {"nll": float(nll.sum() / counts.sum())}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        nll, counts = self.likelihoods(model, Examples.of(tokenise(pairs, self.tokenisers)))
        return Evaluation([], [], [], [perplexity(nll, counts)])

    def likelihoods(self, model: nn.Module, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """Summed negative log-likelihood and number of tokens of each target; the same spans are missing every time."""
        data = self._spans(examples, seed=0)
        starts = data.tiles()
        if not len(starts):
            raise UserError("there is no word in the texts to score; give other texts")
        return likelihoods(model, PairData(data.pairs(starts, np.random.default_rng(0)), 0, AT_ONCE))

    def samples(self, model: Any, pairs: Any, count: int) -> list[Sample]:
        """A word of each text is hidden, and guessed."""
        texts = beginnings([text for _, text in first(pairs, count)], count)
        return fill_masks(texts, self.tokenisers.target, lambda hidden: self.fill_masks(model, hidden, 1))

    def fill_masks(self, model: Any, texts: Sequence[str], count: int = 5) -> list[list[list[FilledMask]]]:
        """The most probable spans for each mask of each text, among the best outputs of a beam search; a span's
        probability is the sum of theirs."""
        sentinels = range(self.vocab - 1, self.vocab - 1 - SENTINELS, -1)
        rows = [masked_ids(text, self.tokenisers.target, sentinels) for text in texts]
        masks = [text.count(MASK) for text in texts]
        if max(masks, default=0) > SENTINELS:
            raise UserError(f"there are {max(masks)} times {MASK} in a text, and {SENTINELS} at most can be told apart")
        beams = min(2 * count, 1024)
        found = decode(model, rows, GREEDY.replace(beams=beams, nbest=beams), get_device(model))
        return [
            [self._ways(own, sentinel)[:count] for sentinel in sentinels[:many]]
            for own, many in zip(found, masks, strict=True)
        ]

    def _ways(self, found: Sequence[Hypothesis], sentinel: int) -> list[FilledMask]:
        ways: dict[str, float] = {}
        for each in found:
            span = self.tokenisers.target.decode(spans(each.ids, self.vocab).get(sentinel, []))
            ways[span] = ways.get(span, 0.0) + exp(each.log_prob)
        return sorted((FilledMask(*way) for way in ways.items()), key=lambda way: -way.probability)


class DenoiseConfig(TaskConfig):
    """Learn to write what is missing in a text, by an encoder and a decoder."""

    task_class = Denoise
    writes = "target"
    command = "fill-mask"
    needs = "transduce"
    unpaired = True
    kind: Literal["denoise"] = "denoise"
    context: int = Field(512, ge=4)  # tokens that are read at once, the end mark included; longer texts are cut
    noise_density: float = Field(0.15, gt=0, lt=1)  # of the tokens, missing
    mean_span: float = Field(3.0, ge=1)  # tokens that are missing in a row, in the mean
