"""Corpus BLEU (Papineni et al. 2002) by sacreBLEU (Post 2018), raw and tokenised, with both signatures.

Raw scores are the comparable ones: sacreBLEU tokenises (13a) and keeps the case. Older papers report BLEU of
text that was tokenised by Moses and lower-cased, as `tokenised_bleu` does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from headwise.errors import UserError
from headwise.evaluate.bootstrap import Floats, bootstrap_interval, check_reference_lists
from headwise.evaluate.score import Score

ORDERS = 4


def bleu(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    resamples: int = 1000,
    seed: int = 0,
    lowercase: bool = False,
) -> Score:
    """sacreBLEU of plain text, several references per sentence allowed."""
    return _score("BLEU", "", outputs, references, resamples, seed, tokenize="13a", lowercase=lowercase)


def tokenised_bleu(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    language: str = "en",
    resamples: int = 1000,
    seed: int = 0,
) -> Score:
    """BLEU of Moses-tokenised, lower-cased text: comparable with papers that did so, not with `bleu`."""
    from sacremoses import MosesTokenizer

    check_language(language)
    moses = MosesTokenizer(lang=language)

    def tokenise(text: str) -> str:
        return str(moses.tokenize(text, escape=False, return_str=True))

    outputs = [tokenise(text) for text in outputs]
    references = [[tokenise(text) for text in texts] for texts in references]
    prefix = f"Moses {language}, "
    return _score("BLEU tokenised", prefix, outputs, references, resamples, seed, tokenize="none", lowercase=True)


def check_language(language: str) -> None:
    """Refuse what is no code of a language; of one that Moses does not have, it takes the rules of English."""
    if not re.fullmatch("[a-z]{2,3}", language):
        raise UserError(f"--language: '{language}' is no code of a language; name two or three letters, such as de")


def _score(
    name: str,
    prefix: str,
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    resamples: int,
    seed: int,
    **options: Any,
) -> Score:
    from sacrebleu.metrics import BLEU

    check_reference_lists(outputs, references)
    metric = BLEU(force=True, **options)
    # sacreBLEU takes streams: the first reference of each item, the second of each, ...; None where there is none
    streams: list[Any] = [list(stream) for stream in zip_longest(*references)]
    value = metric.corpus_score(list(outputs), streams).score
    # the same n-gram counts, sentence by sentence; effective_order only silences a warning
    single = BLEU(force=True, effective_order=True, **options)
    scores = [single.sentence_score(o, list(r)) for o, r in zip(outputs, references, strict=True)]
    statistics = [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]
    low, high = bootstrap_interval(statistics, bleu_from_statistics, resamples, seed)
    return Score(name, value, low, high, prefix + str(metric.get_signature()))


def bleu_from_statistics(sums: Floats) -> Floats:
    """BLEU of each row of summed statistics: 4 matches, 4 totals, output length, reference length.

    Missing matches are smoothed as in mteval-v13a (`smooth:exp`): the k-th order without a match counts 2^-k.
    """
    matches, totals = sums[:, :ORDERS], sums[:, ORDERS : 2 * ORDERS]  # (resamples, 4) each
    output, reference = sums[:, -2], sums[:, -1]
    missing = matches == 0
    smoothed = np.where(missing, 0.5 ** np.cumsum(missing, axis=1), matches)
    precision = smoothed / np.maximum(totals, 1)
    brevity = np.exp(np.minimum(0, 1 - reference / np.maximum(output, 1)))
    score = 100 * brevity * np.exp(np.log(precision).mean(axis=1))
    # 0 without any match, or where the outputs are too short for the highest order
    return np.where(missing.all(axis=1) | (totals == 0).any(axis=1), 0.0, score)
