"""8-bit and column-wise copies: the same model, faster or smaller."""

import copy

import pytest
import torch

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode, use_threads
from headwise.decode.ensemble import Ensemble
from headwise.decode.int8 import Int8Head, Int8Linear, overflows, quantize
from headwise.decode.weight_layout import to_column_major
from headwise.errors import UserError
from headwise.models.transformer import TransformerConfig

START, END, VOCAB = 1, 2, 12
MIN_WEIGHTS = 2048  # weights of a matrix; the model is small


@pytest.fixture(scope="module")
def reverser():
    """Trained for two seconds to write its source backwards, so that its choices are clear ones."""
    torch.manual_seed(3)
    stack = {"depth": 1}
    model = TransformerConfig(width=32, heads=4, encoder=stack, decoder=stack, wiring="pre", dropout=0).build(VOCAB)
    adam = torch.optim.AdamW(model.parameters(), lr=4e-3, fused=True)
    with use_threads(1):
        for _ in range(180):
            ids = torch.randint(4, VOCAB, (48, 3))
            ends = torch.full((48, 1), END)
            target_in = torch.cat((torch.full((48, 1), START), ids.flip(1)), dim=1)
            loss = model(torch.cat((ids, ends), 1), target_in, labels=torch.cat((ids.flip(1), ends), 1))
            (loss.total / loss.count).backward()
            adam.step()
            adam.zero_grad()
        yield model.eval()


SOURCES = [[4, 5, 6], [9, 9, 4], [8, 5, 4], [6, 6, 7]]


def outputs(model, **settings):
    return [decoded[0].ids for decoded in decode(model, SOURCES, DecodeConfig(max_length=8, **settings))]


@torch.no_grad()
def logits(model):
    source = torch.tensor([[*source, END] for source in SOURCES])
    return model(source, torch.tensor([[START, *source[::-1]] for source in SOURCES]))


def test_logits_are_close_and_outputs_equal(reverser):
    small = quantize(reverser, min_weights=0)
    exact = logits(reverser)
    assert 0 < (logits(small) - exact).norm() / exact.norm() < (0.04 if overflows() else 0.02)  # a bit less: twice
    assert outputs(reverser) == [tuple(source[::-1]) for source in SOURCES]
    assert outputs(small) == outputs(reverser)
    assert outputs(small, beams=3) == outputs(reverser, beams=3)


@pytest.mark.parametrize("width", [4, 63, 64, 256])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_products_do_not_overflow(width, sign):
    product = Int8Linear(torch.full((64, width), sign), None)
    for rows in (1, 9):
        x = torch.ones(rows, width)
        torch.testing.assert_close(product(x), torch.full((rows, 64), sign * width), rtol=1e-5, atol=0)


def test_large_matrices_shrink_and_small_ones_stay_exact(reverser):
    small = quantize(reverser, MIN_WEIGHTS)
    sizes = [module.weight.numel() for module in small.modules() if type(module) is torch.nn.Linear]
    assert sizes and max(sizes) < MIN_WEIGHTS
    packed = [module for module in small.modules() if isinstance(module, Int8Linear)]
    assert len(packed) == 7  # the fused projections of three attentions, the two matrices of both networks
    before, after = (sum(weight.numel() for weight in model.parameters()) for model in (reverser, small))
    moved = 2 * 32 * (3 * 32 + 2 * 128) + 32 * 2 * 32
    assert before - after == moved + 2 * (3 * 32 + 128 + 32) + 2 * 32  # what is left is float, biases went along


def test_a_tied_table_stays_for_lookups(reverser):
    small = quantize(reverser, min_weights=0)
    assert isinstance(small.decoder.head, Int8Head)
    assert small.decoder.head.table is small.decoder.embed.table is small.encoder.embed.table
    torch.testing.assert_close(small.decoder.embed.table.weight, reverser.decoder.embed.table.weight)


def test_the_model_itself_stays_as_it_was(reverser):
    before = copy.deepcopy(reverser.state_dict())
    quantize(reverser, min_weights=0)
    to_column_major(reverser)
    for name, weight in reverser.state_dict().items():
        assert torch.equal(weight, before[name]) and weight.is_contiguous()


def test_shared_layers_stay_shared():
    torch.manual_seed(0)
    shared = {"depth": 3, "shared": True}
    model = TransformerConfig(width=32, heads=4, encoder=shared, decoder=shared).build(64).eval()
    small = quantize(model, min_weights=0)
    assert len(small.decoder.stack.layers) == 1 and small.decoder.stack.layer_numbers == (0, 0, 0)
    assert outputs(small) == outputs(model)


def test_an_ensemble_becomes_one_of_quantised_members(reverser):
    small = quantize(Ensemble([reverser, reverser]), min_weights=0)
    assert all(isinstance(member.decoder.head, Int8Head) for member in small.models)
    assert outputs(small) == outputs(reverser)


def test_errors_name_a_remedy(reverser):
    with pytest.raises(UserError, match="use --device cpu"):
        quantize(copy.deepcopy(reverser).to("meta"))
    with pytest.raises(UserError, match="use the int8 option of the engine"):
        quantize(object())


def test_column_major_weights_give_the_same_logits(reverser):
    laid = to_column_major(reverser)
    torch.testing.assert_close(logits(laid), logits(reverser))
    assert outputs(laid, beams=3) == outputs(reverser, beams=3)
    assert laid.decoder.head.table is laid.decoder.embed.table
    assert laid.decoder.head.table.weight.stride() == (1, VOCAB)
