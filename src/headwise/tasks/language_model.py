"""Language modelling: predict the next token of a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator
from torch import Tensor

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.blocks.segment_memory import SegmentMemory
from headwise.blocks.stream import Part
from headwise.data.blocks import Blocks, TextBatch
from headwise.data.config import DataConfig
from headwise.data.examples import Examples, tokenise
from headwise.data.packing import PackedBlocks
from headwise.data.prepare import Prepared, prepare
from headwise.data.read import Pair
from headwise.data.streams import StreamedBlocks
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.evaluate.perplexity import nats_per_character, perplexity
from headwise.hmm.language_model import HiddenMarkovLanguageModel
from headwise.models.config import ModelConfig
from headwise.models.language_model import LanguageModel
from headwise.ngram.backoff import Backoff
from headwise.tasks.base import Evaluation, Sample, TaskConfig, TextTask, take_first, token_nll
from headwise.text import PAD
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState, Metric

PROMPT_TOKENS = 24  # tokens of a sample's prompt
FOLLOWING = 72  # tokens of a sample's continuation
MAX_CHARACTERS = 2000  # of the text that a sample is taken from
UNLIMITED = 2**62  # tokens: documents are cut into blocks, not left out
# a decoder, n-gram counts, or a hidden Markov model
AnyLanguageModel: TypeAlias = LanguageModel | Backoff | HiddenMarkovLanguageModel


@runtime_checkable
class CountModel(Protocol):
    """A language model without gradients, such as n-grams, that is fitted in one pass."""

    def fit(self, sequences: Iterable[ArrayLike]) -> object: ...


@runtime_checkable
class TokenScorer(Protocol):
    """A language model that looks up the probability of single tokens, without logits of the whole vocabulary."""

    def find_contexts(self, ids: Tensor) -> Tensor: ...
    def score(self, contexts: Tensor, tokens: Tensor) -> Tensor: ...


class LanguageModelTask(TextTask["LanguageModelConfig", AnyLanguageModel]):
    """Language modelling. Texts are on the target side; sources are empty."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        if isinstance(tokeniser, TokeniserConfig):
            if tokeniser.target.kind != "same":
                raise UserError("tokeniser.target: a language model has one side; leave it out")
            tokeniser = tokeniser.replace(shared=True)
        return prepare(data.replace(max_length=UNLIMITED), tokeniser)

    def build(self, model: ModelConfig) -> AnyLanguageModel:
        built = super().build(model)
        if self.config.packing:
            for part in built.modules():
                if isinstance(part, Part) and not part.properties.packing:
                    raise UserError(
                        f"task.packing: {type(part).__name__} of '{model.kind}' would mix the texts that share a row; "
                        "leave it out"
                    )
        return built

    def build_batches(self, examples: Examples, seed: int, config: TrainConfig) -> Blocks:
        batches = PackedBlocks if self.config.packing else StreamedBlocks if self.config.order == "stream" else Blocks
        return batches(examples, self.config.context, seed, config.tokens_per_batch, config.batch_size)

    def fit_model(self, model: AnyLanguageModel, examples: Examples) -> None:
        assert isinstance(model, CountModel)
        model.fit(target for _, target in examples)

    @property
    def checkpoint_metric(self) -> Metric:
        return Metric("nll", lower=True)

    def loss(self, model: AnyLanguageModel, batch: TextBatch, state: LossState) -> Loss:
        options: dict[str, Any] = {"labels": batch.labels, "label_smoothing": self.label_smoothing}
        if batch.segment is not None:
            options |= {"segment": batch.segment, "pos": batch.pos}
        if batch.fresh is None or not get_memory_length(model):
            return model(batch.ids, **options)
        carried = SegmentMemory(get_memory_length(model), state.carried, batch.fresh)
        loss = model(batch.ids, carried=carried, **options)
        state.carried = carried.next_states
        return loss

    def validate(self, model: AnyLanguageModel, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        nll, counts = self.compute_nll(model, examples, stride=self.config.context)
        return {"nll": float(nll.sum() / counts.sum())}

    def evaluate(
        self, model: AnyLanguageModel, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Each token is predicted from at least half of the context, where the text has as much; with segment memory,
        from all that the memory holds of the text."""
        examples = Examples.from_rows(tokenise(pairs, self.tokenisers))
        nll, counts = self.compute_nll(model, examples, stride=max(self.config.context // 2, 1))
        normalise = self.tokenisers.target.normalise
        characters = sum(len(normalise(text)) for _, text in pairs)
        scores = [perplexity(nll, counts), nats_per_character(nll, counts, characters)]
        return Evaluation([], [], [], scores)

    def draw_samples(self, model: AnyLanguageModel, pairs: Sequence[Pair], count: int) -> list[Sample]:
        """Continuations of prompts, the openings of texts. The random draws depend on the weights alone."""
        tokeniser, context = self.tokenisers.target, self.config.context
        texts = tokeniser.encode_batch(take_openings([text for _, text in take_first(pairs, count)], count))
        prompts = [ids[: min(PROMPT_TOKENS, context // 2, len(ids) // 2)] for ids in texts]
        length = max(1, min(FOLLOWING, context // 2 - 1))  # the start token counts
        config = DecodeConfig(temperature=0.8, max_ratio=0, max_extra=length)
        hypotheses = decode(model, prompts, config, get_device(model))
        return [
            Sample(*map(tokeniser.decode, (prompt, best.ids, ids[len(prompt) :][:length])))
            for ids, prompt, (best, *_) in zip(texts, prompts, hypotheses, strict=True)
        ]

    def get_max_context(self, model: AnyLanguageModel) -> int:
        """The context of training; unlimited for n-grams and models with an `unbounded` part."""
        unbounded = any(getattr(module, "unbounded", False) for module in model.modules())
        return 0 if unbounded else self.config.context

    def compute_nll(self, model: AnyLanguageModel, examples: Examples, stride: int) -> tuple[np.ndarray, np.ndarray]:
        """Summed negative log-likelihood and number of tokens of each block."""
        if get_memory_length(model):
            return self.compute_nll_with_memory(model, examples)
        blocks = Blocks(examples, self.config.context)
        starts, firsts = blocks.cut_windows(stride)
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
                nll[here] = score_tokens(model, batch).sum(1).cpu().numpy()
                counts[here] = (labels != PAD).sum(1).numpy()
        return nll, counts

    def compute_nll_with_memory(self, model: AnyLanguageModel, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """As `compute_nll` with segment memory: each text from its beginning, block after block."""
        blocks, context, device = Blocks(examples, self.config.context), self.config.context, get_device(model)
        sizes = np.diff(blocks.bounds)
        longest_first = np.argsort(-sizes, kind="stable")
        rows = max(1, 2**24 // (self.tokenisers.target.size * context))
        nll, counts = [], []
        with inference_mode(model):
            for first in range(0, len(sizes), rows):
                texts = longest_first[first : first + rows]
                memory: Mapping[str, Tensor] = {}
                for done in range(0, sizes[texts[0]], context):
                    texts = texts[sizes[texts] > done]  # finished texts drop out; they are the last
                    batch = blocks.batch(blocks.bounds[texts] + done)
                    carried = SegmentMemory(
                        get_memory_length(model), {name: rows[: len(texts)] for name, rows in memory.items()}
                    )
                    counts.append((batch.labels != PAD).sum(1).numpy())
                    batch = batch.to(device)
                    nll.append(token_nll(model(batch.ids, carried=carried), batch.labels).sum(1).cpu().numpy())
                    memory = carried.next_states
        return np.concatenate(nll), np.concatenate(counts)


def take_openings(texts: Sequence[str], count: int) -> list[str]:
    """The openings of `count` texts; where there are fewer texts, also passages from within them, at equal distances.

    >>> take_openings(["one two three four"], 2), take_openings(["one", "two", "three"], 2)
    (['one two three four', 'four'], ['one', 'two'])
    """
    per_text = -(-count // max(1, len(texts)))  # rounded up
    positions = [(text, len(text) * part // per_text) for part in range(per_text) for text in texts]
    starts = ((text, text.find(" ", at - 1) + 1 if at else 0) for text, at in positions[:count])
    return [text[start : start + MAX_CHARACTERS] for text, start in starts]


def get_memory_length(model: AnyLanguageModel) -> int:
    """Segment-level recurrence: how many tokens of earlier segments the model sees; 0: none."""
    return getattr(model, "memory_length", 0)


def score_tokens(model: AnyLanguageModel, batch: TextBatch) -> Tensor:
    """The negative log-likelihood of each token, (B, T)."""
    if isinstance(model, TokenScorer):
        nll = -model.score(model.find_contexts(batch.ids), batch.labels)
        return nll.masked_fill(batch.labels == PAD, 0.0)
    return token_nll(model(batch.ids), batch.labels)


class LanguageModelConfig(TaskConfig):
    """Language modelling: predict the next token of a text."""

    task_class = LanguageModelTask
    divisible = True
    writes = "continuation"
    command = "generate"
    fits = "texts"
    baselines = ("n-gram",)
    unpaired = True
    kind: Literal["language-model"] = "language-model"
    context: int = Field(256, ge=1)  # tokens of a training block; longer texts are cut
    packing: bool = False  # sequence packing: short texts share rows
    # stream: each row of a batch continues that of the last one; auto: a stream for models with segment memory
    order: Literal["auto", "shuffled", "stream"] = "auto"

    @model_validator(mode="after")
    def _check_order(self) -> LanguageModelConfig:
        if self.packing and self.order == "stream":
            raise ValueError("a stream has no padding that packing could save; leave out `packing`")
        return self

    def for_model(self, model: ModelConfig) -> LanguageModelConfig:
        if self.order != "auto":
            return self
        has_memory = getattr(model, "memory_length", 0) and not self.packing
        return self.replace(order="stream" if has_memory else "shuffled")
