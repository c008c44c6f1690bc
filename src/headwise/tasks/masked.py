"""Masked language modelling and next-sentence prediction (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.blocks.stream import Context, Stream
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.masking import MaskedBatch, MaskedBlocks
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.data.structural import StructuralBlocks
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.accuracy import accuracy
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.perplexity import perplexity
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.tasks.base import Evaluation, Sample, TaskConfig, TextTask, take_first
from headwise.tasks.language_model import LanguageModelTask, take_openings
from headwise.tasks.mask_filling import FilledMask, encode_masked, sample_fills
from headwise.tasks.tag import batch_texts
from headwise.text import EOS
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric


@dataclass(frozen=True)
class MaskedSums:
    """Sums over the masked words of each of N texts."""

    nll: np.ndarray  # (N,)
    right: np.ndarray  # (N,) words predicted correctly
    counts: np.ndarray  # (N,)
    next_sentence: np.ndarray  # (N, 2) predicted and true, 1 where the second text does not follow; or (0, 2)


class Masked(TextTask["MaskedConfig", MaskedLanguageModel]):
    """Masked language modelling. Texts are on the target side, as for a language model."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return LanguageModelTask.prepare(data, tokeniser)

    def build(self, model: ModelConfig) -> MaskedLanguageModel:
        vocab = self.tokenisers.target.size + 1  # the last row is the mask
        classes = 3 if self.config.sentence_structure else 0
        built: MaskedLanguageModel = model.build(vocab, classes, self.config.model_task)
        wants_pairs = self.config.next_sentence is True or self.config.sentence_structure
        if wants_pairs and isinstance(built.next_sentence_head, nn.Identity):
            raise UserError(
                f"task.next_sentence: '{model.kind}' has no token types for two texts; set model.token_types = 2"
            )
        return built

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> MaskedBlocks:
        return self._masking(examples, seed, config.tokens_per_batch, config.batch_size)

    def _masking(self, examples: Examples, seed: int, tokens_per_batch: int = 0, batch_size: int = 0) -> MaskedBlocks:
        config, mask = self.config, self.tokenisers.target.size
        pairs = config.next_sentence is True
        kind = StructuralBlocks if config.shuffle_rate or config.sentence_structure else MaskedBlocks
        blocks = kind(examples, config.context, mask, config.mask_rate, pairs, seed, tokens_per_batch, batch_size)
        if isinstance(blocks, StructuralBlocks):
            blocks.shuffle_rate, blocks.both_directions = config.shuffle_rate, config.sentence_structure
        return blocks

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("nll", lower=True)

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch, state: LossState) -> Loss:
        return model(
            batch.ids,
            labels=batch.labels,
            label_smoothing=self.label_smoothing,
            positions=batch.positions,
            next_sentence_labels=batch.next_sentence_labels,
        )

    def validate(self, model: MaskedLanguageModel, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        sums = self.sum_masked(model, examples)
        total = sums.counts.sum()
        scores = {"nll": float(sums.nll.sum() / total), "accuracy": float(100 * sums.right.sum() / total)}
        if len(sums.next_sentence):
            scores["next_sentence"] = float(100 * (sums.next_sentence[:, 0] == sums.next_sentence[:, 1]).mean())
        return scores

    def evaluate(
        self, model: MaskedLanguageModel, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """The same words are masked at each evaluation; intervals are over blocks."""
        sums = self.sum_masked(model, Examples.from_rows(tokenise(pairs, self.tokenisers)))
        scores = [perplexity(sums.nll, sums.counts), _masked_accuracy(sums)]
        if len(sums.next_sentence):
            predicted, true = sums.next_sentence.T.tolist()
            scores.append(replace(accuracy(predicted, true), name="next sentence"))
        return Evaluation([], [], [], scores)

    def sum_masked(self, model: MaskedLanguageModel, examples: Examples, tokens: int = 4096) -> MaskedSums:
        """Loss and accuracy of each text; which words are masked depends on the examples alone."""
        data = self._masking(examples, seed=0)
        starts = data.cut_tiles()
        if not len(starts):
            raise UserError("there is no word to mask in the texts to score; give other texts")
        rows = max(1, tokens // self.config.context)
        device = get_device(model)
        parts: list[Tensor] = []
        next_sentence: list[Tensor] = []
        with inference_mode(model):
            for first in range(0, len(starts), rows):
                batch = data.batch(starts[first : first + rows]).to(device)
                stream = model.encoder(batch.ids, Context())
                parts.append(_sum_rows(model, stream, batch).cpu())
                if batch.next_sentence_labels is not None:
                    predictions = model.next_sentence_head(stream).argmax(-1)  # (B,)
                    next_sentence.append(torch.stack([predictions, batch.next_sentence_labels], dim=1).cpu())  # (B, 2)
        nll, right, counts = torch.cat(parts).double().numpy().T
        return MaskedSums(
            nll, right, counts, torch.cat(next_sentence).numpy() if next_sentence else np.empty((0, 2), np.int64)
        )

    def draw_samples(self, model: MaskedLanguageModel, pairs: Sequence[Pair], count: int) -> list[Sample]:
        """Texts with one word masked, and the model's prediction of it."""
        texts = take_openings([text for _, text in take_first(pairs, count)], count)
        return sample_fills(texts, self.tokenisers.target, lambda hidden: self.fill_masks(model, hidden, 1))

    def fill_masks(
        self, model: MaskedLanguageModel, texts: Sequence[str], count: int = 5
    ) -> list[list[list[FilledMask]]]:
        """The most probable words for each mask of each text, best first."""
        tokeniser = self.tokenisers.target
        rows = [[*encode_masked(text, tokeniser, repeat(model.mask_id)), EOS] for text in texts]
        fills: list[list[list[FilledMask]]] = [[] for _ in texts]
        device = get_device(model)
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens=8192):
                masks = ids == model.mask_id
                logits = model.predict_masked(ids.to(device), masks.to(device))
                probabilities = torch.softmax(logits.float(), -1)
                probabilities[:, [*tokeniser.special_ids, model.mask_id]] = 0  # special tokens are no words
                best = probabilities.topk(min(count, tokeniser.size - len(tokeniser.special_ids)))
                for row, *top in zip(masks.nonzero()[:, 0].tolist(), *map(Tensor.tolist, best), strict=True):
                    words = [FilledMask(tokeniser.decode([word]), p) for p, word in zip(*top, strict=True)]
                    fills[numbers[row]].append(words)
        return fills


def _sum_rows(model: MaskedLanguageModel, stream: Stream, batch: MaskedBatch) -> Tensor:
    """Negative log-likelihood, right predictions and number of the masked words of each row, (B, 3)."""
    x = model.encoder.drop_prefix(stream).flatten(0, 1)[batch.positions]  # (B, T, C) -> (N, C)
    logits, true = model.head(x).float(), batch.labels.flatten()[batch.positions]
    values = torch.stack(
        [F.cross_entropy(logits, true, reduction="none"), (logits.argmax(-1) == true).float(), torch.ones_like(true)],
        dim=1,
    )
    rows = batch.positions // batch.labels.shape[1]
    return values.new_zeros(len(batch), 3).index_add_(0, rows, values)


def _masked_accuracy(sums: MaskedSums) -> Score:
    statistics = np.column_stack([sums.right, sums.counts])

    def share(sums: np.ndarray) -> np.ndarray:
        return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)

    value = float(share(statistics.sum(axis=0, keepdims=True))[0])
    detail = f"{int(statistics[:, 1].sum())} masked words"
    return Score("accuracy", value, *bootstrap_interval(statistics, share), detail, "%")


class MaskedConfig(TaskConfig):
    """Masked language modelling and, on pairs of texts, next-sentence prediction."""

    task_class = Masked
    divisible = True
    command = "fill-mask"
    unpaired = True
    kind: Literal["masked"] = "masked"
    context: int = Field(128, ge=4)  # tokens of a training text, special tokens included; longer texts are cut
    mask_rate: float = Field(0.15, gt=0, lt=1)  # share of the words that are masked
    next_sentence: bool | Literal["auto"] = "auto"  # auto: where the model has token types and the head
    # StructBERT (Wang et al. 2020): share of the words in shuffled trigrams, whose order is predicted; 0.05 there
    shuffle_rate: float = Field(0.0, ge=0, lt=1)
    sentence_structure: bool = False  # next-sentence prediction with three classes: next, random, previous

    @model_validator(mode="after")
    def _check_structure(self) -> MaskedConfig:
        if self.sentence_structure and self.next_sentence is False:
            raise ValueError("sentence_structure needs pairs of texts; leave out next_sentence = false")
        return self

    def for_model(self, model: ModelConfig) -> MaskedConfig:
        if self.next_sentence != "auto":
            return self
        has_head = getattr(model, "token_types", 0) > 1 and getattr(model, "next_sentence_head", True)
        return self.replace(next_sentence=has_head)
