"""Adaptive input embeddings against a lookup id by id, and the clusters that settings make."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from headwise.blocks.tables import TOKEN_EMBEDDINGS
from headwise.blocks.token_embeddings import AdaptiveEmbedding, AdaptiveEmbeddingConfig, Clusters
from headwise.config.base import validate
from headwise.errors import UserError

close = torch.testing.assert_close
SETTINGS = {"kind": "adaptive", "cutoffs": [3, 5], "widths": [8, 4, 2]}


def build(**changes: Any) -> Any:
    torch.manual_seed(0)
    return TOKEN_EMBEDDINGS.parse({**SETTINGS, **changes}).build(12, 8)


@pytest.mark.parametrize("projections", ["narrower", "tails", "all"])
def test_a_token_has_the_projected_vector_of_its_cluster(projections: str) -> None:
    embedding, ids = build(projections=projections), torch.arange(12).view(3, 4)
    rows = []
    for token in range(12):
        cluster, first = (0, 0) if token < 3 else (1, 3) if token < 5 else (2, 5)
        vector, projection = embedding.tables[cluster].weight[token - first], embedding.projections[cluster]
        rows.append(vector if isinstance(projection, nn.Identity) else projection.weight @ vector)
    expected = torch.stack(rows)
    close(embedding(ids), expected.view(3, 4, 8))
    close(embedding(ids[0]), expected[:4])
    close(embedding.weight, expected)
    x = torch.randn(2, 8)
    close(embedding.compute_logits(x), x @ expected.t())
    parameters = list(embedding.parameters())
    scale = torch.randn(3, 4, 8)
    close(
        torch.autograd.grad((embedding(ids) * scale).sum(), parameters),
        torch.autograd.grad((expected.view(3, 4, 8) * scale).sum(), parameters),
    )


@pytest.mark.parametrize(
    ("projections", "projected"),
    [("narrower", (False, True, True)), ("tails", (False, True, True)), ("all", (True, True, True))],
)
def test_clusters_that_are_projected(projections: str, projected: tuple[bool, ...]) -> None:
    assert build(projections=projections).clusters == Clusters((3, 2, 7), (8, 4, 2), projected)


def test_widths_follow_from_div_value() -> None:
    clusters = AdaptiveEmbeddingConfig(cutoffs=(20_000, 40_000, 200_000)).make_clusters(267_735, 1024, "")
    assert clusters.widths == (1024, 256, 64, 16)
    assert clusters.sizes == (20_000, 20_000, 160_000, 67_735) and clusters.starts == (0, 20_000, 40_000, 200_000)


def test_clusters_of_one_width_are_one_table() -> None:
    assert type(build(widths=[8, 8, 8])) is nn.Embedding
    assert isinstance(build(widths=[8, 8, 8], projections="tails"), AdaptiveEmbedding)


@pytest.mark.parametrize("token", [-1, 12])
def test_an_id_outside_the_vocabulary_is_an_error(token: int) -> None:
    with pytest.raises(IndexError):
        build()(torch.tensor([token]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cutoffs": [5, 3], "widths": []}, "cutoffs: [5, 3] do not increase; sort them, without duplicates"),
        ({"cutoffs": [3, 3], "widths": []}, "cutoffs: [3, 3] do not increase; sort them, without duplicates"),
        ({"cutoffs": [0, 3]}, "cutoffs.0: input should be greater than or equal to 1 (it is 0)"),
        ({"cutoffs": [3]}, "widths: 1 cutoffs make 2 clusters, and there are 3 widths; give one for each"),
        ({"widths": [8, 4, 0]}, "widths.2: input should be greater than or equal to 1 (it is 0)"),
        ({"div_value": 0.5}, "div_value: input should be greater than or equal to 1 (it is 0.5)"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(AdaptiveEmbeddingConfig, {**SETTINGS, **settings})
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"cutoffs": [3, 12]},
            "token_embedding.cutoffs: 12 is beyond the vocabulary of 12 tokens; choose cutoffs below it",
        ),
        (
            {"cutoffs": [], "widths": []},
            "token_embedding.cutoffs: there are none; give the ids at which clusters begin, as in [2000, 9000]",
        ),
        (
            {"widths": [], "cutoffs": [3, 5], "div_value": 4},
            "token_embedding.div_value: 4 leaves no channel of 8 to the last of 3 clusters; choose a smaller one, or "
            "set widths",
        ),
    ],
)
def test_clusters_that_do_not_fit_the_model_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        build(**settings)
    assert str(caught.value) == sentence
