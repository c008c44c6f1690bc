"""Checks of folding models, features -> structures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from headwise.models.alphafold2 import AlphaFold2
from headwise.models.folding_heads import Prediction
from headwise.proteins.alignments import Alignment
from headwise.proteins.features import Features, MsaSettings, build_features, collate_features

SETTINGS = MsaSettings(clusters=3, extra=2)


def draw_features(*lengths: int, rows: int = 6) -> Features:
    """Features of chains of these lengths with random alignments, in float64."""
    examples = []
    for length in lengths:
        draw = torch.Generator().manual_seed(length)
        table = torch.randint(0, 20, (rows, length), generator=draw)
        alignment = Alignment(table, torch.randint(0, 3, table.shape, generator=draw))
        examples.append(build_features(alignment, SETTINGS, draw))
    return collate_features(examples).to(torch.float64)


def list_outputs(prediction: Prediction, row: int, length: int) -> list[Tensor]:
    """What a model says of one chain without its padding."""
    pairs = [x[row, :length, :length] for x in (prediction.distogram, prediction.aligned_error)]
    residues = [x[row, :length] for x in (prediction.chain.atoms, prediction.lddt, prediction.resolved)]
    return [*pairs, *residues]


@torch.no_grad()
def check_batch(model: AlphaFold2) -> None:
    """A chain gives the same alone as in a padded batch."""
    lengths = (4, 7, 5)
    together = model(draw_features(*lengths))
    for row, length in enumerate(lengths):
        alone = model(draw_features(length))
        torch.testing.assert_close(list_outputs(together, row, length), list_outputs(alone, 0, length))


@torch.no_grad()
def check_exact(model: AlphaFold2) -> None:
    """In evaluation mode the same features give the same structure."""
    features = draw_features(5)
    torch.testing.assert_close(model(features).chain.atoms, model(features).chain.atoms, rtol=0, atol=0)


@torch.no_grad()
def check_row_order(model: AlphaFold2) -> None:
    """The order of rows after the first changes nothing."""
    features, order = draw_features(5), torch.tensor([0, 2, 1])
    shuffled = replace(features, msa=features.msa[:, order], extra=features.extra.flip(1))
    torch.testing.assert_close(list_outputs(model(shuffled), 0, 5), list_outputs(model(features), 0, 5))


@torch.no_grad()
def check_offset(model: AlphaFold2) -> None:
    """Where the numbers of residues begin changes nothing."""
    features = draw_features(5)
    moved = replace(features, positions=features.positions + 50)
    torch.testing.assert_close(list_outputs(model(moved), 0, 5), list_outputs(model(features), 0, 5))


@torch.no_grad()
def check_sees_everything(model: AlphaFold2) -> None:
    """Every residue's confidence depends on every residue of the sequence, the alignment and the extra alignment."""
    features = draw_features(5)
    before = model(features).lddt
    for place in range(5):
        for name in ("msa", "extra"):
            edited = getattr(features, name).clone()
            edited[:, -1, place] += 1
            changed = (model(replace(features, **{name: edited})).lddt != before).any(-1)
            assert changed.all(), f"some residue does not depend on {name} at residue {place}"


Check = Callable[[AlphaFold2], None]
CHECKS: dict[Check, Iterable[str]] = {
    check_batch: ("batch_independent", "padding"),
    check_exact: ("exact",),
    check_row_order: (),
    check_offset: (),
    check_sees_everything: (),
}
