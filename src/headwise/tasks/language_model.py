"""Language modelling: the next token of a text, again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor, nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.blocks.segment_memory import SegmentMemory
from headwise.blocks.stream import Part
from headwise.data.blocks import Blocks, TextBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.packing import Packed
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.data.streams import Streams
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.evaluate.perplexity import nats_per_character, perplexity
from headwise.models.config import ModelConfig
from headwise.tasks.base import Evaluation, Sample, Task, TaskConfig, first, per_token
from headwise.text import PAD
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

OPENING = 24  # tokens of a text that a sample goes on with
FOLLOWING = 72  # tokens of a sample
LONG = 2000  # characters that hold these tokens
UNLIMITED = 2**62  # tokens: documents are cut into blocks, not left out


class LanguageModelTask(Task["LanguageModelConfig"]):
    """Texts on the target side; there is no source."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            if tokeniser.target.kind != "same":
                raise UserError("tokeniser.target: a language model has one side; leave it out")
            tokeniser = tokeniser.replace(shared=True)
        return prepare(data.replace(max_length=UNLIMITED), tokeniser)

    def build(self, model: ModelConfig) -> nn.Module:
        built = super().build(model)
        if self.config.packing:
            for part in built.modules():
                if isinstance(part, Part) and not part.properties.packing:
                    raise UserError(
                        f"task.packing: {type(part).__name__} of '{model.kind}' would mix the texts that share a row; "
                        "leave it out"
                    )
        return built

    def data(self, examples: Examples, seed: int, config: TrainConfig) -> Blocks:
        kind = Packed if self.config.packing else Streams if self.config.order == "stream" else Blocks
        return kind(examples, self.config.context, seed, config.tokens_per_batch, config.batch_size)

    def fit_model(self, model: Any, examples: Examples) -> None:
        model.fit(target for _, target in examples)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("nll", lower=True)

    def loss(self, model: nn.Module, batch: TextBatch, state: LossState) -> Loss:
        given: dict[str, Any] = {"labels": batch.labels, "label_smoothing": self.label_smoothing}
        if batch.segment is not None:
            given |= {"segment": batch.segment, "pos": batch.pos}
        if batch.fresh is None or not recall_of(model):
            return model(batch.ids, **given)
        carried = SegmentMemory(recall_of(model), state.carried, batch.fresh)
        loss = model(batch.ids, carried=carried, **given)
        state.carried = carried.leaves
        return loss

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        nll, counts = self.likelihoods(model, examples, stride=self.config.context)
        return {"nll": float(nll.sum() / counts.sum())}

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Each token is predicted from at least half of the context, where the text has as much; by a model that
        recalls, from what it has read of the text."""
        examples = Examples.of(tokenise(pairs, self.tokenisers))
        nll, counts = self.likelihoods(model, examples, stride=max(self.config.context // 2, 1))
        normalise = self.tokenisers.target.normalise
        characters = sum(len(normalise(text)) for _, text in pairs)
        scores = [perplexity(nll, counts), nats_per_character(nll, counts, characters)]
        return Evaluation([], [], [], scores)

    def samples(self, model: Any, pairs: Any, count: int) -> list[Sample]:
        """How the model goes on with beginnings of texts. What it draws depends on the weights alone."""
        tokeniser, context = self.tokenisers.target, self.config.context
        texts = tokeniser.encode_batch(beginnings([text for _, text in first(pairs, count)], count))
        openings = [ids[: min(OPENING, context // 2, len(ids) // 2)] for ids in texts]
        most = max(1, min(FOLLOWING, context // 2 - 1))  # the start mark counts
        config = DecodeConfig(temperature=0.8, max_ratio=0, max_extra=most)
        found = decode(model, openings, config, get_device(model))
        return [
            Sample(*map(tokeniser.decode, (opening, best.ids, ids[len(opening) :][:most])))
            for ids, opening, (best, *_) in zip(texts, openings, found, strict=True)
        ]

    def max_context(self, model: nn.Module) -> int:
        """As many as in training; all of them where a state goes on from token to token, and where counts decide."""
        unbounded = any(getattr(module, "unbounded", False) for module in model.modules())
        return 0 if unbounded else self.config.context

    def likelihoods(self, model: nn.Module, examples: Examples, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Summed negative log-likelihood and number of tokens of each block."""
        if recall_of(model):
            return self.recalled(model, examples)
        blocks = Blocks(examples, self.config.context)
        starts, firsts = blocks.windows(stride)
        device = get_device(model)
        nll, counts = np.zeros(len(starts)), np.zeros(len(starts))
        # A batch's logits have about 64 MB, whatever the vocabulary.
        rows = max(1, 2**24 // (self.tokenisers.target.size * self.config.context))
        with inference_mode(model):
            for first in range(0, len(starts), rows):
                here = slice(first, first + rows)
                batch = blocks.batch(starts[here])
                labels = batch.labels
                labels[np.arange(labels.shape[1]) < firsts[here, None]] = PAD
                batch = batch.to(device)
                nll[here] = token_losses(model, batch).sum(1).cpu().numpy()
                counts[here] = (labels != PAD).sum(1).numpy()
        return nll, counts

    def recalled(self, model: Any, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """The same of a model that recalls: each text from its beginning, in one block after the other."""
        blocks, context, device = Blocks(examples, self.config.context), self.config.context, get_device(model)
        sizes = np.diff(blocks.bounds)
        longest_first = np.argsort(-sizes, kind="stable")
        rows = max(1, 2**24 // (self.tokenisers.target.size * context))
        nll, counts = [], []
        with inference_mode(model):
            for first in range(0, len(sizes), rows):
                texts = longest_first[first : first + rows]
                left: Mapping[str, Tensor] = {}
                for done in range(0, sizes[texts[0]], context):
                    texts = texts[sizes[texts] > done]  # the short ones, which stand last, are over
                    batch = blocks.batch(blocks.bounds[texts] + done)
                    carried = SegmentMemory(
                        model.memory_length, {name: each[: len(texts)] for name, each in left.items()}
                    )
                    counts.append((batch.labels != PAD).sum(1).numpy())
                    batch = batch.to(device)
                    nll.append(per_token(model(batch.ids, carried=carried), batch.labels).sum(1).cpu().numpy())
                    left = carried.leaves
        return np.concatenate(nll), np.concatenate(counts)


def beginnings(texts: Sequence[str], count: int) -> list[str]:
    """The first words of so many texts; where there are fewer, of words within them too, at equal distances.

    >>> beginnings(["one two three four"], 2), beginnings(["one", "two", "three"], 2)
    (['one two three four', 'four'], ['one', 'two'])
    """
    each = -(-count // max(1, len(texts)))  # rounded up
    places = [(text, len(text) * part // each) for part in range(each) for text in texts]
    starts = ((text, text.find(" ", at - 1) + 1 if at else 0) for text, at in places[:count])
    return [text[start : start + LONG] for text, start in starts]


def recall_of(model: Any) -> int:
    """How many tokens of earlier segments a model sees; 0 where it has no such memory."""
    return getattr(model, "memory_length", 0)


def token_losses(model: Any, batch: TextBatch) -> Tensor:
    """The negative log-likelihood of each token, (B, T); a model that looks them up is asked for these alone."""
    if hasattr(model, "score"):
        found = -model.score(model.find_contexts(batch.ids), batch.labels)
        return found.masked_fill(batch.labels == PAD, 0.0)
    return per_token(model(batch.ids), batch.labels)


class LanguageModelConfig(TaskConfig):
    """Learn to go on with a text."""

    task_class = LanguageModelTask
    writes = "continuation"
    command = "generate"
    unpaired = True
    kind: Literal["language-model"] = "language-model"
    context: int = Field(256, ge=1)  # tokens that are read at once; longer texts are cut
    packing: bool = False  # short texts share rows
    # stream: each row of a batch goes on with that of the last one; auto: where the model recalls what it read
    order: Literal["auto", "shuffled", "stream"] = "auto"

    @model_validator(mode="after")
    def _either(self) -> LanguageModelConfig:
        if self.packing and self.order == "stream":
            raise ValueError("a stream has no padding that packing could save; leave out `packing`")
        return self

    def for_model(self, model: ModelConfig) -> LanguageModelConfig:
        if self.order != "auto":
            return self
        recalls = getattr(model, "memory_length", 0) and not self.packing
        return self.replace(order="stream" if recalls else "shuffled")
