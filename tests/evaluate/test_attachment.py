"""Attachment scores: equal to NLTK's evaluator, and what malformed outputs cost."""

import random

import pytest
from nltk.parse import DependencyEvaluator, DependencyGraph

from headwise.evaluate.attachment import attachment_scores
from headwise.text.brackets import write_brackets

Tree = tuple[list[int], list[str]]


def draw_tree(generator: random.Random, length: int) -> Tree:
    order = generator.sample(range(1, length + 1), length)
    heads = [0] * length
    for number, word in enumerate(order[1:], 1):
        heads[word - 1] = generator.choice(order[:number])
    return heads, [generator.choice(["det", "obj", "obl"]) if head else "root" for head in heads]


def to_nltk(tree: Tree) -> DependencyGraph:
    rows = (f"w{number}\tX\t{head}\t{label}" for number, (head, label) in enumerate(zip(*tree, strict=True)))
    return DependencyGraph("\n".join(rows), top_relation_label="root")


def test_equal_to_nltk() -> None:
    generator = random.Random(1)
    lengths = [generator.randint(1, 12) for _ in range(60)]
    ours, true = ([draw_tree(generator, length) for length in lengths] for _ in range(2))
    labelled, unlabelled = DependencyEvaluator(list(map(to_nltk, ours)), list(map(to_nltk, true))).eval()
    uas, las, well_formed = attachment_scores(
        [write_brackets(*tree) for tree in ours], [[write_brackets(*tree)] for tree in true]
    )
    assert (uas.value, las.value) == (pytest.approx(100 * unlabelled), pytest.approx(100 * labelled))
    assert well_formed.value == 100 and 0 < las.value < uas.value < 100 and uas.low < uas.value < uas.high


@pytest.mark.parametrize(
    ("output", "uas", "las", "well_formed"),
    [
        ("( ( det nsubj* ) root* punct )", 100, 100, 100),
        ("( ( det nsubj:pass* ) root* punct )", 100, 100, 100),  # subtypes are ignored
        ("( ( det obj* ) root* punct )", 100, 75, 100),
        ("( ( det nsubj* ) root*", 75, 75, 0),  # a missing word is wrong
        ("( det nsubj root* punct )", 75, 75, 100),
        ("", 0, 0, 0),
    ],
)
def test_scores_of_one_output(output: str, uas: float, las: float, well_formed: float) -> None:
    scores = attachment_scores([output], [["( ( det nsubj* ) root* punct )"]], resamples=0)
    assert [score.value for score in scores] == [uas, las, well_formed]


def test_words_are_counted_and_not_sentences() -> None:
    long, short = "( a b c root* )", "root"
    scores = attachment_scores([long, ""], [[long], [short]], resamples=0)
    assert [score.value for score in scores] == [80, 80, 50]
