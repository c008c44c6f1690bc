"""The rows of Narang et al. 2021: parameter counts at the published size, ties, and which rows are missing."""

import re
from typing import Any

import pytest
import torch

import headwise
from headwise.blocks.positions.relative import T5Bias
from headwise.blocks.stack import count_parameters
from headwise.decode.int8 import quantize
from headwise.errors import UserError
from headwise.models.narang import ROWS, Row, Sizes, find_row, read_figures
from headwise.testing import assert_parity, check_model, perturb_parameters

SMALL = Sizes(width=48, heads=6, head_width=8, hidden=96, depth=6, vocab=64, sentinels=8, length=32)
# In millions, matrices alone, where the table's three digits are not enough; the table cuts the first three of them
# (65M, 45M, 20M), which is more than 1 % off.
MATRICES = {
    "Vanilla Transformer": 222.86,
    "Block sharing": 65.86,
    "+ Factorized embeddings": 45.40,
    "+ Factorized & shared embeddings": 20.73,
    "Encoder only block sharing": 169.67,
    "Decoder only block sharing": 143.72,
    "Factorized Embedding": 227.07,
    "Factorized & shared embeddings": 202.39,
    "Adaptive input embeddings": 203.39,
    "Mixture of softmaxes": 231.71,
    "Dynamic convolution": 255.89,
    "Lightweight convolution": 223.02,
    "Evolved Transformer": 216.09,
    "Weighted Transformer": 279.48,
}
CUT = ("Block sharing", "+ Factorized embeddings", "+ Factorized & shared embeddings")
# The counts of the Synthesizers do not follow from the equations and sizes of the paper: in millions, those that do.
# Each of 24 self-attentions has a score with 12 x 64 x 512 (dense), 2 x 12 x 512 x 16 (factorized) or 12 x 512 x 512
# (random) weights, and lacks the projections of 768 x 768 that its row does not read.
SYNTHESIZERS = {
    "Synthesizer (dense)": 218.14,
    "Synthesizer (dense plus)": 232.29,
    "Synthesizer (dense plus alpha)": 232.29,
    "Synthesizer (factorized)": 199.26,
    "Synthesizer (random)": 270.04,
    "Synthesizer (random plus)": 298.35,
    "Synthesizer (random plus alpha)": 298.35,
}
# The mean of 15 distributions is flatter than each; log-probabilities of clusters have an offset for each cluster.
OTHER_SPREAD = {"Mixture of softmaxes": (0.2, 0.5), "Adaptive softmax without projection": (0.6, 2.0)}


def build_row(row: Row, sizes: Sizes = SMALL, device: str = "cpu", task: str = "") -> Any:
    return headwise.build("t5-narang", vocab=sizes.vocab, device=device, task=task, **row.configure(sizes))


def count_matrices(model: torch.nn.Module) -> int:
    """Parameters without biases, gains, scalars and the relative position bias."""
    positions = {p for module in model.modules() if isinstance(module, T5Bias) for p in module.parameters()}
    return sum(p.numel() for p in model.parameters() if p.dim() > 1 and p not in positions)


def test_the_published_table_has_the_same_52_rows() -> None:
    assert [row.name for row in ROWS] == list(read_figures()) and len(ROWS) == 52
    assert len({row.slug for row in ROWS}) == 52
    figures = find_row("GeGLU").figures
    assert (figures.parameters, figures.ops, figures.early_loss, figures.final_loss) == ("223M", "11.1T", 2.130, 1.792)


def test_an_unknown_row_is_told_near_ones() -> None:
    with pytest.raises(UserError, match="no row is called 'GEGLU'; did you mean"):
        find_row("GEGLU")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.slug)
def test_parameters_are_as_published(row: Row) -> None:
    model = build_row(row, Sizes(), "meta")
    matrices, published = count_matrices(model), float(row.figures.parameters.removesuffix("M"))
    derived = (MATRICES | SYNTHESIZERS).get(row.name)
    assert derived is None or round(matrices / 1e6, 2) == derived
    if row.name in CUT:
        assert published == int(matrices / 1e6)
    elif row.name not in SYNTHESIZERS:
        assert abs(count_parameters(model) / 1e6 - published) < 0.01 * published
    rest = count_parameters(model) - matrices  # biases, gains and scalars
    assert rest < 1_000_000


def test_the_baseline_has_the_published_parts() -> None:
    model = build_row(ROWS[0])
    head, layer = model.decoder.head, model.encoder.stack.layers[0]
    assert head.table is model.encoder.embed.table is model.decoder.embed.table and head.z_loss == 1e-4
    assert isinstance(layer.norms[0], torch.nn.LayerNorm) and layer.norms[0].eps == 1e-6
    assert layer.parts[1].inner.bias is not None and layer.parts[0].out.bias is None
    assert not any(type(module).__name__ == "Dropout" for module in model.modules())


