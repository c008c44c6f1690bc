"""Sequence-to-sequence: loss on pairs, decoding, and scores of the outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np
from pydantic import Field, model_validator
from torch import nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.losses import Loss
from headwise.config.base import Problems
from headwise.data.collate import PairBatch
from headwise.data.corpora import collect_references
from headwise.data.examples import Examples, tokenise
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import Engine, decode
from headwise.decode.generator import Generator
from headwise.decode.unk_replacement import replace_unknown
from headwise.errors import UserError
from headwise.evaluate.perplexity import perplexity
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.language_model import LanguageModel, PrefixLM
from headwise.tasks import scheduled_sampling
from headwise.tasks.base import (
    AnyModelTask,
    Evaluation,
    ExampleSet,
    GenerationState,
    PairData,
    Task,
    TaskConfig,
    TextTask,
    generation_loss,
    token_nll,
)
from headwise.tasks.output_scores import OUTPUT_SCORES, Scoring
from headwise.tasks.scheduled_sampling import AnyScheduledSampling, Never
from headwise.text import PAD
from headwise.text.hf import HfTokeniser
from headwise.text.marian import MarianTokeniser
from headwise.text.subword import Bpe, Unigram
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Bytes, Characters
from headwise.train.state import LossState, Metric

AT_ONCE = 4096  # tokens of a batch in evaluation
SequenceModel: TypeAlias = EncoderDecoder | PrefixLM
TransduceSettings = TypeVar("TransduceSettings", bound="TransduceConfig")


class GenerationTask(Task[TransduceSettings, SequenceModel, ExampleSet, Sequence[Pair]]):
    """Base of sequence-to-sequence tasks: outputs are decoded and compared with the references."""

    def __init__(self, config: TransduceSettings, tokenisers: Tokenisers, label_smoothing: float = 0.0):
        super().__init__(config, tokenisers, label_smoothing)
        subwords = isinstance(tokenisers.target, Bpe | Unigram | HfTokeniser | MarianTokeniser)
        self.score = ("bleu" if subwords else "ser") if config.score == "auto" else config.score

    @property
    def checkpoint_metric(self) -> Metric:
        if not self.config.sample:
            return Metric("nll", lower=True)
        return OUTPUT_SCORES[self.score].metric

    def init_state(self, model: SequenceModel) -> LossState:
        return GenerationState.of(model)

    def loss(self, model: SequenceModel, batch: PairBatch, state: LossState) -> Loss:
        target_in = scheduled_sampling.sample_inputs(model, batch, self.config.scheduled_sampling, state.progress)
        smoothing = self.label_smoothing
        return generation_loss(
            model, batch.source, target_in, labels=batch.target_out, label_smoothing=smoothing, state=state
        )

    def validate(self, model: SequenceModel, examples: ExampleSet, pairs: Sequence[Pair]) -> dict[str, float]:
        """Loss per token on all examples, and the score of greedy decoding on some of them."""
        nll, counts = compute_nll(model, self.batch_examples(examples))
        values = {"nll": float(nll.sum() / counts.sum())}
        if self.config.sample:
            sample = list(collect_references(pairs).items())[: self.config.sample]
            outputs = self.decode_outputs(model, [source for source, _ in sample], GREEDY)
            for score in self.score_outputs(outputs, [targets for _, targets in sample], resamples=0):
                values[score.name.lower().replace(" ", "_")] = score.value
        return values

    def evaluate(
        self, model: Generator | Engine, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Decode every source once and score it against all its references, with intervals."""
        by_source = collect_references(pairs)
        sources, targets = list(by_source), list(by_source.values())
        outputs = self.decode_outputs(model, sources, config)
        scores = self.score_outputs(outputs, targets, language=language)
        # a target that is longer than any output may have more tokens than the model has positions
        rows = self.tokenisers.target.encode_batch([target for _, target in pairs])
        scored = [pair for pair, ids in zip(pairs, rows, strict=True) if len(ids) <= config.max_length]
        if isinstance(model, EncoderDecoder | PrefixLM) and scored:  # an ensemble or an engine only decodes
            scores.append(perplexity(*compute_nll(model, self.batch_examples(self.build_examples(scored)))))
        return Evaluation(sources, outputs, targets, scores)

    @abstractmethod
    def build_examples(self, pairs: Sequence[Pair]) -> ExampleSet:
        """Pairs of the test data as examples."""

    @abstractmethod
    def batch_examples(self, examples: ExampleSet) -> PairData:
        """Batches of examples for evaluation, with sources as the model reads them."""

    @abstractmethod
    def decode_outputs(self, model: Generator | Engine, sources: Sequence[str], config: DecodeConfig) -> list[str]:
        """The best output of each source."""

    def score_outputs(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        """The scores that `task.score` names; `references` lists those of each output."""
        normalise = self.tokenisers.target.normalise  # references are normalised as training targets are
        references = [[normalise(text) for text in texts] for texts in references]
        letters = isinstance(self.tokenisers.target, Characters | Bytes)
        scoring = Scoring(resamples, language, normalise.lower, letters)
        return OUTPUT_SCORES[self.score].compute(outputs, references, scoring)


class Transduce(GenerationTask["TransduceConfig", Examples], TextTask["TransduceConfig", SequenceModel]):
    """Sequence-to-sequence on pairs of texts, by an encoder-decoder or a prefix language model."""

    def build(self, model: ModelConfig) -> SequenceModel:
        if not self.config.prefix_lm:
            extra, sides = self.config.extra_tokens, self.tokenisers
            outputs = 0 if sides.shared else sides.target.size + extra
            return model.build(sides.source.size + extra, outputs, self.config.model_task)
        if not self.tokenisers.shared:
            raise UserError("task.prefix_lm: source and target are one text; set tokeniser.shared = true")
        built = model.build(self.tokenisers.target.size, 0, self.config.model_task)
        if not isinstance(built, LanguageModel):
            raise UserError(f"task.prefix_lm: '{model.kind}' cannot read source and target as one text; choose another")
        return PrefixLM(built.decoder, built.start_id, built.end_id)

    def build_examples(self, pairs: Sequence[Pair]) -> Examples:
        return Examples.from_rows(tokenise(pairs, self.tokenisers))

    def batch_examples(self, examples: Examples) -> PairData:
        return PairData(examples, seed=0, tokens_per_batch=AT_ONCE)

    def decode_outputs(self, model: Generator | Engine, sources: Sequence[str], config: DecodeConfig) -> list[str]:
        device, sides = get_device(model), (self.tokenisers.source, self.tokenisers.target)
        hypotheses = decode(model, self.tokenisers.source.encode_batch(sources), config, device)
        best = [ranked[:1] for ranked in hypotheses]
        return [text for (text,) in replace_unknown(model, sources, best, sides, config, device)]


def compute_nll(model: nn.Module, data: PairData) -> tuple[np.ndarray, np.ndarray]:
    """Summed negative log-likelihood and number of tokens of each example."""
    device, count = get_device(model), len(data.examples)
    nll, counts = np.zeros(count), np.zeros(count)
    with inference_mode(model):
        for numbers in data.plan(0):
            batch = data.batch(numbers).to(device)
            losses = token_nll(model(batch.source, batch.target_in), batch.target_out)
            nll[numbers] = losses.sum(1).cpu().numpy()
            counts[numbers] = (batch.target_out != PAD).sum(1).cpu().numpy()
    return nll, counts


class TransduceConfig(TaskConfig):
    """Sequence-to-sequence: turn a source into a target. `auto` scores sub-word outputs with BLEU, others with the
    sequence error rate (`ser`: the share of outputs that are not exactly right) and PER or CER. `wer` is the word error
    rate, `rouge` is for summaries, `answers` is exact match and F1 of short answers, `brackets` the attachment
    scores of dependency trees."""

    task_class: ClassVar[type[AnyModelTask]] = Transduce
    divisible = True
    writes = "target"
    command = "translate"
    fits = "pairs"
    baselines = ("nearest neighbour",)
    kind: Literal["transduce"] = "transduce"
    score: Literal["auto", "bleu", "ser", "wer", "rouge", "answers", "brackets"] = "auto"
    sample: int = Field(500, ge=0)  # how many validation pairs are decoded at each validation; 0: only the loss
    scheduled_sampling: AnyScheduledSampling = Never()  # how often the decoder reads its own tokens in training
    prefix_lm: bool = False  # a prefix language model instead of an encoder-decoder: source and target are one text
    # rows of the vocabulary after the tokeniser's, that a pretrained model has: span corruption has 100 sentinels
    extra_tokens: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _check_extra_tokens(self) -> Self:
        if self.extra_tokens and self.prefix_lm:
            raise Problems([(("extra_tokens",), "a prefix language model has none; leave it out")])
        return self

    @property
    def model_task(self) -> str:
        return "language-model" if self.prefix_lm else self.kind
