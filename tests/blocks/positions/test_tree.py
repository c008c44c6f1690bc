"""Structural positions in dependency trees: their properties, and a tagger that needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headwise
from headwise import UserError
from headwise.blocks.positions.tree import (
    FusedTreePositions,
    SentencePositions,
    compute_depths,
    compute_relations,
    find_ancestors,
)
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.text.parsed import Parsed

#          the  old  dog barks at   me
HEADS = [[3, 3, 4, 0, 6, 4]]


@st.composite
def draw_heads(draw: Any) -> list[int]:
    """Each word's head comes earlier in a random order, so there are no circles."""
    length = draw(st.integers(1, 12))
    order = draw(st.permutations(range(length)))
    heads = [0] * length
    for number, word in enumerate(order[1:], 1):
        heads[word] = 1 + order[draw(st.integers(0, number - 1))]
    return heads


def walk_to_root(heads: list[int], word: int) -> list[int]:
    """The way from a word to the root, by hand."""
    way = [word]
    while heads[way[-1]]:
        way.append(heads[way[-1]] - 1)
    return way


@given(draw_heads())
def test_depths_and_relations_are_those_of_a_walk_through_the_tree(heads: list[int]) -> None:
    above = find_ancestors(torch.tensor([heads]))
    ways = [walk_to_root(heads, word) for word in range(len(heads))]
    assert compute_depths(above)[0].tolist() == [len(way) - 1 for way in ways]
    found = compute_relations(torch.tensor([heads]))[0]
    for i, one in enumerate(ways):
        for j, other in enumerate(ways):
            on_one_way = i in other or j in one
            sign = (j > i) - (j < i)
            expected = len(other) - len(one) if on_one_way else sign * (len(one) + len(other) - 2)
            assert found[i, j] == expected


def test_trees_of_equal_depths_have_equal_absolute_positions() -> None:
    """Wang et al.'s absolute encoding tells depths, not who depends on whom."""
    one, other = torch.tensor([[0, 1, 1, 2]]), torch.tensor([[0, 1, 1, 3]])
    assert torch.equal(compute_depths(find_ancestors(one)), compute_depths(find_ancestors(other)))
    assert not torch.equal(compute_relations(one), compute_relations(other))