def test_rows_keep_their_proportions_at_a_small_size() -> None:
    assert find_row("SwiGLU").configure(SMALL)["hidden"] == 64
    deep = find_row("24 layers, d_ff=1536, H=6").configure(SMALL)
    assert (deep["depth"], deep["hidden"], deep["heads"]) == (12, 48, 3)
    assert find_row("Factorized Embedding").configure(SMALL)["embedding_width"] == 8
    with pytest.raises(UserError, match="depth: 2/3 of 4 is no whole number; choose another depth"):
        find_row("8 layers, d_ff=4608, H=18").configure(Sizes(depth=4))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.slug)
def test_logits_have_unit_variance_at_initialisation(row: Row) -> None:
    """Also with factors, untied tables and other wirings, so that no row begins with another loss. Where a tied token
    finds itself in the residual stream, its logit is larger; the median over tokens is of the others."""
    torch.manual_seed(0)
    model = build_row(row).eval()
    ids = torch.randint(4, 64, (8, 16))
    with torch.no_grad():
        logits = model(ids, ids)
    spread = (logits - logits.median(-1, keepdim=True).values).abs().median().item() / 0.6745
    low, high = OTHER_SPREAD.get(row.name, (0.6, 1.5))
    assert low < spread < high


ONE_OF_EACH = (
    "Vanilla Transformer", "Rezero + RMS Norm", "Fixup", "6 layers, d_ff=6144, H=24",
    "+ Factorized & shared embeddings", "Factorized Embedding", "Tied decoder input and output embeddings",
)  # fmt: skip


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_rows_do_what_their_parts_declare(name: str) -> None:
    torch.manual_seed(0)
    sizes = Sizes(width=12, heads=6, head_width=2, hidden=12, depth=2, vocab=12)
    check_model(perturb_parameters(build_row(find_row(name), sizes)))


def test_a_tied_projection_is_used_by_both_embeddings_and_transposed_by_the_output_layer() -> None:
    model = build_row(find_row("Factorized & shared embeddings")).eval()
    table, weight = model.decoder.embed.table.weight, model.decoder.embed.projection.weight  # (V, E), (C, E)
    assert model.encoder.embed.projection is model.decoder.embed.projection
    x = torch.randn(2, 3, 48)
    torch.testing.assert_close(model.decoder.head(x), x @ (table @ weight.t()).t() * 48**-0.5)
    assert model.decoder.head.transform[0].linear is model.decoder.embed.projection
    quantized, ids = quantize(model, min_weights=1), torch.randint(4, 64, (2, 5))
    assert_parity(quantized(ids, ids), model(ids, ids), tolerance=0.1)


def test_a_full_output_layer_beside_a_factorised_embedding_has_its_own_table() -> None:
    model = build_row(find_row("Factorized Embedding"))
    assert model.decoder.head.table.weight.shape == (64, 48)
    assert model.encoder.embed.table is model.decoder.embed.table and model.encoder.embed.table.embedding_dim == 8


def test_shared_layers_run_as_often_as_the_stack_is_deep() -> None:
    stacks = build_row(find_row("Encoder only block sharing"))
    assert len(stacks.encoder.stack.layers) == 1 and stacks.encoder.stack.layer_numbers == (0,) * 6
    assert len(stacks.decoder.stack.layers) == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedding_width": 8, "tie_projection": True, "tie": "none"},
         "tie_projection: with tie = 'none' encoder and decoder have tables of their own, and no projection to share; "
         "use tie = 'all' or 'inputs'"),
        ({"embedding_width": 8, "factorise_outputs": False},
         "tie: embeddings and outputs have widths 8 and 32; use tie = 'none'"),
        ({"tie_projection": True},
         "tie_projection: the embedding is not factorised and has no projection; set embedding_width"),
        ({"factorise_outputs": False},
         "factorise_outputs: the embedding is not factorised and has no projection; set embedding_width"),
    ],
)  # fmt: skip
def test_a_sharing_that_contradicts_a_tie_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        headwise.build("t5-narang-tiny", vocab=12, **settings)


@pytest.mark.parametrize("task", ["language-model", "masked"])
@pytest.mark.parametrize("name", ["Factorized Embedding", "Factorized & shared embeddings"])
def test_factors_are_for_models_with_one_stack_too(name: str, task: str) -> None:
    settings = find_row(name).configure(SMALL)
    model = headwise.build("t5-narang", vocab=12, task=task, **settings)
    ids = torch.randint(4, 12, (2, 5))
    model(ids, labels=ids).total.backward()
    head = model.head if task == "masked" else model.decoder.head
    assert head.table.embedding_dim == (8 if settings.get("factorise_outputs", True) else 48)
    assert all(parameter.grad is not None for parameter in head.parameters())
