"""AlphaFold 2: published counts, and what a rigid motion, a permutation or padding may change."""

import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headwise
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context
from headwise.models.alphafold2 import AlphaFold2
from headwise.models.evoformer import EvoformerBlock, MsaSizes, PairSizes, build_pair_block
from headwise.proteins.features import Features
from headwise.proteins.frames import Frames, rotation_from_quaternion
from headwise.proteins.rigid_groups import to_atom37
from headwise.testing import perturb_parameters

sys.path.insert(0, str(Path(__file__).parents[1] / "proteins"))
from folding import make_features

close = torch.testing.assert_close
BLOCK = 1_829_952


def test_without_triangles_pairs_have_their_transition_alone():
    """The setting leaves out the two multiplications and two attentions of every block, those of templates included,
    and an edge is no longer updated from others."""
    whole, bare = (headwise.build("alphafold2", device="meta", triangles=triangles) for triangles in (True, False))
    triangles = {z: 2 * (4 * z + 6 * (z * z + z)) + 2 * (2 * z + 4 * z + 5 * z * z + 2 * z) for z in (128, 64)}
    lacking = count_parameters(whole) - count_parameters(bare)
    assert lacking == (48 + 4) * triangles[128] + 2 * triangles[64]
    for keeps, others in ((True, True), (False, False)):
        torch.manual_seed(0)
        block = perturb_parameters(build_pair_block(PairSizes(8, 2, 4, 2, 0.0, triangles=keeps)))
        z = torch.randn(1, 5, 5, 8, dtype=torch.float64)
        moved = z.clone()
        moved[0, 1, 3] += 1.0
        change = (block(moved, None, Context()) - block(z, None, Context())).abs().sum(-1)[0]
        assert change[1, 3] > 0 and bool((change > 0).sum() > 1) == others


@cache
def build_model() -> AlphaFold2:
    torch.manual_seed(0)
    return perturb_parameters(headwise.build("alphafold2-tiny"))


def take(features: Features, **changes: Tensor) -> Features:
    return replace(features, **changes)


def test_parameters_of_each_module():
    """Counted from the supplement's sizes: width 256, pairs 128, residues 384, heads of 32, 48 + 4 blocks."""
    model: Any = headwise.build("alphafold2", device="meta")
    m, z, s = 256, 128, 384
    rows = 2 * m + 2 * z + 8 * z + 5 * m * m + 2 * m
    columns, transition = 2 * m + 5 * m * m + 2 * m, 2 * m + 8 * m * m + 5 * m
    outer = 2 * m + 2 * 32 * (m + 1) + (32 * 32 + 1) * z
    triangles = 2 * (4 * z + 6 * (z * z + z)) + 2 * (2 * z + 4 * z + 5 * z * z + 2 * z)
    pair = triangles + 2 * z + 8 * z * z + 5 * z
    assert rows + columns + transition + outer + pair == BLOCK == count_parameters(model.evoformer.layers[0])
    assert count_parameters(model.evoformer) == 48 * BLOCK
    points, values = 3 * 12 * (4 + 4 + 8), 3 * 12 * 16
    attention = (s + 1) * (points + values) + (z + 1) * 12 + 12 + (12 * (16 + 4 * 8 + z) + 1) * s
    assert count_parameters(model.structure.attention) == attention
    parts = {name: count_parameters(part) for name, part in model.named_children()}
    assert parts == {
        "embedding": 32_512, "recycling": 2_816, "template": 329_408, "extra_embedding": 1_664,
        "extra_stack": 2_805_248, "evoformer": 87_837_696, "to_single": 98_688, "structure": 2_019_116,
        "heads": 109_678,
    }  # fmt: skip
    assert sum(parts.values()) == 93_236_826  # "about 93 million"


@torch.no_grad()
def test_a_rigid_motion_of_the_frames_moves_the_structure_and_nothing_else():
    model, length = build_model(), 6
    s, z = torch.randn(1, length, 32, dtype=torch.float64), torch.randn(1, length, length, 16, dtype=torch.float64)
    residues, keep = torch.randint(0, 20, (1, length)), torch.ones(1, length, dtype=torch.bool)
    start = Frames(rotation_from_quaternion(torch.randn(1, length, 3).double()), 5 * torch.randn(1, length, 3).double())
    motion = Frames(rotation_from_quaternion(torch.randn(3).double()), 20 * torch.randn(3).double())
    still = model.structure(s, z, residues, keep, start)
    moved = model.structure(s, z, residues, keep, motion.compose(start))
    close(moved.single, still.single)
    close(moved.torsions, still.torsions)
    there = still.atoms.abs().sum(-1) > 0
    close(moved.atoms[there], motion.apply(still.atoms[there]))
    assert (moved.atoms - still.atoms).abs().max() > 1
    flipped = start.translations * torch.tensor([1.0, 1.0, -1.0])  # a mirror image is no rigid motion
    assert not torch.allclose(
        model.structure(s, z, residues, keep, Frames(start.rotations, flipped)).single, still.single
    )


@torch.no_grad()
def test_the_order_of_rows_after_the_first_changes_nothing():
    features, _ = make_features(7)
    model, order = build_model(), torch.tensor([0, 3, 1, 2])
    shuffled = take(
        features, msa=features.msa[:, order], msa_keep=features.msa_keep[:, order],
        extra=features.extra.flip(1), extra_keep=features.extra_keep.flip(1),
    )  # fmt: skip
    one, other = model(features), model(shuffled)
    close(one.chain.atoms, other.chain.atoms)
    close(one.masked_msa[:, order], other.masked_msa)
    first = take(features, msa=features.msa[:, [1, 0, 2, 3]])
    assert not torch.allclose(model(first).chain.atoms, one.chain.atoms)


