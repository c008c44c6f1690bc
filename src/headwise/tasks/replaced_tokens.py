"""Replaced token detection: ELECTRA (Clark et al. 2020, "Pre-training Text Encoders as Discriminators Rather Than
Generators"). Reference: transformers' ElectraForPreTraining; google-research/electra.

A small generator, a masked language model, samples replacements of masked words; the discriminator, the encoder to be
pretrained, predicts for each token whether it was replaced:

    min over both  L_MLM(generator) + λ L_Disc(discriminator),   L_Disc = mean over tokens of BCE(x_t, replaced_t)

with λ = 50 and 15 % of the words masked. Samples have no gradient, and one that equals the original counts as original.
Generator and discriminator share their embeddings; the generator is a quarter as wide.

DISCREPANCY: as in the paper, all chosen words become the mask; the released code leaves 15 % of them unchanged. The
generator never samples special tokens, which would change the padding. The prefix token has no loss.

Scores are on replacements by the run's own generator, which get harder to detect as it learns.

Letters: B rows, T positions, N masked words, V vocabulary, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.feedforward import ACTIVATIONS
from headwise.blocks.losses import Loss
from headwise.blocks.stack import Encoder
from headwise.blocks.stream import Context
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.masking import MaskedBatch, MaskedBlocks
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.data.word_pieces import encode_words, split_words
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.evaluate.bootstrap import bootstrap_interval
from headwise.evaluate.score import Score
from headwise.models.assemble import TextFields
from headwise.models.config import ModelConfig
from headwise.models.init_weights import init_normal
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.tasks.base import Evaluation, Sample, TaskConfig, TextTask, take_first
from headwise.tasks.language_model import LanguageModelTask, take_openings
from headwise.tasks.tag import batch_texts
from headwise.text import EOS, PAD
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric
from headwise.utils.notebook import HtmlTree

SAMPLE_WORDS = 40  # words of a sample


class DiscriminatorHead(nn.Module):
    """The discriminator's prediction head: one logit a token, w · act(W x + b) + c."""

    def __init__(self, width: int, activation: str = "gelu"):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.activation(self.dense(x))).squeeze(-1)  # (B, T, C) -> (B, T)
        return logits


class ReplacedTokenDetector(HtmlTree, nn.Module):
    """Replaced token detection: a discriminator (`encoder`, `head`) and the generator that it learns from, with shared
    embeddings. The encoder is found by `init_from`, so that it can be fine-tuned without the generator.

    An imported discriminator has no generator: it detects replaced tokens, and is neither trained nor scored."""

    def __init__(self, encoder: Encoder, head: DiscriminatorHead, generator: MaskedLanguageModel | None = None):
        super().__init__()
        self.encoder, self.head = encoder, head
        self.generator: Any = generator

    def forward(
        self, ids: Tensor, positions: Tensor | None = None, weight: float = 50.0, label_smoothing: float = 0.0
    ) -> Tensor | Loss:
        """Logits (B, T) of each token of (B, T) ids being replaced. With the `positions` (N,) of the words to mask,
        among the B * T: the loss of both networks, as a sum over all tokens; `nll` is the discriminator's."""
        if positions is None:
            return self.head(self.encoder.drop_prefix(self.encoder(ids, Context())))
        x = self.encode_masked(ids, positions)
        generator = self.generator.head.loss(x, ids.flatten()[positions], label_smoothing)
        corrupted = self.corrupt(ids, positions, x)
        discriminator = self.discriminator_loss(corrupted, corrupted != ids)
        scale = discriminator.count / generator.count.clamp(min=1)
        return Loss(weight * discriminator.total + scale * generator.total, discriminator.nll, discriminator.count)

    def encode_masked(self, ids: Tensor, positions: Tensor) -> Tensor:
        """The generator's vectors at the masked words, (N, C)."""
        if self.generator is None:
            raise UserError(
                "task.generator_size: 0 is a discriminator without a generator, which detects replaced tokens but is "
                "neither trained nor scored; train one with init_from and a larger size"
            )
        masked = ids.flatten().index_fill(0, positions, self.generator.mask_id).view_as(ids)
        stream = self.generator.encoder(masked, Context())
        return self.generator.encoder.drop_prefix(stream).flatten(0, 1)[positions]  # (B, T, C) -> (N, C)

    @torch.no_grad()
    def corrupt(self, ids: Tensor, positions: Tensor, x: Tensor, random: torch.Generator | None = None) -> Tensor:
        """The ids with the masked words replaced by samples of the generator, (B, T), without gradient."""
        logits = self.generator.head(x).float()  # (N, C) -> (N, V)
        logits[:, : EOS + 1] = logits[:, self.generator.mask_id] = -torch.inf
        # Gumbel-max trick: the largest of logits with Gumbel noise is a sample.
        noise = torch.empty_like(logits).exponential_(generator=random).log_()
        return ids.flatten().index_copy(0, positions, (logits - noise).argmax(-1)).view_as(ids)

    def discriminator_loss(self, ids: Tensor, replaced: Tensor) -> Loss:
        """Binary cross-entropy of `replaced` (B, T), summed over all tokens but padding."""
        real = ids != PAD
        logits = self.head(self.encoder.drop_prefix(self.encoder(ids, Context()))).float()
        total = F.binary_cross_entropy_with_logits(logits, replaced.float(), real.float(), reduction="sum")
        return Loss(total, total.detach(), real.sum())


