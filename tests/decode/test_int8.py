"""8-bit and column-wise copies: the same model, faster or smaller."""

import copy
import warnings

import pytest
import torch

from headwise.config.decode import DecodeConfig
from headwise.decode import Ensemble, decode
from headwise.decode.driver import threads
from headwise.decode.int8 import LEAST, Int8Head, Int8Linear, quantised
from headwise.decode.layout import columnwise
from headwise.errors import UserError
from headwise.models.transformer import TransformerConfig

WIDTH, VOCAB, START, END = 128, 1024, 1, 2  # wide enough that most matrices are worth 8 bits


@pytest.fixture(scope="module")
def reverser():
    """Trained for a few seconds to write its source backwards, so that its choices are clear ones."""
    torch.manual_seed(3)
    stack = {"depth": 1}
    config = TransformerConfig(width=WIDTH, heads=4, hidden=1024, encoder=stack, decoder=stack, dropout=0)
    model = config.build(VOCAB)
    adam = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    with threads(1):
        for _ in range(90):
            ids = torch.randint(4, 12, (32, 4))
            ends = torch.full((32, 1), END)
            target_in = torch.cat((torch.full((32, 1), START), ids.flip(1)), dim=1)
            loss = model(torch.cat((ids, ends), 1), target_in, labels=torch.cat((ids.flip(1), ends), 1))
            (loss.total / loss.count).backward()
            adam.step()
            adam.zero_grad()
        yield model.eval()


SOURCES = [[4, 5, 6, 7], [9, 9, 10, 4], [11, 8, 5, 4], [6, 6, 6, 10]]


def outputs(model, **settings):
    return [found[0].ids for found in decode(model, SOURCES, DecodeConfig(max_length=8, **settings))]


@torch.no_grad()
def logits(model):
    source = torch.tensor([[*source, END] for source in SOURCES])
    return model(source, torch.tensor([[START, *source[::-1]] for source in SOURCES]))


def test_logits_are_close_and_outputs_equal(reverser):
    small = quantised(reverser)
    exact = logits(reverser)
    assert (logits(small) - exact).norm() / exact.norm() < 0.02
    assert outputs(reverser) == [tuple(source[::-1]) for source in SOURCES]
    assert outputs(small) == outputs(reverser)
    assert outputs(small, beams=3) == outputs(reverser, beams=3)


def test_large_matrices_shrink_and_small_ones_stay_exact(reverser):
    small = quantised(reverser)
    assert isinstance(small.decoder.head, Int8Head)
    assert small.decoder.head.table is small.decoder.embed.table is small.encoder.embed.table
    kept = [module for module in small.modules() if type(module) is torch.nn.Linear]
    assert kept and all(module.weight.numel() < LEAST for module in kept)
    packed = sum(isinstance(module, Int8Linear) for module in small.modules())
    assert packed == 5  # inner and outer of both feed-forward networks, and the head
    before = sum(weight.numel() for weight in reverser.parameters())
    after = sum(weight.numel() for weight in small.parameters())  # floats; the rest is a quarter of its size
    assert after < before - 4 * 1024 * WIDTH


def test_the_model_itself_stays_as_it_was(reverser):
    before = copy.deepcopy(reverser.state_dict())
    quantised(reverser)
    columnwise(reverser)
    for name, weight in reverser.state_dict().items():
        assert torch.equal(weight, before[name]) and weight.is_contiguous()


def test_shared_layers_stay_shared():
    torch.manual_seed(0)
    shared = {"depth": 3, "shared": True}
    config = TransformerConfig(width=WIDTH, heads=4, hidden=1024, encoder=shared, decoder=shared)
    model = config.build(64).eval()
    assert len(quantised(model).decoder.stack.layers) == 1
    assert outputs(quantised(model)) and quantised(model).decoder.stack.order == (0, 0, 0)


def test_an_ensemble_becomes_one_of_quantised_members(reverser):
    small = quantised(Ensemble([reverser, reverser]))
    assert all(isinstance(member.decoder.head, Int8Head) for member in small.models)
    assert outputs(small) == outputs(reverser)


def test_nothing_is_said_while_packing(reverser):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantised(reverser)


def test_refusals_name_the_way_out(reverser):
    with pytest.raises(UserError, match="use --device cpu"):
        quantised(copy.deepcopy(reverser).to("meta"))
    with pytest.raises(UserError, match="ask the engine"):
        quantised(object())


def test_columnwise_gives_the_same_numbers(reverser):
    laid = columnwise(reverser)
    torch.testing.assert_close(logits(laid), logits(reverser))
    assert outputs(laid, beams=3) == outputs(reverser, beams=3)
    assert laid.decoder.head.table is laid.decoder.embed.table
    assert laid.decoder.head.table.weight.stride() == (1, VOCAB)
