"""Looking at a folded chain: attention as the modules compute it, the truth beside the prediction, views."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise import UserError
from headwise.blocks import axial
from headwise.blocks.attention.pair_bias import PairBias
from headwise.blocks.pair_updates import TriangleAttention
from headwise.blocks.point_attention import InvariantPointAttention
from headwise.inspect import fold_attention
from headwise.inspect.fold_inspection import (
    ChainSource,
    FoldInspection,
    TrueChain,
    read_source,
    take_test_chain,
)
from headwise.inspect.fold_views import VIEWS, AttentionChoice, show
from headwise.proteins.chains import generate_chain
from headwise.proteins.readers.pdb_writer import write_pdb
from headwise.proteins.residues import CA
from headwise.proteins.superposition import Superposition
from headwise.testing import perturb_parameters

ALL = AttentionChoice()


@pytest.fixture
def folded(build_fold_run) -> FoldInspection:
    loaded = build_fold_run("alphafold2-tiny", "fold", clusters=4, extra=4)
    perturb_parameters(loaded.model)
    loaded.model.float()
    return FoldInspection(loaded, take_test_chain(loaded))


@pytest.fixture
def distanced(build_fold_run) -> FoldInspection:
    loaded = build_fold_run("alphafold1-tiny", "distogram", restarts=1, minimise_steps=2)
    return FoldInspection(loaded, take_test_chain(loaded))


def watch(module: torch.nn.Module) -> list[tuple[Tensor, ...]]:
    """The inputs of every call."""
    calls: list[tuple[Tensor, ...]] = []
    module.register_forward_pre_hook(lambda _, inputs: calls.append(inputs))
    return calls


def triangle_weights(module: TriangleAttention, z: Tensor) -> Tensor:
    """softmax_k(q_ij k_ik / sqrt(c) + b_jk), written out: (L, H, L, L), the line first."""
    z = module.norm(z)[0] if module.starting else module.norm(z)[0].transpose(0, 1)
    attention = module.attention
    (pair_bias,) = (each for each in attention.score_mods if isinstance(each, PairBias))
    bias = pair_bias.project(z)  # (j, k, h)
    q, k, _ = attention.qkv.project(z).chunk(3, dim=-1)
    q, k = (x.unflatten(-1, (bias.shape[-1], -1)) for x in (q, k))
    scores = torch.einsum("ijhc,ikhc->ihjk", q, k) / q.shape[-1] ** 0.5 + bias.permute(2, 0, 1)
    return scores.softmax(-1)


@pytest.mark.parametrize("kind", ["starting", "ending"])
@torch.no_grad()
def test_triangle_attention_is_that_of_the_last_cycle(folded, kind):
    module = getattr(folded.loaded.model.evoformer.layers[0].pair, kind)
    calls = watch(module)
    recorded = folded.pictures.attention[kind].layers[0]
    assert len(calls) == 2  # cycles
    last, first = (triangle_weights(module, call[0]).numpy() for call in (calls[1], calls[0]))
    np.testing.assert_allclose(recorded, last, atol=1e-5)
    assert np.abs(recorded - first).max() > 1e-4


@torch.no_grad()
def test_point_attention_is_recorded_in_every_layer(folded):
    module: InvariantPointAttention = folded.loaded.model.structure.attention
    calls = watch(module)
    layers = folded.pictures.attention["points"].layers
    depth = folded.loaded.model.structure.depth
    assert len(layers) == depth and len(calls) == 2 * depth
    s, z, frames, _ = calls[-1][:4]
    sizes = module.sizes
    q, k, _ = module.project(s)[0].unflatten(-1, (3, sizes.heads, sizes.head_width)).unbind(1)
    local = module.project_points(s)[0].unflatten(-1, (sizes.heads, -1, 3))
    points = torch.einsum("lxy,lhpy->lhpx", frames.rotations[0], local) + frames.translations[0][:, None, None]
    q_points, k_points = points[:, :, : sizes.query_points], points[:, :, sizes.query_points : 2 * sizes.query_points]
    squares = (q_points[:, None] - k_points[None]).square().sum((-1, -2))  # (i, j, h)
    gamma = torch.nn.functional.softplus(module.head_weights) * (2 / (9 * sizes.query_points)) ** 0.5
    scores = torch.einsum("ihd,jhd->ijh", q, k) / sizes.head_width**0.5 + module.pair_bias(z)[0] - gamma / 2 * squares
    weights = (scores / 3**0.5).softmax(1).permute(2, 0, 1)
    np.testing.assert_allclose(layers[-1][0], weights.numpy(), atol=1e-5)


def test_tables_that_are_computed_in_parts_are_joined(folded, monkeypatch):
    whole = folded.pictures.attention
    monkeypatch.setattr(axial, "MAX_SCORES", 500)
    parts = FoldInspection(folded.loaded, folded.source).pictures.attention
    for kind, attention in whole.items():
        assert len(attention.layers) == len(parts[kind].layers)
        np.testing.assert_allclose(parts[kind].layers[0], attention.layers[0], atol=1e-5)
    length, rows = len(folded.sequence), 4
    assert [each.layers[0].shape[::3] for each in whole.values()] == [
        (rows, length), (length, rows), (length, length), (length, length), (1, length),
    ]  # fmt: skip
    count = sum(layer.nbytes for each in whole.values() for layer in each.layers)
    assert fold_attention.count_map_bytes(folded.loaded.model.config, length, rows) == count
    monkeypatch.setattr(fold_attention, "MAX_BYTES", count // 2)
    with pytest.raises(UserError, match="inspect a chain of at most"):
        _ = FoldInspection(folded.loaded, folded.source).pictures


def test_a_right_structure_is_right_however_it_is_turned():
    true = generate_chain(0).structure
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    moved = Superposition(turn, torch.tensor([3.0, 4.0, 5.0])).apply(true.atoms.flatten(0, 1)).view_as(true.atoms)
    mask = true.mask.clone()
    mask[4] = False
    found = TrueChain.compare(replace(true, atoms=moved), replace(true, mask=mask))
    known = np.arange(len(true)) != 4
    assert np.allclose(found.structure.atoms[known, CA], moved[known, CA], atol=1e-3)
    assert np.allclose(found.lddt[known], 100) and np.isnan(found.lddt[4])
    assert np.nanmax(found.aligned_error) < 1e-3 and np.isnan(found.aligned_error[4]).all()
    assert np.isnan(found.distances[:, 4]).all() and not found.contacts[4].any()
    mirrored = TrueChain.compare(replace(true, atoms=true.atoms * torch.tensor([1.0, 1.0, -1.0])), true)
    assert np.allclose(mirrored.lddt, 100) and np.nanmax(mirrored.aligned_error) > 3  # distances do not see mirrors


def test_every_view_draws_or_says_why_not(folded, distanced, tmp_path):
    refused = {"fold": {"torsions", "states", "errors"}, "distogram": {"layers", "heads", "alignment", "errors"}}
    for inspection, kind in ((folded, "fold"), (distanced, "distogram")):
        for view in VIEWS:
            if view in refused[kind]:
                with pytest.raises(UserError, match="view"):
                    show(view, inspection, ALL)
            else:
                shown = show(view, inspection, ALL)
                assert shown.to_json()
                assert "<svg" in shown.save(tmp_path / "x.svg", "<title>").read_text()


def test_distances_stand_beside_the_true_ones(folded):
    shown = show("distances", folded, ALL).to_json()
    length = len(folded.sequence)
    contacts = np.array(shown["contacts: predicted above, true below"])
    lower = np.tril_indices(length, -1)
    assert np.array_equal(contacts[lower], folded.true.contacts[lower])
    assert np.allclose(contacts.T[lower], folded.pictures.contacts.T[lower], atol=0.01)
    assert np.allclose(np.array(shown["true distance"]), folded.true.distances, atol=0.01)


def test_maps_of_one_line_and_head(folded):
    choice = AttentionChoice("rows", 1, 2, 3)
    weights = show("alignment", folded, choice).to_json()["weights"]
    assert np.allclose(weights, folded.pictures.attention["rows"].layers[0][2, 1], atol=1e-5)
    means = show("heads", folded, AttentionChoice("columns")).to_json()["weights"]
    assert np.allclose(means[0], folded.pictures.attention["columns"].layers[0].mean(0), atol=1e-5)
    with pytest.raises(UserError, match="--line 99: row-wise attention of the alignment, with pair bias has 4"):
        show("heads", folded, AttentionChoice("rows", line=99))
    with pytest.raises(UserError, match="has nothing to do with --head"):
        show("distances", folded, AttentionChoice(head=1))


def test_a_predicted_aligned_error_is_shown_where_it_was_learnt(build_fold_run):
    loaded = build_fold_run("alphafold2-tiny", "fold", clusters=2, extra=0, weights={"aligned_error": 0.1})
    inspection = FoldInspection(loaded, take_test_chain(loaded))
    shown = show("errors", inspection, ALL).to_json()
    assert set(shown) == {"predicted aligned error", "true aligned error"}


def test_chains_of_files(folded, tmp_path: Path):
    structure = folded.source.true
    pdb, fasta = write_pdb(tmp_path / "a.pdb", structure), tmp_path / "a.fasta"
    fasta.write_text(f">a\n{structure.sequence}\n")
    alone = read_source(fasta)
    assert alone.true is None and len(alone.alignment) == 1
    known, given = read_source(pdb), read_source(fasta, pdb)
    assert known.alignment.query == given.alignment.query == structure.sequence and given.true is not None
    unknown = FoldInspection(folded.loaded, alone)
    assert unknown.true is None and unknown.scores == {}
    assert set(show("confidence", unknown, ALL).to_json()) == {"pLDDT"}
    fasta.write_text(">a\nMKV\n")
    with pytest.raises(UserError, match="the query has 3 residues"):
        read_source(fasta, pdb)
    with pytest.raises(UserError, match="there is no test chain 9"):
        take_test_chain(folded.loaded, 8)
    assert ChainSource("x", alone.alignment).states == ""