def share_embeddings(encoder: Encoder, generator: MaskedLanguageModel) -> None:
    """Weight tying: the generator uses the discriminator's embedding table, positions, types and norm."""
    tied = generator.head.table is generator.encoder.embed.table
    for name in ("table", "positions", "types", "tasks", "norm"):
        setattr(generator.encoder.embed, name, getattr(encoder.embed, name))
    if tied:
        generator.head.table = encoder.embed.table


def generator_config(model: ModelConfig, size: float) -> ModelConfig:
    """The same architecture with narrower layers, and embeddings as wide as the discriminator's."""
    if not isinstance(model, TextFields):
        raise UserError(f"model.kind: '{model.kind}' has no layers that a generator could have narrower; use 'bert'")
    heads = max(1, round(size * model.heads))
    width = max(1, round(size * model.width / heads)) * heads
    hidden = max(1, round(size * (model.hidden or 4 * model.width)))
    changes: dict[str, Any] = {"width": width, "heads": heads, "hidden": hidden}
    narrow: ModelConfig = model.replace(embedding_width=model.embedding_width or model.width, **changes)
    return narrow


def build_discriminator(model: ModelConfig, vocab: int) -> ReplacedTokenDetector:
    """A discriminator without a generator."""
    if not isinstance(model, TextFields):
        raise UserError(f"model.kind: '{model.kind}' has no encoder that could be a discriminator; use 'bert'")
    encoder = model.build(vocab, 0, "masked").encoder
    head = DiscriminatorHead(model.output_width, model.activation if model.activation in ACTIVATIONS else "gelu")
    init_normal(head)
    return ReplacedTokenDetector(encoder, head)


@dataclass(frozen=True)
class WordProbability:
    """A word and the probability that it was replaced: the largest over its tokens."""

    word: str
    probability: float


