"""Modules of AlphaFold 2 beside those of transformers' EsmForProteinFolding, with copied weights, in float64."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.esm.configuration_esm import StructureModuleConfig, TrunkConfig
from transformers.models.esm.modeling_esmfold import (
    EsmFoldInvariantPointAttention,
    EsmFoldSelfAttention,
    EsmFoldStructureModule,
    EsmFoldTriangleAttention,
    EsmFoldTriangleMultiplicativeUpdate,
)
from transformers.models.esm.openfold_utils.rigid_utils import Rigid, Rotation

from headwise.blocks.axial import RowAttention
from headwise.blocks.pair_updates import TriangleAttention, TriangleMultiplication
from headwise.blocks.point_attention import InvariantPointAttention, PointAttentionSizes
from headwise.blocks.stream import Context
from headwise.models.structure_module import StructureModule
from headwise.proteins import rigid_groups
from headwise.proteins.frames import Frames, rotation_from_quaternion

PAIR, WIDTH = 16, 24
SIZES = PointAttentionSizes(heads=3, head_width=5, query_points=2, value_points=4)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@pytest.fixture(autouse=True)
def _seed(double_rigids):
    torch.manual_seed(0)


def randomise(module: nn.Module) -> Any:
    """The module in float64 and evaluation mode, with random weights, so that no gate is constant and no output 0."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


def copy(target: nn.Linear, *sources: nn.Linear) -> None:
    """Concatenate the rows of linear layers into a fused one."""
    target.weight.data = torch.cat([source.weight for source in sources])
    if target.bias is not None:
        target.bias.data = torch.cat([source.bias for source in sources])


def copy_all(pairs: Sequence[tuple[nn.Module, nn.Module]]) -> None:
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())


def draw_mask(rows: int, length: int) -> Tensor:
    """(B, L) True = real, with padding in all rows but the first."""
    return torch.arange(length) < torch.tensor([length, *(length - 2 for _ in range(rows - 1))]).unsqueeze(-1)


