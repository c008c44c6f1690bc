"""The multi-layer perceptron against torch.nn, and its bias as a column of ones."""

import pytest
import torch
from torch import nn

from headwise.errors import UserError
from headwise.models.mlp import MlpClassifierConfig
from headwise.testing import assert_parity

TORCH = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


@pytest.mark.parametrize("activation", TORCH)
def test_it_is_a_sequence_of_torch_layers(activation):
    torch.manual_seed(0)
    model = MlpClassifierConfig(image=(5, 7), channels=3, widths=(11, 6), activation=activation).build(outputs=4)
    act = TORCH[activation]
    theirs = nn.Sequential(nn.Flatten(), nn.Linear(105, 11), act(), nn.Linear(11, 6), act(), nn.Linear(6, 4))
    for ours, other in zip(model.parameters(), theirs.parameters(), strict=True):
        with torch.no_grad():
            ours.normal_()
            other.copy_(ours)
    pixels = torch.randn(3, 3, 5, 7)
    assert_parity(model(pixels), theirs(pixels))
    gradients = [torch.autograd.grad(each(pixels).square().sum(), list(each.parameters())) for each in (model, theirs)]
    for ours, other in zip(*gradients, strict=True):
        assert_parity(ours, other)


def test_a_bias_is_the_column_of_ones_of_an_input_with_one_more_channel():
    """W x + b = [W b] [x; 1]: a layer without bias on inputs extended by 1 computes the same."""
    torch.manual_seed(0)
    with_bias = MlpClassifierConfig(image=(2, 3), widths=(5,)).build(outputs=4)
    without = MlpClassifierConfig(image=(1, 7), widths=(6,), bias=False).build(outputs=4)
    first, last = (module for module in with_bias.modules() if isinstance(module, nn.Linear))
    wide_first, wide_last = (module for module in without.modules() if isinstance(module, nn.Linear))
    with torch.no_grad():
        for layer in (first, last):
            layer.bias.normal_()
        wide_first.weight.copy_(torch.cat((torch.cat((first.weight, first.bias[:, None]), 1), torch.eye(7)[6:])))
        wide_last.weight.copy_(torch.cat((last.weight, last.bias[:, None]), 1))
    pixels = torch.randn(8, 1, 2, 3)
    ones = torch.ones(8, 1, 1, 1)
    assert_parity(without(torch.cat((pixels.reshape(8, 1, 1, 6), ones), -1)), with_bias(pixels))


def test_images_of_another_size_are_refused():
    with pytest.raises(UserError, match="resize the images"):
        MlpClassifierConfig(image=(4, 4)).build(outputs=2)(torch.zeros(1, 1, 5, 4))
