"""Features of AlphaFold 2: clusters, masks, crops, templates, batches."""

import math

import pytest
import torch
from folding import make_alignment, make_chain

from headwise.errors import UserError
from headwise.proteins.alignments import Alignment, make_single_row
from headwise.proteins.features import (
    EXTRA_FEATURES,
    IGNORE,
    MASK_INDEX,
    MSA_FEATURES,
    MsaSettings,
    assign_clusters,
    build_features,
    collate_features,
    crop_chain,
    mask_msa,
)
from headwise.proteins.residues import GAP_INDEX, RESIDUES
from headwise.proteins.templates import TEMPLATE_PAIR, TEMPLATE_TORSIONS, build_template_features, encode_distances

close = torch.testing.assert_close


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_sizes_are_those_of_the_supplement():
    assert (MSA_FEATURES, EXTRA_FEATURES, TEMPLATE_PAIR, TEMPLATE_TORSIONS) == (49, 25, 88, 57)


def test_rows_are_clusters_or_extra():
    chain = make_chain(30)
    alignment = make_alignment(chain, rows=12)
    features = build_features(alignment, MsaSettings(clusters=4, extra=5), draw())
    assert features.msa.shape == (4, 30, 49) and features.extra.shape == (5, 30, 25)
    assert torch.equal(features.msa[0, :, :23].argmax(-1), alignment.rows[0])  # the query is the first
    chosen = features.msa[..., :23].argmax(-1)
    rest = features.extra[..., :23].argmax(-1)
    rows = {tuple(row) for row in alignment.rows.tolist()}
    assert {tuple(row) for row in (*chosen.tolist(), *rest.tolist())} <= rows and len(
        {*map(tuple, chosen.tolist())}
    ) == 4
    few = build_features(alignment, MsaSettings(clusters=50, extra=5), draw())
    assert few.msa.shape[0] == 12 and few.extra.shape[0] == 0


def test_a_row_belongs_to_the_centre_that_it_agrees_with_most():
    """Gaps and masks agree with nothing."""
    centres = torch.tensor([[0, 1, 2, 3], [0, GAP_INDEX, GAP_INDEX, MASK_INDEX]])
    rows = torch.tensor([[0, 1, 5, 5], [0, GAP_INDEX, GAP_INDEX, 7], [9, GAP_INDEX, GAP_INDEX, 3]])
    assert assign_clusters(centres, rows).tolist() == [0, 0, 0]
    assert assign_clusters(centres.flip(0), torch.tensor([[0, 5, 5, 5]])).tolist() == [0]  # the first of equals


def test_the_profile_of_a_cluster_is_the_mean_of_its_members():
    rows = torch.tensor([[0, 1], [0, 2], [0, GAP_INDEX]])
    alignment = Alignment(rows, torch.tensor([[0, 0], [0, 3], [0, 6]]))
    features = build_features(alignment, MsaSettings(clusters=1, extra=8), draw())
    profile, deletions = features.msa[0, :, 25:48], features.msa[0, :, 48]
    close(profile[0, 0], torch.tensor(1.0))
    close(profile[1, [1, 2, GAP_INDEX]], torch.full((3,), 1 / 3))
    close(deletions, torch.tensor([0.0, math.atan(3.0 / 3) * 2 / math.pi]))


def test_masking_follows_the_shares_and_labels_what_it_hides():
    rows = torch.full((200, 50), 4)
    profile = torch.zeros(50, 22)
    profile[:, 7] = 1.0
    settings = MsaSettings(masked=0.5)
    masked, labels = mask_msa(rows, profile, settings, draw())
    hidden = labels != IGNORE
    assert (labels[hidden] == 4).all() and (masked[~hidden] == 4).all()
    assert hidden.float().mean().item() == pytest.approx(0.5, abs=0.02)
    shares = {value: (masked[hidden] == value).float().mean().item() for value in (MASK_INDEX, 7, 4)}
    assert shares[MASK_INDEX] == pytest.approx(0.7, abs=0.03)
    assert shares[7] == pytest.approx(0.1 + 0.005, abs=0.02) and shares[4] == pytest.approx(0.1 + 0.005, abs=0.02)
    nothing, labels = mask_msa(rows, profile, MsaSettings(masked=0.0), draw())
    assert torch.equal(nothing, rows) and (labels == IGNORE).all()


def test_what_is_masked_is_nowhere_in_the_features_of_its_cluster():
    """A cluster of the centre alone shows the mask in its profile, too."""
    alignment = make_single_row(make_chain(40).sequence)
    features = build_features(alignment, MsaSettings(), draw(), mask=True)
    hidden = features.labels != IGNORE
    shown = features.msa[..., :23].argmax(-1)
    changed = hidden & (shown != features.labels)
    assert changed.any()
    for part in (features.msa[..., :23], features.msa[..., 25:48]):
        assert (part[changed].gather(-1, features.labels[changed].unsqueeze(-1)) == 0).all()


def test_a_crop_is_a_part_of_the_whole():
    chain = make_chain(30)
    alignment = make_alignment(chain)
    part, rows, start = crop_chain(chain, alignment, 8, draw())
    assert len(part) == 8 and part.sequence == chain.sequence[start : start + 8]
    assert torch.equal(rows.rows, alignment.rows[:, start : start + 8])
    settings = MsaSettings(clusters=50)
    whole, crop = (build_features(a, settings, draw(1), start=s) for a, s in ((alignment, 0), (rows, start)))
    close(crop.msa, whole.msa[:, start : start + 8])
    assert torch.equal(crop.positions, whole.positions[start : start + 8])
    assert crop_chain(chain, alignment, 30)[0] is chain
    starts = {crop_chain(chain, alignment, 8, draw(seed))[2] for seed in range(60)}
    assert min(starts) == 0 and max(starts) == 22


def test_templates_may_be_none_and_must_be_aligned():
    chain = make_chain(6)
    pairs, torsions = build_template_features([chain], 6)
    assert pairs.shape == (1, 6, 6, 88) and torsions.shape == (1, 6, 57)
    distances = torch.cdist(chain.beta[0], chain.beta[0])
    bins = pairs[0, :, :, :39]
    close(bins.sum(-1), (distances > 3.25).float())
    assert ((bins.argmax(-1) * 1.25 + 3.25 < distances) | (distances <= 3.25)).all()
    assert [tensor.shape[0] for tensor in build_template_features([], 6)] == [0, 0]
    with pytest.raises(UserError, match=r"a template has 6 residues and the query 9"):
        build_features(make_alignment(make_chain(9)), MsaSettings(), templates=[chain])


def test_bins_are_open_at_the_end():
    bins = encode_distances(torch.tensor([1.0, 3.3, 4.6, 1000.0]), 3.25, 20.75, 15)
    assert bins.sum(-1).tolist() == [0, 1, 1, 1] and bins.argmax(-1).tolist() == [0, 0, 1, 14]


def test_a_batch_is_padded_and_masked():
    chains = [make_chain(4), make_chain(7, seed=1)]
    settings = MsaSettings(clusters=3, extra=2)
    batch = collate_features(
        [build_features(make_alignment(chain, rows=2 + 5 * i), settings) for i, chain in enumerate(chains)]
    )
    assert batch.keep.sum(1).tolist() == [4, 7] and batch.msa.shape[:3] == (2, 3, 7)
    assert batch.msa_keep[0].sum() == 2 * 4 and not batch.extra_keep[0].any()
    assert (batch.labels == IGNORE).all() and (batch.residues[0, 4:] == len(RESIDUES)).all()
