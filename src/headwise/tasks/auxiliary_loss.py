"""Fine-tuning of decoders with an auxiliary language model loss and delimiter tokens (Radford et al. 2018).

The loss is L_task + auxiliary · L_LM on the same texts; the paper's weight is 0.5. The texts stand between a start and
an extract token, two texts of a pair with a delimiter between them; these three ids are the last of the vocabulary and
newly initialised.

DISCREPANCY: the paper sums the language model loss over the corpus, its released code takes the mean over the tokens of
each text and then over texts; here it is the mean over all tokens of a batch, as in `transformers`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from pydantic import Field, model_validator

from headwise.blocks.losses import Loss
from headwise.config.base import NonNegativeFloat, Problems
from headwise.models.config import CLASSIFY_WITH_LM, ModelConfig
from headwise.models.text_classifier import DecoderClassifier, SequenceClassifier
from headwise.tasks.base import TaskConfig

DELIMITERS = 3  # start, delimiter and extract token


class AuxiliaryFields(TaskConfig):
    """Settings of classification and regression, most of them by a decoder."""

    # weight of the language model loss on the same texts, 0.5 in GPT; 0: none
    auxiliary: NonNegativeFloat = 0.0
    delimiters: bool = False  # start, delimiter and extract tokens of their own, instead of BOS and EOS
    both_orders: bool = False  # of a pair: the sum of the vectors of A, B and of B, A, for symmetric tasks
    # rows of the vocabulary after the tokeniser's, that a pretrained model has: span corruption has 100 sentinels
    extra_tokens: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _check_extra_tokens(self) -> Self:
        if self.extra_tokens and self.delimiters:
            raise Problems(
                [(("extra_tokens",), "delimiters are the rows after the tokeniser's; leave one of both out")]
            )
        return self

    @property
    def uses_decoder(self) -> bool:
        """Whether the model must be a decoder with a language model head."""
        return bool(self.auxiliary or self.delimiters or self.both_orders)

    @property
    def model_task(self) -> str:
        return CLASSIFY_WITH_LM if self.uses_decoder else super().model_task


def build_classifier(config: AuxiliaryFields, model: ModelConfig, vocab: int, outputs: int) -> SequenceClassifier:
    """The classifier, with the inputs of the config."""
    extra = config.extra_tokens + config.delimiters * DELIMITERS
    built: SequenceClassifier = model.build(vocab + extra, outputs, config.model_task)
    if isinstance(built, DecoderClassifier):
        built.both_orders = config.both_orders
        if config.delimiters:
            built.use_delimiters()
    return built


def add_auxiliary(loss: Loss, language_model_loss: Loss, weight: float) -> Loss:
    """Add the auxiliary language model loss: the sum of two means, of the task over texts, and `weight` times that of
    the language model over tokens."""
    mean = language_model_loss.total / language_model_loss.count
    return replace(loss, total=loss.total + weight * loss.count * mean)