def draw_pairs(rows: int = 2, length: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs (B, L, L, K), the mask of pairs (B, L, L) and that of residues."""
    real = draw_mask(rows, length)
    return torch.randn(rows, length, length, PAIR, dtype=torch.float64), real[:, :, None] & real[:, None], real


@pytest.mark.parametrize("outgoing", [True, False])
def test_triangle_multiplication(outgoing):
    """Algorithms 11 and 12."""
    theirs = randomise(
        EsmFoldTriangleMultiplicativeUpdate(
            TrunkConfig(pairwise_state_dim=PAIR, pairwise_head_width=PAIR), _outgoing=outgoing
        )
    )
    ours = TriangleMultiplication(PAIR, PAIR, outgoing).double()
    copy(ours.project, theirs.linear_a_p, theirs.linear_b_p)
    copy(ours.project_gate, theirs.linear_a_g, theirs.linear_b_g)
    norms = ((ours.norm, theirs.layer_norm_in), (ours.hidden_norm, theirs.layer_norm_out))
    copy_all((*norms, (ours.out, theirs.linear_z), (ours.gate, theirs.linear_g)))
    z, keep, _ = draw_pairs()
    close(ours(z, keep), theirs(z, keep.double()))
    close(ours(z, None), theirs(z))


@pytest.mark.parametrize("starting", [True, False])
def test_triangle_attention(starting):
    """Algorithms 13 and 14; edges of padding, which nothing reads, may differ."""
    theirs = randomise(EsmFoldTriangleAttention(PAIR, 4, 3, starting=starting))
    ours = TriangleAttention(PAIR, 3, 4, starting).double()
    attention = ours.attention
    copy(attention.qkv.project, theirs.mha.linear_q, theirs.mha.linear_k, theirs.mha.linear_v)
    copy_all(
        ((attention.out, theirs.mha.linear_o), (attention.gate, theirs.mha.linear_g), (ours.norm, theirs.layer_norm))
    )
    attention.score_mods[0].project.weight.data = theirs.linear.weight.data
    z, keep, _ = draw_pairs()
    close(ours(z, keep, Context())[keep], theirs(z, keep.double())[keep])
    close(ours(z, None, Context()), theirs(z))


def test_row_attention_with_pair_bias():
    """Algorithm 7: ESMFold's sequence attention is that of one row."""
    theirs, norm, pair_norm = (
        randomise(EsmFoldSelfAttention(WIDTH, 3, 8, gated=True)),
        nn.LayerNorm(WIDTH),
        nn.LayerNorm(PAIR),
    )
    to_bias = randomise(nn.Linear(PAIR, 3, bias=False))
    ours = RowAttention(WIDTH, 3, 8, PAIR).double()
    copy_all(((ours.norm, norm), (ours.attention.gate, theirs.g_proj), (ours.attention.out, theirs.o_proj)))
    q, k, v = (x.flatten(0, 1) for x in theirs.proj.weight.unflatten(0, (3, 3, 8)).unbind(1))  # heads, then q, k and v
    ours.attention.qkv.project.weight.data = torch.cat((q, k, v))
    ours.attention.score_mods[0].project.weight.data = to_bias.weight.data
    z, _, real = draw_pairs()
    rows = torch.randn(2, 3, 7, WIDTH, dtype=torch.float64)  # three rows of one protein share their pairs
    found = ours(rows, real[:, None].expand(2, 3, 7), Context(), z)
    for number in range(3):
        expected, _ = theirs(norm.double()(rows[:, number]), real, to_bias(pair_norm.double()(z)))
        close(found[:, number][real], expected[real])


def copy_points(target: nn.Linear, q: nn.Linear, kv: nn.Linear) -> None:
    """Rows of points: theirs are x of all points, then y and z; ours are heads with queries, keys and values, and in
    each x, y and z."""

    def reorder(x: Tensor) -> Tensor:  # (3 * heads * points, ...) -> (heads, points, 3, ...)
        return x.unflatten(0, (3, SIZES.heads, -1)).movedim(0, 2)

    target.weight.data = torch.cat((reorder(q.weight), reorder(kv.weight)), dim=1).flatten(0, 2)
    target.bias.data = torch.cat((reorder(q.bias), reorder(kv.bias)), dim=1).flatten()


def copy_attention(ours: InvariantPointAttention, theirs: EsmFoldInvariantPointAttention) -> None:
    heads, width, points = SIZES.heads, SIZES.head_width, SIZES.value_points
    for name in ("weight", "bias"):
        q, kv = getattr(theirs.linear_q, name), getattr(theirs.linear_kv, name).unflatten(0, (heads, 2, width))
        rows = torch.cat((q, kv[:, 0].flatten(0, 1), kv[:, 1].flatten(0, 1)))
        getattr(ours.project, name).data = rows
    copy_points(ours.project_points, theirs.linear_q_points, theirs.linear_kv_points)
    ours.pair_bias.load_state_dict(theirs.linear_b.state_dict())
    ours.head_weights.data = theirs.head_weights.data
    columns = theirs.linear_out.weight.split((heads * width, 3 * heads * points, heads * points, heads * PAIR), dim=1)
    coordinates = columns[1].unflatten(1, (3, heads * points)).transpose(1, 2).flatten(1)  # x of all, ... -> x, y, z
    ours.out.weight.data = torch.cat((columns[0], coordinates, *columns[2:]), dim=1)
    ours.out.bias.data = theirs.linear_out.bias.data


def make_structure_config(**settings: Any) -> StructureModuleConfig:
    sizes = {"ipa_dim": SIZES.head_width, "num_heads_ipa": SIZES.heads, "resnet_dim": 12, "num_blocks": 3}
    points = {"num_qk_points": SIZES.query_points, "num_v_points": SIZES.value_points}
    return StructureModuleConfig(sequence_dim=WIDTH, pairwise_dim=PAIR, **sizes, **points, **settings)


def test_invariant_point_attention():
    """Algorithm 22."""
    theirs = randomise(EsmFoldInvariantPointAttention(make_structure_config()))
    ours = InvariantPointAttention(WIDTH, PAIR, SIZES).double()
    copy_attention(ours, theirs)
    z, _, real = draw_pairs()
    s = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    rotations = rotation_from_quaternion(torch.randn(2, 7, 3, dtype=torch.float64))
    translations = torch.randn(2, 7, 3, dtype=torch.float64)
    rigid = Rigid(Rotation(rot_mats=rotations), translations)
    found = ours(s, z, Frames(rotations, translations), real)
    # Theirs adds -1e5 to masked scores, which leaves nothing of a weight.
    close(found[real], theirs(s, z, rigid, real.double())[real])


def test_structure_module(monkeypatch):
    """Algorithm 20, with Algorithms 21 to 25 inside: frames, torsions, atoms and residues of every layer."""
    theirs = randomise(EsmFoldStructureModule(make_structure_config()))
    ours = StructureModule(WIDTH, PAIR, SIZES, depth=3, hidden=12, dropout=0.1).double().eval()
    copy_attention(ours.attention, theirs.ipa)
    angles, layer = theirs.angle_resnet, theirs.transition.layers[0]
    copy_all((
        (ours.norm, theirs.layer_norm_s), (ours.pair_norm, theirs.layer_norm_z), (ours.enter, theirs.linear_in),
        (ours.attention_norm, theirs.layer_norm_ipa), (ours.transition.norm, theirs.transition.layer_norm),
        (ours.transition.layers[0], layer.linear_1), (ours.transition.layers[2], layer.linear_2),
        (ours.transition.layers[4], layer.linear_3), (ours.backbone_update, theirs.bb_update.linear),
        (ours.torsions.current, angles.linear_in), (ours.torsions.first, angles.linear_initial),
        (ours.torsions.out, angles.linear_out),
        *((ours.torsions.blocks[i].layers[j], getattr(angles.layers[i], f"linear_{1 + j // 2}"))
          for i in (0, 1) for j in (1, 3)),
    ))  # fmt: skip
    # Their constants are float32: in float64 they differ from ours by rounding.
    exact = rigid_groups.get_tables(torch.device("cpu"), torch.float64)
    rounded = {name: getattr(exact, name).float().double() for name in ("rotation", "translation", "position")}
    tables = type(exact)(**{**vars(exact), **rounded})
    monkeypatch.setattr(rigid_groups, "get_tables", lambda *_: tables)
    default = torch.zeros(21, 8, 4, 4, dtype=torch.float64)
    default[..., :3, :3], default[..., :3, 3], default[..., 3, 3] = tables.rotation, tables.translation, 1.0
    theirs.default_frames = default
    z, _, real = draw_pairs()
    s, residues = torch.randn(2, 7, WIDTH, dtype=torch.float64), torch.randint(0, 20, (2, 7))
    expected = theirs({"single": s, "pair": z}, residues, real.double())
    found = ours(s, z, residues, real)
    close(found.single[real], expected["single"][real])
    frames = expected["sidechain_frames"][-1]
    close(found.frames.rotations[real], frames[real][..., :3, :3])
    close(found.frames.translations[real], frames[real][..., :3, 3])
    close(found.atoms[real], expected["positions"][-1][real])
    for number in range(3):
        close(found.torsions[number][real], expected["angles"][number][real])
        close(found.raw_torsions[number][real], expected["unnormalized_angles"][number][real])
        close(found.backbones.translations[number][real], expected["frames"][number][real][..., 4:])
