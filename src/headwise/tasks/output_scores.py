"""The scores of generated texts that `task.score` names, and the one of each that chooses the best checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwise.evaluate.answers import exact_match, word_f1
from headwise.evaluate.attachment import attachment_scores
from headwise.evaluate.bleu import bleu, tokenised_bleu
from headwise.evaluate.error_rates import character_error_rate, phoneme_error_rate, sequence_error_rate, word_error_rate
from headwise.evaluate.rouge import rouge_l, rouge_n
from headwise.evaluate.score import Score
from headwise.train.state import Metric

References = Sequence[Sequence[str]]  # those of each output


class Scoring(NamedTuple):
    """What scores depend on besides the texts."""

    resamples: int = 1000  # of the bootstrap; 0 in validation
    language: str = "en"  # of the outputs
    lowercase: bool = False  # references are in lower case
    letters: bool = False  # tokens are characters or bytes


class OutputScores(NamedTuple):
    """Scores that are reported together, and the metric of the best checkpoint."""

    metric: Metric
    compute: Callable[[Sequence[str], References, Scoring], list[Score]]


def score_translations(outputs: Sequence[str], references: References, scoring: Scoring) -> list[Score]:
    scores = [bleu(outputs, references, resamples=scoring.resamples, lowercase=scoring.lowercase)]
    if scoring.resamples:  # for comparison with older papers, not for validation
        scores.append(tokenised_bleu(outputs, references, scoring.language, resamples=scoring.resamples))
    return scores


def score_summaries(outputs: Sequence[str], references: References, scoring: Scoring) -> list[Score]:
    orders = (rouge_n(outputs, references, order, resamples=scoring.resamples) for order in (1, 2))
    return [rouge_l(outputs, references, resamples=scoring.resamples), *orders]


def score_answers(outputs: Sequence[str], references: References, scoring: Scoring) -> list[Score]:
    return [score(outputs, references, resamples=scoring.resamples) for score in (exact_match, word_f1)]


def score_sequences(outputs: Sequence[str], references: References, scoring: Scoring) -> list[Score]:
    rates = (sequence_error_rate, character_error_rate if scoring.letters else phoneme_error_rate)
    return [rate(outputs, references, resamples=scoring.resamples) for rate in rates]


def score_words(outputs: Sequence[str], references: References, scoring: Scoring) -> list[Score]:
    return [rate(outputs, references, resamples=scoring.resamples) for rate in (word_error_rate, sequence_error_rate)]


def score_trees(outputs: Sequence[str], references: References, scoring: Scoring) -> list[Score]:
    return attachment_scores(outputs, references, resamples=scoring.resamples)


OUTPUT_SCORES: dict[str, OutputScores] = {
    "bleu": OutputScores(Metric("bleu", lower=False), score_translations),
    "rouge": OutputScores(Metric("rouge-l", lower=False), score_summaries),
    "ser": OutputScores(Metric("ser", lower=True), score_sequences),
    "wer": OutputScores(Metric("wer", lower=True), score_words),
    "answers": OutputScores(Metric("exact_match", lower=False), score_answers),
    "brackets": OutputScores(Metric("las", lower=False), score_trees),
}
