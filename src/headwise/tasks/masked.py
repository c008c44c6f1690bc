"""Masked language modelling: hidden words are guessed from both sides, and whether a second text follows the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.blocks.stream import Context, Stream
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.masking import MaskedBatch, Masking
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.accuracy import accuracy
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.perplexity import perplexity
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.tasks.base import Evaluation, Sample, Task, TaskConfig, first
from headwise.tasks.language_model import LanguageModelTask, beginnings
from headwise.tasks.mask_filling import FilledMask, fill_masks, masked_ids
from headwise.tasks.tag import batch_texts
from headwise.text import EOS, PAD, UNK
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric


@dataclass(frozen=True)
class Guesses:
    """What a model made of hidden words: sums for each of N texts."""

    nll: np.ndarray  # (N,)
    right: np.ndarray  # (N,)
    counts: np.ndarray  # (N,)
    follows: np.ndarray  # (N, 2) whether the second text is apart from the first: guessed, true; or (0, 2)


class Masked(Task["MaskedConfig"]):
    """Texts on the target side, as for a language model."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return LanguageModelTask.prepare(data, tokeniser)

    def build(self, model: ModelConfig) -> nn.Module:
        built = model.build(self.tokenisers.target.size + 1, 0, self.config.shape)  # the last row is the mask
        if self.config.next_sentence is True and isinstance(built.order, nn.Identity):
            raise UserError(
                f"task.next_sentence: '{model.kind}' cannot tell two texts apart; set model.token_types = 2"
            )
        return built

    def data(self, examples: Examples, seed: int, config: TrainConfig) -> Masking:
        return self._masking(examples, seed, config.tokens_per_batch, config.batch_size)

    def _masking(self, examples: Examples, seed: int, tokens_per_batch: int = 0, batch_size: int = 0) -> Masking:
        config, mask = self.config, self.tokenisers.target.size
        pairs = config.next_sentence is True
        return Masking(examples, config.context, mask, config.mask_rate, pairs, seed, tokens_per_batch, batch_size)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("nll", lower=True)

    def loss(self, model: nn.Module, batch: MaskedBatch, state: LossState) -> Loss:
        return model(batch.ids, labels=batch.labels, label_smoothing=self.label_smoothing, apart=batch.apart)

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        found = self.guesses(model, examples)
        total = found.counts.sum()
        scores = {"nll": float(found.nll.sum() / total), "accuracy": float(100 * found.right.sum() / total)}
        if len(found.follows):
            scores["next_sentence"] = float(100 * (found.follows[:, 0] == found.follows[:, 1]).mean())
        return scores

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Every text with the same words hidden at each evaluation; intervals are over blocks."""
        found = self.guesses(model, Examples.of(tokenise(pairs, self.tokenisers)))
        scores = [perplexity(found.nll, found.counts), _accuracy(found)]
        if len(found.follows):
            guessed, true = found.follows.T.tolist()
            scores.append(replace(accuracy(guessed, true), name="next sentence"))
        return Evaluation([], [], [], scores)

    def guesses(self, model: MaskedLanguageModel | Any, examples: Examples, tokens: int = 4096) -> Guesses:
        """What the model makes of all the examples, with words hidden that depend on these alone."""
        data = self._masking(examples, seed=0)
        starts = data.tiles()
        if not len(starts):
            raise UserError("there is no word to hide in the texts to score; give other texts")
        rows = max(1, tokens // self.config.context)
        device = get_device(model)
        parts, follows = [], []
        with inference_mode(model):
            for first in range(0, len(starts), rows):
                batch = data.batch(starts[first : first + rows]).to(device)
                stream = model.encoder(batch.ids, Context())
                parts.append(_sums(model, stream, batch.labels).cpu())
                if batch.apart is not None:
                    follows.append(torch.stack([model.order(stream).argmax(-1), batch.apart], dim=1).cpu())  # (B, 2)
        nll, right, counts = torch.cat(parts).double().numpy().T
        pairs = torch.cat(follows).numpy() if follows else np.empty((0, 2), np.int64)
        return Guesses(nll, right, counts, pairs)

    def samples(self, model: Any, pairs: Any, count: int) -> list[Sample]:
        """A word of each text is hidden, and guessed."""
        texts = beginnings([text for _, text in first(pairs, count)], count)
        return fill_masks(texts, self.tokenisers.target, lambda hidden: self.fill_masks(model, hidden, 1))

    def fill_masks(
        self, model: MaskedLanguageModel | Any, texts: Sequence[str], count: int = 5
    ) -> list[list[list[FilledMask]]]:
        """The most probable words for each mask of each text, best first."""
        tokeniser = self.tokenisers.target
        rows = [[*masked_ids(text, tokeniser, repeat(model.mask_id)), EOS] for text in texts]
        found: list[list[list[FilledMask]]] = [[] for _ in texts]
        device = get_device(model)
        with inference_mode(model):
            for numbers, ids in batch_texts(rows, tokens=8192):
                masks = ids == model.mask_id
                stream = model.encoder(ids.to(device), Context())
                x = model.encoder.tokens(stream)[masks.to(device)]  # (B, T, C) -> (masks, C)
                probabilities = torch.softmax(model.head(x).float(), -1)
                probabilities[:, : UNK + 1] = probabilities[:, model.mask_id] = 0  # special tokens are no words
                best = probabilities.topk(min(count, tokeniser.size - UNK - 1))
                for row, *ways in zip(masks.nonzero()[:, 0].tolist(), *map(Tensor.tolist, best), strict=True):
                    words = ((tokeniser.decode([word]), p) for p, word in zip(*ways, strict=True))
                    found[numbers[row]].append([FilledMask(*each) for each in words])
        return found


def _sums(model: Any, stream: Stream, labels: Tensor) -> Tensor:
    """Negative log-likelihood, right guesses and number of the hidden words of each row, (B, 3)."""
    hidden = labels != PAD
    logits = model.head(model.encoder.tokens(stream)[hidden]).float()  # (B, T, C) -> (words, V)
    true = labels[hidden]
    each = torch.stack(
        [F.cross_entropy(logits, true, reduction="none"), (logits.argmax(-1) == true).float(), torch.ones_like(true)],
        dim=1,
    )
    rows = hidden.nonzero()[:, 0]
    return each.new_zeros(len(labels), 3).index_add_(0, rows, each)


def _accuracy(found: Guesses) -> Score:
    statistics = np.column_stack([found.right, found.counts])

    def share(sums: np.ndarray) -> np.ndarray:
        return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)

    value = float(share(statistics.sum(axis=0, keepdims=True))[0])
    return Score(
        "accuracy", value, *bootstrap_interval(statistics, share), f"{int(found.counts.sum())} hidden words", "%"
    )


class MaskedConfig(TaskConfig):
    """Learn hidden words from those around them and, in pairs, whether the second text follows the first."""

    task_class = Masked
    command = "fill-mask"
    unpaired = True
    kind: Literal["masked"] = "masked"
    context: int = Field(128, ge=4)  # tokens that are read at once, special tokens included; longer texts are cut
    mask_rate: float = Field(0.15, gt=0, lt=1)  # of the words, to be guessed
    next_sentence: bool | Literal["auto"] = "auto"  # auto: where the model can tell the texts of a pair apart

    def for_model(self, model: ModelConfig) -> MaskedConfig:
        if self.next_sentence != "auto":
            return self
        able = getattr(model, "token_types", 0) > 1 and getattr(model, "next_sentence_head", True)
        return self.replace(next_sentence=able)
