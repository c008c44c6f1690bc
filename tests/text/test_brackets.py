"""Trees as brackets: every tree is read back, and what is not well formed is read as far as it goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.text.brackets import MISSING, Tree, count_words, read_brackets, write_brackets

LABELS = ["det", "nsubj", "nsubj:pass", "obl", "punct"]


@st.composite
def draw_tree(draw: st.DrawFn) -> Tree:
    """Any tree of up to twelve words, in any order: most of them have crossing arcs."""
    length = draw(st.integers(1, 12))
    order = draw(st.permutations(range(1, length + 1)))
    heads = [0] * length
    for number, word in enumerate(order[1:], 1):
        heads[word - 1] = draw(st.sampled_from(order[:number]))
    labels = draw(st.lists(st.sampled_from(LABELS), min_size=length, max_size=length))
    return Tree(tuple(heads), tuple(labels))


def has_crossing_arcs(tree: Tree) -> bool:
    arcs = [sorted((word, head)) for word, head in enumerate(tree.heads, 1) if head]
    root = tree.heads.index(0) + 1
    crossing = any(a < c < b < d for a, b in arcs for c, d in arcs)
    return crossing or any(low < root < high for low, high in arcs)  # an arc over the root


@settings(max_examples=150, deadline=None)
@given(draw_tree())
def test_every_tree_is_read_back(tree: Tree) -> None:
    text = write_brackets(tree.heads, tree.labels)
    assert read_brackets(text, len(tree.heads)) == tree
    assert count_words(text) == len(tree.heads)
    assert text.split().count("(") == text.split().count(")") == len(set(tree.heads) - {0})


@settings(max_examples=150, deadline=None)
@given(draw_tree())
def test_distances_are_written_where_arcs_cross_alone(tree: Tree) -> None:
    assert ("@" in write_brackets(tree.heads, tree.labels)) == has_crossing_arcs(tree)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(["(", ")", "det", "root*", "*", "x@+2", "x*@-1", "x@9", "<unk>"]), max_size=12))
def test_any_output_is_read(tokens: list[str]) -> None:
    tree = read_brackets(" ".join(tokens), 4)
    assert len(tree.heads) == len(tree.labels) == 4 and all(MISSING <= head <= 4 for head in tree.heads)
    if tree.well_formed:
        assert read_brackets(write_brackets(tree.heads, tree.labels), 4) == tree


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("( ( det nsubj* ) root* punct", (2, 3, 0, 3)),  # the end is missing
        ("( ( det nsubj* ) root* punct ) )", (2, 3, 0, 3)),  # a bracket too many
        ("( ( det nsubj* ) root* punct punct )", (2, 3, 0, 3)),  # a word too many
        ("( ( det nsubj* ) root* )", (2, 3, 0, MISSING)),  # a word is missing
        ("( ( det nsubj ) root* punct )", (3, 3, 0, 3)),  # a bracket without a word of its own
        ("( det nsubj* root* punct )", (2, 0, 2, 2)),  # two heads in a bracket
        ("( det nsubj* ) ( root* punct )", (2, 0, 0, 3)),  # two roots
        ("det nsubj* root punct", (0, 0, 0, 0)),
        ("", (MISSING,) * 4),
    ],
)
def test_what_is_not_well_formed_is_read_as_far_as_it_goes(text: str, heads: tuple[int, ...]) -> None:
    tree = read_brackets(text, 4)
    assert tree.heads == heads and not tree.well_formed


@pytest.mark.parametrize(
    ("heads", "labels", "message"),
    [
        ([2, 1], ["a", "b"], "0 words have no head"),
        ([0, 0], ["a", "b"], "2 words have no head"),
        ([0, 3, 2], ["a", "b", "c"], "heads go round in a circle"),
        ([0, 9], ["a", "b"], "word 2 has the head 9"),
        ([0], ["a b"], "the relation 'a b' has brackets, stars, @ or spaces"),
        ([0], ["a*"], "the relation 'a\\*' has"),
    ],
)
def test_what_is_no_tree_is_refused(heads: list[int], labels: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_brackets(heads, labels)


def test_long_chains_do_not_overflow_the_stack() -> None:
    heads = [*range(2, 5001), 0]
    assert read_brackets(write_brackets(heads, ["dep"] * 5000), 5000).heads == tuple(heads)
