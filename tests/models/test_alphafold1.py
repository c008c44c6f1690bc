"""AlphaFold 1: blocks as in the paper, 220 of them, symmetric and tiled outputs."""

import pytest
import torch
import torch.nn.functional as F

import headwise
from headwise.blocks.dilated_residual import DilatedBottleneck
from headwise.proteins.chains import ChainSettings, generate_chain
from headwise.proteins.pair_features import build_pair_features
from headwise.tasks.distogram_loss import predict_tiles
from headwise.testing import perturb_parameters


def test_the_published_network_has_220_blocks():
    model = headwise.build("alphafold1-casp13", device="meta")
    blocks = [module for module in model.modules() if isinstance(module, DilatedBottleneck)]
    assert len(blocks) == 220
    assert [block.layers[5].dilation[0] for block in blocks] == [1, 2, 4, 8] * 55
    assert [block.layers[0].num_features for block in blocks] == [256] * 28 + [128] * 192
    wide, narrow = 256 * 128 * 2 + 128 * 128 * 9, 128 * 64 * 2 + 64 * 64 * 9
    kernels = sum(parameter.numel() for block in blocks for parameter in block.parameters() if parameter.dim() == 4)
    assert kernels == 28 * wide + 192 * narrow
    assert model.distances.out_channels == 64 and model.torsions.out_features == 36 * 36


def test_a_block_is_that_of_the_paper():
    """[BN, ELU, 1 x 1 to half, BN, ELU, 3 x 3 dilated, BN, ELU, 1 x 1] + x, written out."""
    torch.manual_seed(0)
    block = perturb_parameters(DilatedBottleneck(8, dilation=4))
    x = torch.randn(2, 8, 12, 12, dtype=torch.double)
    y, weights = x, block.state_dict()
    for norm, convolution, options in ((0, 2, {}), (3, 5, {"padding": 4, "dilation": 4}), (6, 8, {})):
        names = ("running_mean", "running_var", "weight", "bias")
        y = F.batch_norm(y, *(weights[f"layers.{norm}.{name}"] for name in names))
        y = torch.where(y > 0, y, y.exp() - 1)
        y = F.conv2d(y, weights[f"layers.{convolution}.weight"], weights[f"layers.{convolution}.bias"], **options)
    torch.testing.assert_close(block(x), x + y)


def test_blocks_begin_as_identities():
    model = headwise.build("alphafold1-tiny")
    x = torch.randn(1, 16, 9, 9)
    assert all(torch.equal(block(x), x) for block in list(model.towers[0])[1:])


def test_dilations_widen_what_a_pair_sees():
    block = perturb_parameters(DilatedBottleneck(4, dilation=8))
    x = torch.randn(1, 4, 33, 33, dtype=torch.double, requires_grad=True)
    block(x)[0, :, 16, 16].sum().backward()
    seen = x.grad.abs().sum((0, 1)) > 0
    assert sorted({tuple(place) for place in seen.nonzero().tolist()}) == [
        (a, b) for a in (8, 16, 24) for b in (8, 16, 24)
    ]


@pytest.fixture(scope="module")
def chain():
    return generate_chain(1, settings=ChainSettings(min_length=26, max_length=26, rows=8, rounds=2, candidates=4))


def test_tiles_cover_the_chain_and_distances_are_symmetric(chain):
    torch.manual_seed(0)
    model = perturb_parameters(headwise.build("alphafold1-tiny")).float().eval()
    features = build_pair_features(chain.alignment)
    with torch.no_grad():
        prediction = predict_tiles(model, features, crop=16, stride=8)
    assert prediction.distances.shape == (26, 26, 64) and prediction.torsions.shape == (26, 6, 6)
    torch.testing.assert_close(prediction.distances, prediction.distances.transpose(0, 1))
    torch.testing.assert_close(prediction.distances.sum(-1), torch.ones(26, 26))
    torch.testing.assert_close(prediction.secondary.sum(-1), torch.ones(26))


def test_one_tile_is_the_network_itself(chain):
    torch.manual_seed(0)
    model = perturb_parameters(headwise.build("alphafold1-tiny")).float().eval()
    features = build_pair_features(chain.alignment)[:, 5:21, 5:21].contiguous()
    with torch.no_grad():
        tiled, whole = predict_tiles(model, features, crop=16, stride=8), model(features[None])
    expected = whole.distances[0].softmax(-1)
    torch.testing.assert_close(tiled.distances, (expected + expected.transpose(0, 1)) / 2)
    rows, columns = (side.secondary[0].softmax(-1) for side in (whole.rows, whole.columns))
    torch.testing.assert_close(tiled.secondary, (rows + columns) / 2)


def test_the_offset_has_a_bias_of_its_own():
    model = headwise.build("alphafold1-tiny").eval()
    with torch.no_grad():
        model.offset_bias[32] += 7.0
    features = torch.zeros(1, 90, 16, 16)
    offsets = torch.arange(16) + 40 - torch.arange(16)[:, None]
    with torch.no_grad():
        change = model(features, offsets[None]).distances - model(features).distances
    torch.testing.assert_close(change, torch.full_like(change, 7.0) * (offsets >= 32)[None, ..., None])


def test_the_reference_counts_distances_by_offset():
    model = headwise.build("alphafold1-tiny")
    offsets = torch.tensor([[[0, -3], [3, 99]]])
    model.count_reference(offsets, torch.tensor([[[0, 7], [7, -100]]]))
    assert model.reference_counts[3, 7] == 3 and model.reference_counts[0, 0] == 2
    assert model.reference_counts.sum() == 33 * 64 + 3  # what is not known is not counted
    torch.testing.assert_close(model.reference.sum(-1), torch.ones(33))
