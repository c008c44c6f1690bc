"""Turn one sequence into another: loss on pairs, decoding, and the scores that fit the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field
from torch import nn

from headwise.blocks.evaluation import get_device, inference_mode
from headwise.blocks.heads import Loss
from headwise.data.collate import PairBatch
from headwise.data.corpora import collect_references
from headwise.data.examples import Examples, tokenise
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.unk_replacement import replace_unknown
from headwise.errors import UserError
from headwise.evaluate.bleu import bleu, tokenised_bleu
from headwise.evaluate.error_rates import character_error_rate, phoneme_error_rate, sequence_error_rate, word_error_rate
from headwise.evaluate.perplexity import perplexity
from headwise.evaluate.rouge import rouge_l, rouge_n
from headwise.evaluate.score import Score
from headwise.models.config import ModelConfig
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.language_model import LanguageModel, PrefixLM
from headwise.tasks import scheduled_sampling
from headwise.tasks.base import Evaluation, GenerationState, PairData, Task, TaskConfig, generation_loss, per_token
from headwise.tasks.scheduled_sampling import AnyOwnInputs, Never
from headwise.text import PAD
from headwise.text.hf import HfTokeniser
from headwise.text.marian import MarianTokeniser
from headwise.text.subword import Bpe, Unigram
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Bytes, Characters
from headwise.train.state import LossState, Metric

if TYPE_CHECKING:
    from headwise.data.sniff import Facts

WATCHES = {
    "bleu": Metric("bleu", lower=False),
    "rouge": Metric("rouge-l", lower=False),
    "ser": Metric("ser", lower=True),
    "wer": Metric("wer", lower=True),
}
AT_ONCE = 4096  # tokens of texts whose likelihood is asked for


class Transduce(Task["TransduceConfig"]):
    """Pairs of sequences, scored by how far the decoded outputs are from the references."""

    def __init__(self, config: TransduceConfig, tokenisers: Tokenisers, label_smoothing: float = 0.0):
        super().__init__(config, tokenisers, label_smoothing)
        subwords = isinstance(tokenisers.target, Bpe | Unigram | HfTokeniser | MarianTokeniser)
        self.score = ("bleu" if subwords else "ser") if config.score == "auto" else config.score

    def build(self, model: ModelConfig) -> nn.Module:
        if not self.config.prefix_lm:
            return super().build(model)
        if not self.tokenisers.shared:
            raise UserError("task.prefix_lm: source and target are one text; set tokeniser.shared = true")
        built = model.build(self.tokenisers.target.size, 0, self.config.shape)
        if not isinstance(built, LanguageModel):
            raise UserError(f"task.prefix_lm: '{model.kind}' cannot read source and target as one text; choose another")
        return PrefixLM(built.decoder, built.start_id, built.end_id)

    @property
    def checkpoint_metric(self) -> Metric:
        """The score that decides which checkpoint is best."""
        if not self.config.sample:
            return Metric("nll", lower=True)
        return WATCHES[self.score]

    def init_state(self, model: nn.Module) -> LossState:
        return GenerationState.of(model)

    def loss(self, model: nn.Module, batch: PairBatch, state: LossState) -> Loss:
        target_in = scheduled_sampling.sample_inputs(model, batch, self.config.scheduled_sampling, state.progress)
        smoothing = self.label_smoothing
        return generation_loss(
            model, batch.source, target_in, labels=batch.target_out, label_smoothing=smoothing, state=state
        )

    def validate(self, model: nn.Module, examples: Any, pairs: Sequence[Any]) -> dict[str, float]:
        """Loss per token on all examples, and the score of a greedy decoding of some of them."""
        nll, counts = self.likelihoods(model, examples)
        found = {"nll": float(nll.sum() / counts.sum())}
        if self.config.sample:
            sample = list(collect_references(pairs).items())[: self.config.sample]
            outputs = self.outputs(model, [source for source, _ in sample], GREEDY)
            for score in self.scores(outputs, [listed for _, listed in sample], resamples=0):
                found[score.name.lower().replace(" ", "_")] = score.value
        return found

    def evaluate(
        self, model: Any, pairs: Sequence[Any], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        """Decode every source once and score it against all its references, with intervals."""
        listed = collect_references(pairs)
        sources, targets = list(listed), list(listed.values())
        outputs = self.outputs(model, sources, config)
        scores = self.scores(outputs, targets, language=language)
        if isinstance(model, EncoderDecoder | PrefixLM):  # an ensemble or an engine only decodes
            scores.append(perplexity(*self.likelihoods(model, self.examples(pairs))))
        return Evaluation(sources, outputs, targets, scores)

    def examples(self, pairs: Sequence[Any]) -> Any:
        """Pairs as training has them."""
        return Examples.from_rows(tokenise(pairs, self.tokenisers))

    def outputs(self, model: Any, sources: Sequence[Any], config: DecodeConfig) -> list[str]:
        ids = self.tokenisers.source.encode_batch(sources)
        found = [hypotheses[:1] for hypotheses in decode(model, ids, config, device=get_device(model))]
        sides = (self.tokenisers.source, self.tokenisers.target)
        return [best for (best,) in replace_unknown(model, sources, found, sides, config, get_device(model))]

    def scores(
        self, outputs: Sequence[str], listed: Sequence[Sequence[str]], resamples: int = 1000, language: str = "en"
    ) -> list[Score]:
        normalise = self.tokenisers.target.normalise  # a model that never saw a capital is not asked for one
        listed = [[normalise(each) for each in several] for several in listed]
        if self.score == "bleu":
            scores = [bleu(outputs, listed, resamples=resamples, lowercase=normalise.lower)]
            if resamples:  # a score to print beside older papers, not one to steer by
                scores.append(tokenised_bleu(outputs, listed, language, resamples=resamples))
            return scores
        if self.score == "rouge":
            orders = (rouge_n(outputs, listed, order, resamples=resamples) for order in (1, 2))
            return [rouge_l(outputs, listed, resamples=resamples), *orders]
        letters = isinstance(self.tokenisers.target, Characters | Bytes)
        if self.score == "wer":
            return [rate(outputs, listed, resamples=resamples) for rate in (word_error_rate, sequence_error_rate)]
        rates = (sequence_error_rate, character_error_rate if letters else phoneme_error_rate)
        return [rate(outputs, listed, resamples=resamples) for rate in rates]

    def evaluate_outputs(self, examples: Any) -> PairData:
        """Examples in batches that a model reads as they are."""
        return PairData(examples, seed=0, tokens_per_batch=AT_ONCE)

    def likelihoods(self, model: nn.Module, examples: Any) -> tuple[np.ndarray, np.ndarray]:
        """Summed negative log-likelihood and number of tokens of each example."""
        return likelihoods(model, self.evaluate_outputs(examples))


def likelihoods(model: nn.Module, data: PairData) -> tuple[np.ndarray, np.ndarray]:
    device, count = get_device(model), len(data.examples)
    nll, counts = np.zeros(count), np.zeros(count)
    with inference_mode(model):
        for numbers in data.plan(0):
            batch = data.batch(numbers).to(device)
            each = per_token(model(batch.source, batch.target_in), batch.target_out)
            nll[numbers] = each.sum(1).cpu().numpy()
            counts[numbers] = (batch.target_out != PAD).sum(1).cpu().numpy()
    return nll, counts


class TransduceConfig(TaskConfig):
    """Learn to turn one sequence into another. `auto` scores sub-word outputs with BLEU, others with the sequence error
    rate (`ser`: the share of outputs that are not exactly right) and PER or CER. `wer` is the word error rate."""

    task_class = Transduce
    writes = "target"
    command = "translate"
    kind: Literal["transduce"] = "transduce"
    score: Literal["auto", "bleu", "ser", "wer", "rouge"] = "auto"
    sample: int = Field(500, ge=0)  # how many validation pairs are decoded at each validation; 0: only the loss
    scheduled_sampling: AnyOwnInputs = (
        Never()
    )  # scheduled sampling: how often the decoder reads its own tokens in training
    prefix_lm: bool = False  # by a language model, which reads source and target as one text

    @property
    def shape(self) -> str:
        return "language-model" if self.prefix_lm else self.kind

    @classmethod
    def suits(cls, facts: Facts) -> bool:
        return cls is TransduceConfig
