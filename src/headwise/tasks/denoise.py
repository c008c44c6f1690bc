"""Span corruption: the decoder writes the spans that are missing in a text (Raffel et al. 2020, T5)."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Literal

import numpy as np
from pydantic import Field

from headwise.blocks.evaluation import get_device
from headwise.blocks.losses import Loss
from headwise.data.collate import PairBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.data.spans import SENTINELS, SpanCorruptionBlocks, parse_target
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import Engine, decode
from headwise.decode.generator import Generator
from headwise.decode.hypothesis import Hypothesis
from headwise.errors import UserError
from headwise.evaluate.perplexity import perplexity
from headwise.models.config import ModelConfig
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.tasks.base import (
    Evaluation,
    GenerationState,
    PairData,
    Sample,
    TaskConfig,
    TextTask,
    generation_loss,
    take_first,
)
from headwise.tasks.language_model import LanguageModelTask, take_openings
from headwise.tasks.mask_filling import MASK, FilledMask, encode_masked, sample_fills
from headwise.tasks.transduce import AT_ONCE, compute_nll
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric


class Denoise(TextTask["DenoiseConfig", EncoderDecoder]):
    """Span corruption. Texts are on the target side, as for a language model; the last rows of the vocabulary are the
    sentinels."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return LanguageModelTask.prepare(data, tokeniser)

    @property
    def vocab(self) -> int:
        return self.tokenisers.target.size + SENTINELS

    def build(self, model: ModelConfig) -> EncoderDecoder:
        return model.build(self.vocab, 0, self.config.model_task)

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> SpanCorruptionBlocks:
        return self._spans(examples, seed, config.tokens_per_batch, config.batch_size)

    def _spans(
        self, examples: Examples, seed: int, tokens_per_batch: int = 0, batch_size: int = 0
    ) -> SpanCorruptionBlocks:
        config = self.config
        return SpanCorruptionBlocks(
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

    def init_state(self, model: EncoderDecoder) -> LossState:
        return GenerationState.of(model)

    def loss(self, model: EncoderDecoder, batch: PairBatch, state: LossState) -> Loss:
        smoothing = self.label_smoothing
        return generation_loss(
            model, batch.source, batch.target_in, labels=batch.target_out, label_smoothing=smoothing, state=state
        )

    def validate(self, model: EncoderDecoder, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        nll, counts = self.compute_nll(model, examples)
        return {"nll": float(nll.sum() / counts.sum())}

    def evaluate(
        self, model: EncoderDecoder, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        nll, counts = self.compute_nll(model, Examples.from_rows(tokenise(pairs, self.tokenisers)))
        return Evaluation([], [], [], [perplexity(nll, counts)])

    def compute_nll(self, model: EncoderDecoder, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """Summed negative log-likelihood and number of tokens of each target; the same spans are missing every time."""
        data = self._spans(examples, seed=0)
        starts = data.cut_tiles()
        if not len(starts):
            raise UserError("there is no word in the texts to score; give other texts")
        return compute_nll(model, PairData(data.build_pairs(starts, np.random.default_rng(0)), 0, AT_ONCE))

    def draw_samples(self, model: EncoderDecoder, pairs: Sequence[Pair], count: int) -> list[Sample]:
        """Texts with one word hidden, and the model's prediction of it."""
        texts = take_openings([text for _, text in take_first(pairs, count)], count)
        return sample_fills(texts, self.tokenisers.target, lambda hidden: self.fill_masks(model, hidden, 1))

    def fill_masks(
        self, model: Generator | Engine, texts: Sequence[str], count: int = 5
    ) -> list[list[list[FilledMask]]]:
        """The most probable spans for each mask of each text, by beam search; the probability of a span is the sum over
        the hypotheses that have it."""
        sentinels = range(self.vocab - 1, self.vocab - 1 - SENTINELS, -1)
        rows = [encode_masked(text, self.tokenisers.target, sentinels) for text in texts]
        masks = [text.count(MASK) for text in texts]
        if max(masks, default=0) > SENTINELS:
            raise UserError(f"a text has {max(masks)} times {MASK}, the most is {SENTINELS}; split it")
        beams = min(2 * count, 1024)
        hypotheses = decode(model, rows, GREEDY.replace(beams=beams, nbest=beams), get_device(model))
        return [
            [self._rank_spans(ranked, sentinel)[:count] for sentinel in sentinels[:number]]
            for ranked, number in zip(hypotheses, masks, strict=True)
        ]

    def _rank_spans(self, hypotheses: Sequence[Hypothesis], sentinel: int) -> list[FilledMask]:
        """The parse_target that hypotheses write for one mask, most probable first."""
        probabilities: dict[str, float] = {}
        for hypothesis in hypotheses:
            span = self.tokenisers.target.decode(parse_target(hypothesis.ids, self.vocab).get(sentinel, []))
            probabilities[span] = probabilities.get(span, 0.0) + exp(hypothesis.log_prob)
        return sorted((FilledMask(*item) for item in probabilities.items()), key=lambda fill: -fill.probability)


class DenoiseConfig(TaskConfig):
    """Span corruption: an encoder-decoder writes the missing spans of a text."""

    task_class = Denoise
    writes = "target"
    command = "fill-mask"
    model_of = "transduce"
    unpaired = True
    kind: Literal["denoise"] = "denoise"
    context: int = Field(512, ge=4)  # tokens of a training text, EOS included; longer texts are cut
    noise_density: float = Field(0.15, gt=0, lt=1)  # share of the tokens that are missing
    mean_span: float = Field(3.0, ge=1)  # mean number of tokens of a missing span