class ReplacedTokens(TextTask["ReplacedTokensConfig", ReplacedTokenDetector]):
    """Replaced token detection. Texts are on the target side, as for a language model."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        return LanguageModelTask.prepare(data, tokeniser)

    def build(self, model: ModelConfig) -> ReplacedTokenDetector:
        vocab = self.tokenisers.target.size + 1  # the last row is the mask
        if not self.config.generator_size:
            return build_discriminator(model, vocab)
        narrow = generator_config(model, self.config.generator_size)
        generator = narrow.build(vocab, 0, self.config.model_task)
        generator.next_sentence_head = nn.Identity()  # no next-sentence prediction
        detector = build_discriminator(model, vocab)
        share_embeddings(detector.encoder, generator)
        detector.generator = generator
        return detector

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> MaskedBlocks:
        return self._masking(examples, seed, config.tokens_per_batch, config.batch_size)

    def _masking(self, examples: Examples, seed: int, tokens_per_batch: int = 0, batch_size: int = 0) -> MaskedBlocks:
        config, mask = self.config, self.tokenisers.target.size
        return MaskedBlocks(examples, config.context, mask, config.mask_rate, False, seed, tokens_per_batch, batch_size)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("f1", lower=False)

    def loss(self, model: ReplacedTokenDetector, batch: MaskedBatch, state: LossState) -> Loss:
        ids = restore_originals(batch)
        return model(ids, batch.positions, self.config.discriminator_weight, self.label_smoothing)

    def validate(self, model: ReplacedTokenDetector, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        counts = self.count_detections(model, examples)
        return {score.name.lower(): score.value for score in self.score_counts(counts, resamples=0)}

    def evaluate(
        self, model: ReplacedTokenDetector, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """The same words are masked and the same samples drawn at each evaluation of a run; intervals are over
        blocks."""
        counts = self.count_detections(model, Examples.from_rows(tokenise(pairs, self.tokenisers)))
        return Evaluation([], [], [], self.score_counts(counts))

    def score_counts(self, counts: np.ndarray, resamples: int = 1000) -> list[Score]:
        """Accuracy over all tokens; F1, precision and recall of replaced tokens."""
        tokens, replaced = int(counts.sum()), int(counts[:, [0, 2]].sum())
        detail = f"{tokens:,} tokens, {replaced:,} of them replaced"
        total = counts.sum(0, keepdims=True)
        return [
            Score(name, float(score(total)[0]), *bootstrap_interval(counts, score, resamples), detail, "%")
            for name, score in RATES.items()
        ]

    def count_detections(self, model: ReplacedTokenDetector, examples: Examples, tokens: int = 4096) -> np.ndarray:
        """Count true positives, false positives, false negatives and true negatives of each block: (blocks, 4)."""
        data = self._masking(examples, seed=0)
        starts = data.cut_tiles()
        if not len(starts):
            raise UserError("there is no word to replace in the texts to score; give other texts")
        device, rows = get_device(model), max(1, tokens // self.config.context)
        random, parts = torch.Generator(device).manual_seed(0), []
        with inference_mode(model):
            for start in range(0, len(starts), rows):
                batch = data.batch(starts[start : start + rows]).to(device)
                ids, positions = restore_originals(batch), batch.positions
                corrupted = model.corrupt(ids, positions, model.encode_masked(ids, positions), random)
                predicted, replaced, real = model(corrupted) > 0, corrupted != ids, ids != PAD
                cells = (predicted & replaced, predicted & ~replaced, ~predicted & replaced, ~predicted & ~replaced)
                parts.append(torch.stack([(cell & real).sum(1) for cell in cells], dim=1).cpu())
        return torch.cat(parts).double().numpy()

    def draw_samples(self, model: ReplacedTokenDetector, pairs: Sequence[Pair], count: int) -> list[Sample]:
        """Texts in which the generator replaced words, the words that the discriminator detected, and the true ones."""
        tokeniser, device, samples = self.tokenisers.target, get_device(model), []
        openings = take_openings([text for _, text in take_first(pairs, count)], count)
        texts = [" ".join(text.split()[:SAMPLE_WORDS]) for text in openings]
        random = torch.Generator(device).manual_seed(0)
        with inference_mode(model):
            for row in tokeniser.encode_batch([text for text in texts if text]):
                ids = torch.tensor([row[: self.config.context - 2]], device=device)
                positions = torch.arange(3, ids.shape[1], 7, device=device)  # one word in seven, always the same
                corrupted = model.corrupt(ids, positions, model.encode_masked(ids, positions), random)
                detected, replaced = model(corrupted)[0] > 0, (corrupted != ids)[0]
                words = (tokeniser.tokens(corrupted[0][which].tolist()) for which in (detected, replaced))
                source = tokeniser.decode(corrupted[0].tolist())
                samples.append(Sample(source, *(", ".join(map(str.strip, some)) for some in words)))
        return samples

    def detect_replaced(
        self, model: ReplacedTokenDetector, texts: Sequence[str], tokens: int = 8192
    ) -> list[list[WordProbability]]:
        """Each word of each text with the probability that it was replaced."""
        tokeniser, device, length = self.tokenisers.target, get_device(model), self.config.context - 2
        ids_by_word = encode_words(tokeniser, texts)
        flat = [[number for word in by_word for number in word] for by_word in ids_by_word]
        blocks = [(text, ids[at : at + length]) for text, ids in enumerate(flat) for at in range(0, len(ids), length)]
        by_block: list[list[float]] = [[] for _ in blocks]
        with inference_mode(model):
            for numbers, ids in batch_texts([[*ids, EOS] for _, ids in blocks], tokens):
                for number, row in zip(numbers, model(ids.to(device)).float().sigmoid().tolist(), strict=True):
                    by_block[number] = row[: len(blocks[number][1])]
        by_text: list[list[float]] = [[] for _ in texts]
        for (text, _), row in zip(blocks, by_block, strict=True):
            by_text[text] += row
        return [
            [
                WordProbability(word, max(probabilities[begin:end]))
                for word, (begin, end) in zip(split_words(tokeniser, text), word_spans(by_word), strict=True)
            ]
            for text, by_word, probabilities in zip(texts, ids_by_word, by_text, strict=True)
        ]


def restore_originals(batch: MaskedBatch) -> Tensor:
    """The ids before masking, (B, T)."""
    return batch.labels.where(batch.labels != PAD, batch.ids)


def word_spans(ids_by_word: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Where each word begins and ends among the tokens of a text.

    >>> word_spans([[7, 8], [9]])
    [(0, 2), (2, 3)]
    """
    return list(pairwise(accumulate(map(len, ids_by_word), initial=0)))


def percentage(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    return 100 * part / np.maximum(total, 1)


RATES = {  # of sums (resamples, 4): true positives, false positives, false negatives, true negatives
    "accuracy": lambda sums: percentage(sums[:, 0] + sums[:, 3], sums.sum(1)),
    "F1": lambda sums: percentage(2 * sums[:, 0], 2 * sums[:, 0] + sums[:, 1] + sums[:, 2]),
    "precision": lambda sums: percentage(sums[:, 0], sums[:, 0] + sums[:, 1]),
    "recall": lambda sums: percentage(sums[:, 0], sums[:, 0] + sums[:, 2]),
}


class ReplacedTokensConfig(TaskConfig):
    """Replaced token detection: which tokens of a text a small generator has replaced (Clark et al. 2020)."""

    task_class = ReplacedTokens
    model_of = "masked"
    unpaired = True
    command = "detect-replaced"
    kind: Literal["replaced-tokens"] = "replaced-tokens"
    context: int = Field(128, ge=4)  # tokens of a training text, special tokens included; longer texts are cut
    mask_rate: float = Field(0.15, gt=0, lt=1)  # share of the words that are masked
    # width, heads and hidden of the generator, as a share; 0: no generator, of an imported discriminator
    generator_size: float = Field(0.25, ge=0, le=1)
    discriminator_weight: float = Field(50.0, gt=0)  # λ
