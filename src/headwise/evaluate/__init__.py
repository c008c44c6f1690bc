"""Evaluation metrics, each with a 95 % bootstrap interval; pure functions of outputs and references."""

from headwise.evaluate.accuracy import accuracy
from headwise.evaluate.bleu import bleu, tokenised_bleu
from headwise.evaluate.error_rates import edit_distance, phoneme_error_rate, sequence_error_rate, word_error_rate
from headwise.evaluate.perplexity import perplexity
from headwise.evaluate.rouge import rouge_l, rouge_n
from headwise.evaluate.score import Score

__all__ = [
    "Score",
    "accuracy",
    "bleu",
    "edit_distance",
    "perplexity",
    "phoneme_error_rate",
    "rouge_l",
    "rouge_n",
    "sequence_error_rate",
    "tokenised_bleu",
    "word_error_rate",
]