@torch.no_grad()
def test_a_chain_alone_is_the_chain_in_a_padded_batch():
    model, (batch, _) = build_model(), make_features(5, 8)
    together, single = model(batch), model(make_features(5)[0])
    close(together.chain.atoms[:1, :5], single.chain.atoms)
    close(together.distogram[:1, :5, :5], single.distogram)
    close(together.plddt[:1, :5], single.plddt)


@torch.no_grad()
def test_masked_rows_and_residues_change_nothing():
    features, _ = make_features(6)
    model = build_model()
    noise = {}
    for field in fields(Features):
        tensor = getattr(features, field.name)
        if field.name in ("msa", "extra", "template_pairs", "template_torsions"):
            noise[field.name] = torch.cat((tensor, torch.randn_like(tensor[:, :1])), dim=1)
        elif field.name in ("msa_keep", "extra_keep", "template_keep"):
            noise[field.name] = torch.cat((tensor, torch.zeros_like(tensor[:, :1])), dim=1)
    close(model(take(features, **noise)).chain.atoms, model(features).chain.atoms)


@torch.no_grad()
def test_only_distances_along_the_chain_count():
    features, _ = make_features(6)
    model = build_model()
    close(model(take(features, positions=features.positions + 100)).chain.atoms, model(features).chain.atoms)
    stretched = take(features, positions=2 * features.positions)
    assert not torch.allclose(model(stretched).chain.atoms, model(features).chain.atoms)


@torch.no_grad()
def test_recycling_feeds_the_outputs_back():
    features, _ = make_features(6)
    model = build_model()
    outputs = [model(features, recycles).chain.atoms for recycles in (0, 1, 2)]
    assert not torch.allclose(outputs[0], outputs[1]) and not torch.allclose(outputs[1], outputs[2])
    close(model(features).chain.atoms, outputs[1])  # the size has one recycle


def test_gradients_flow_through_the_last_cycle_alone():
    features, _ = make_features(6)
    model = build_model()
    seen: list[bool] = []
    handle = model.evoformer.register_forward_hook(
        lambda module, inputs, outputs: seen.append(outputs[0].requires_grad)
    )
    model(features, 2)
    handle.remove()
    assert seen == [False, False, True]


@torch.no_grad()
def test_templates_may_be_missing():
    features, _ = make_features(6, templates=2)
    none, _ = make_features(6, templates=0)
    masked = take(features, template_keep=torch.zeros_like(features.template_keep))
    model = build_model()
    close(model(none).chain.atoms, model(masked).chain.atoms)
    assert not torch.allclose(model(none).chain.atoms, model(features).chain.atoms)


@torch.no_grad()
def test_an_evoformer_block_does_not_know_the_order_of_residues():
    torch.manual_seed(1)
    block = perturb_parameters(EvoformerBlock(MsaSizes(8, 2, 4, 2, 3), PairSizes(6, 2, 3, 2)))
    m, z = torch.randn(1, 3, 5, 8, dtype=torch.float64), torch.randn(1, 5, 5, 6, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    one, other = (
        block(m, z, None, None, Context()),
        block(m[:, :, order], z[:, order][:, :, order], None, None, Context()),
    )
    close(one[0][:, :, order], other[0])
    close(one[1][:, order][:, :, order], other[1])
    assert not torch.allclose(block(m, z.transpose(1, 2), None, None, Context())[1], one[1].transpose(1, 2))


def test_every_parameter_of_the_templates_has_a_gradient():
    features, _ = make_features(6, templates=2)
    model = build_model()
    model.zero_grad()
    model(features, 0).distogram.square().sum().backward()
    model(features, 0).masked_msa.square().sum().backward()
    assert not [
        name for name, weight in model.template.named_parameters() if weight.grad is None or not weight.grad.any()
    ]


def test_checkpointing_has_the_same_gradients():
    features, _ = make_features(5)
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        settings = {"dropout": 0.0, "recycles": 0, "structure": {"dropout": 0.0}, "checkpointing": checkpointing}
        model = perturb_parameters(headwise.build("alphafold2-tiny", **settings)).train()
        model(features).distogram.square().sum().backward()
        gradients.append(model.evoformer.layers[0].rows.norm.weight.grad)
    close(*gradients)


@torch.no_grad()
def test_a_block_starts_as_the_identity_and_all_residues_at_the_origin():
    torch.manual_seed(0)
    model: Any = headwise.build("alphafold2-tiny").eval().double()
    m, z = torch.randn(1, 3, 5, 16, dtype=torch.float64), torch.randn(1, 5, 5, 16, dtype=torch.float64)
    out = model.evoformer(m, z, None, None, Context())
    close(out[0], m)
    close(out[1], z)
    features, _ = make_features(5)
    chain = model(features).chain
    close(chain.backbones.translations, torch.zeros_like(chain.backbones.translations))
    atoms, mask = to_atom37(chain.atoms, features.residues)
    assert mask[..., :3].all() and atoms.isfinite().all()


def test_geometry_keeps_its_precision_in_mixed_precision():
    features, _ = make_features(6)
    torch.manual_seed(0)
    model = perturb_parameters(headwise.build("alphafold2-tiny")).float()
    features = features.to(torch.float32)
    with torch.no_grad():
        exact = model(features, 0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model(features, 0)
    assert mixed.chain.atoms.dtype == mixed.lddt.dtype == torch.float32
    rotations = mixed.chain.frames.rotations
    close(rotations @ rotations.mT, torch.eye(3).expand_as(rotations), atol=1e-5, rtol=0)
    assert not torch.equal(mixed.lddt, exact.lddt)  # the trunk is computed in bfloat16
