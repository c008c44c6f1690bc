"""The extractive stage of Liu et al. 2018: paragraphs ranked by the tf-idf of the title's words, so that what is cut
off at the end of a long input matters least."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import log

_WORD = re.compile(r"\w+")


def score_paragraphs(title: str, paragraphs: Sequence[str]) -> list[float]:
    """The tf-idf of the title's words in each paragraph: sum_w n(w) log(N / N(w)), where n(w) is how often the
    paragraph has the word w, and N(w) in how many of the N paragraphs it is. Case is ignored.

    >>> [round(score, 2) for score in score_paragraphs("the cat", ["the dog", "a cat, the Cat", "the end"])]
    [0.0, 2.2, 0.0]
    """
    counts = [Counter(_WORD.findall(paragraph.lower())) for paragraph in paragraphs]
    words = dict.fromkeys(_WORD.findall(title.lower()))
    having = {word: sum(word in count for count in counts) for word in words}
    weights = {word: log(len(paragraphs) / number) for word, number in having.items() if number}
    return [sum(count[word] * weight for word, weight in weights.items()) for count in counts]


def rank_paragraphs(title: str, paragraphs: Sequence[str]) -> list[str]:
    """The paragraphs, the most relevant to the title first; equal ones stay in their order.

    >>> rank_paragraphs("cat", ["a dog", "a cat", "an end"])
    ['a cat', 'a dog', 'an end']
    """
    scores = score_paragraphs(title, paragraphs)
    return [paragraphs[number] for number in sorted(range(len(paragraphs)), key=lambda number: -scores[number])]