def build_sinusoid_table(positions: list[int], width: int) -> np.ndarray:
    """Vaswani et al. (2017), section 3.5, number by number."""
    table = np.empty((len(positions), width))
    for row, position in enumerate(positions):
        for i in range(width):
            angle = position / 10_000 ** (2 * (i // 2) / width)
            table[row, i] = np.sin(angle) if i % 2 == 0 else np.cos(angle)
    return table


def test_absolute_positions_are_tanh_of_a_sum_of_two_projections() -> None:
    """Wang et al. (2019): x + tanh(W p + U d) of the sinusoids of place p and depth d, in numpy."""
    width, depth = 6, [2, 2, 1, 0, 2, 1]
    fusion, x = FusedTreePositions(width).double(), torch.randn(1, 6, width, dtype=torch.float64)
    found = fusion(x, torch.arange(6), torch.tensor(HEADS))
    place, tree = (layer.weight.detach().numpy() for layer in (fusion.place, fusion.depth))
    summed = build_sinusoid_table(list(range(6)), width) @ place.T + build_sinusoid_table(depth, width) @ tree.T
    np.testing.assert_allclose(found.detach().numpy()[0], x.numpy()[0] + np.tanh(summed), rtol=1e-10, atol=1e-12)


def test_without_absolute_tree_positions_words_have_sinusoidal_positions() -> None:
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    found = SentencePositions(8)(x, torch.arange(6), torch.tensor(HEADS))
    np.testing.assert_allclose(found.numpy()[0], x.numpy()[0] + build_sinusoid_table(list(range(6)), 8), rtol=1e-10)


@pytest.mark.parametrize("absolute", [True, False])
def test_embeddings_of_a_model_have_these_positions(absolute: bool) -> None:
    """Scaled words, and the positions on top of them."""
    model = build_tiny(absolute=absolute).double()
    words, heads = torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.tensor(HEADS)
    embedding = model.encoder.embed
    x = embedding.table.weight[words] * embedding.table.embedding_dim**0.5
    expected = embedding.absolute(x, torch.arange(6), heads)
    assert isinstance(embedding.absolute, FusedTreePositions if absolute else SentencePositions)
    torch.testing.assert_close(embedding(words + 12 * heads).x, expected)


def build_tiny(**positions: Any) -> Any:
    torch.manual_seed(0)
    settings = {"kind": "tree", **positions}
    return headwise.build("transformer-tiny", vocab=12, outputs=9, task="tag", positions=settings, dropout=0.0).eval()


@pytest.mark.parametrize(("absolute", "relative"), [(True, False), (False, True), (True, True)])
def test_outputs_depend_on_the_tree_and_not_on_padding(absolute: bool, relative: bool) -> None:
    model = build_tiny(absolute=absolute, relative=relative)
    words = torch.tensor([[5, 6, 7, 8]])
    one, other = (words + 12 * torch.tensor([heads]) for heads in ([2, 0, 2, 3], [2, 3, 0, 1]))
    assert not torch.allclose(model(one), model(other))
    padded = torch.nn.functional.pad(one, (0, 3))
    torch.testing.assert_close(model(padded)[:, :4], model(one))
    together = model(torch.cat([one, other]))
    torch.testing.assert_close(together[1], model(other)[0])


def test_chunks_of_queries_see_the_same_tree() -> None:
    model = build_tiny()
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]]) + 12 * torch.tensor(HEADS)
    whole = model(ids)
    from functools import partial

    from headwise.blocks.attention.kernels import chunked

    for layer in model.encoder.stack.layers:
        layer.parts[0].kernel = partial(chunked, chunk=2)
    torch.testing.assert_close(model(ids), whole)


def test_tree_positions_are_refused_in_a_decoder() -> None:
    with pytest.raises(UserError, match="use it in an encoder"):
        headwise.build("transformer-tiny", vocab=12, task="language-model", positions="tree")


def test_parsed_words_carry_their_heads() -> None:
    words = Parsed(["bark", "dogs"])
    assert words.encode("dogs|2 bark|0") == [5 + 12, 4] and words.words("dogs|2 bark|0") == ["dogs", "bark"]
    with pytest.raises(UserError, match=r"'dogs': a parsed word is written with its head"):
        words.encode("dogs bark|0")
    with pytest.raises(UserError, match=r"'dogs\|7'"):
        words.encode("dogs|7 bark|0")


def write_sentence(number: int) -> str:
    """Two alike words, of which the tree alone says which one is the root and so a verb."""
    first = number % 2 == 0
    heads, tags = ((0, 1), ("VERB", "NOUN")) if first else ((2, 0), ("NOUN", "VERB"))
    words = ("fish", "fish")
    lines = [f"{i + 1}\t{words[i]}\t_\t{tags[i]}\t_\t_\t{heads[i]}\tdep\t_\t_" for i in range(2)]
    return "\n".join(lines) + "\n\n"


def test_a_tagger_reads_the_tree(tmp_path: Path) -> None:
    file = tmp_path / "fish.conllu"
    file.write_text("".join(map(write_sentence, range(40))))
    experiment = parse_experiment(
        {
            "task": "tag",
            "data": {"train": str(file), "valid": str(file), "format": "conllu-trees", "cache": str(tmp_path / "c")},
            "tokeniser": "parsed",
            "model": {"kind": "transformer-tiny", "positions": "tree", "dropout": 0.0},
            "train": {"steps": 30, "batch_size": 8, "schedule": {"kind": "cosine", "lr": 0.003, "warmup": 5}},
        }
    )
    run, _ = train_experiment(experiment, tmp_path)
    loaded = headwise.load(run.path)
    assert loaded.evaluate().scores[0].value == 100
    assert loaded.tag(["fish|2 fish|0"]) == [[("fish", "NOUN"), ("fish", "VERB")]]
