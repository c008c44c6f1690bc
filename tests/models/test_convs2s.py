"""ConvS2S: parameter counts, initialisation, gradients, alignments, decoding states, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.gated_convolution import scale_gradient
from headwise.blocks.output_layers import WeightNormSoftmax
from headwise.blocks.record import record
from headwise.blocks.stack import count_parameters
from headwise.blocks.weight_norm import WeightNormLinear
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.int8 import Int8Linear, quantize
from headwise.decode.int8_screen import prepare_for_cpu
from headwise.testing import assert_parity, perturb_parameters

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
TARGET = torch.tensor([[1, 7, 8, 9], [1, 6, 5, 4]])
EN_DE, EN_RO = [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2, [(512, 3)] * 20
EN_FR = [(512, 3)] * 6 + [(768, 3)] * 4 + [(1024, 3)] * 3 + [(2048, 1), (4096, 1)]


def build_tiny(**settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build("convs2s-tiny", vocab=12, **settings)


def linear(inputs: int, outputs: int) -> int:
    """Weights, gains and biases of a layer with weight normalisation."""
    return inputs * outputs + 2 * outputs


def count_side(layers: list[tuple[int, int]], embedding: int, out: int, attention: bool) -> int:
    """One side as fairseq builds it, with a vocabulary of 40,000 and 1024 positions."""
    inputs = layers[0][0]
    total = (40_000 + 1024) * embedding + linear(embedding, inputs) + linear(layers[-1][0], out)
    for width, kernel in layers:
        total += linear(kernel * inputs, 2 * width)
        total += linear(inputs, width) if inputs != width else 0
        total += linear(width, embedding) + linear(embedding, width) if attention else 0
        inputs = width
    return total


@pytest.mark.parametrize(
    ("size", "layers", "embedding"), [("en-de", EN_DE, 768), ("en-fr", EN_FR, 768), ("en-ro", EN_RO, 512)]
)
def test_parameter_counts_are_those_of_the_published_layers(
    size: str, layers: list[tuple[int, int]], embedding: int
) -> None:
    model = headwise.build(f"convs2s-{size}", vocab=40_000, device="meta")
    expected = count_side(layers, embedding, embedding, False) + count_side(layers, embedding, 512, True)
    assert count_parameters(model) == expected + linear(512, 40_000)


def test_initial_layers_keep_the_variance_of_their_inputs() -> None:
    torch.manual_seed(0)
    layers = [{"width": 256, "depth": 6}]
    model = headwise.build("convs2s-tiny", vocab=50, encoder=layers, decoder=layers, embedding_width=256, dropout=0.0)
    convolution = model.encoder.stack.layers[0].parts[0]
    assert isinstance(convolution.convolution.linear, WeightNormLinear)
    assert convolution.convolution.linear.weight.std().item() == pytest.approx((4 / (3 * 256)) ** 0.5, rel=0.02)
    assert model.encoder.stack.first.weight.std().item() == pytest.approx(256**-0.5, rel=0.02)
    assert model.encoder.embed.table.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert model.encoder.embed.positions.table.std().item() == pytest.approx(0.1, rel=0.05)
    x = 0.1 * torch.randn(8, 20, 256)  # small, so that gates are near 1/2, as section 3.5 assumes
    with torch.no_grad():
        outputs = model.encoder.stack.layers[0].parts[0](x)[:, 1:-1]  # whose windows have no zeros beside the text
    assert outputs.var().item() == pytest.approx(0.01, rel=0.1)


def test_dropout_shrinks_the_initial_weights_of_the_layers_after_it() -> None:
    model = build_tiny(dropout=0.5, encoder=[{"width": 256}])
    convolution = model.encoder.stack.layers[0].parts[0].convolution.linear
    assert convolution.weight.std().item() == pytest.approx((4 * 0.5 / (3 * 256)) ** 0.5, rel=0.03)


def test_a_gradient_is_scaled_and_the_value_stays() -> None:
    x = torch.tensor([0.1, -3.7], requires_grad=True)
    y = scale_gradient(x, 0.25)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.tensor([0.25, 0.25]))  # type: ignore[arg-type]


def test_training_divides_gradients_of_encoder_layers_by_twice_the_attentions() -> None:
    gradients = []
    for training in (True, False):
        model = build_tiny(dropout=0.0).train(training)
        model(SOURCE, TARGET).square().sum().backward()
        gradients.append(model.encoder.stack.layers[0].parts[0].convolution.linear.weight.grad)
    torch.testing.assert_close(gradients[0] * 4, gradients[1])  # two decoder layers


def test_every_decoder_layer_has_an_alignment_over_the_real_source() -> None:
    model = build_tiny().eval()
    with record() as maps, torch.no_grad():
        model(SOURCE, TARGET)
    alignments = maps.stack_by_kind(row=1)["cross"]
    assert alignments.shape == (2, 1, 4, 5)  # layers, heads, target, source
    assert alignments[..., 3:].max() == 0 and abs(alignments.sum(-1) - 1).max() < 1e-5


def test_the_state_has_the_last_inputs_of_each_kernel() -> None:
    model = build_tiny(
        decoder=[{"width": 24, "kernel": 5}, {"width": 8, "kernel": 1}, {"width": 8, "kernel": 2}]
    ).eval()
    state = model.start(SOURCE)
    for tokens in TARGET.unbind(1):
        model.step(tokens, state)
    shapes = {path: tuple(value.shape) for path, value in state.cache.states.items()}
    assert shapes == {("decoder", 0, 0): (2, 4, 24), ("decoder", 2, 0): (2, 1, 8)}


def test_weight_normalisation_is_folded_into_the_weights_for_decoding() -> None:
    model = perturb_parameters(build_tiny())
    folded = prepare_for_cpu(model, DecodeConfig())
    kinds = {type(module) for module in folded.modules()}
    assert not kinds & {WeightNormLinear, WeightNormSoftmax} and WeightNormLinear in map(type, model.modules())
    assert_parity(folded(SOURCE, TARGET), model(SOURCE, TARGET))
    quantized = quantize(model.float(), min_weights=64)
    assert any(isinstance(module, Int8Linear) for module in quantized.modules())


@pytest.mark.parametrize("beams", [1, 3])
def test_it_learns_to_reverse_and_decodes(beams: int) -> None:
    model, generator = build_tiny(dropout=0.0), torch.Generator().manual_seed(0)
    content = torch.randint(4, 12, (64, 4), generator=generator)
    ends, starts = torch.full((64, 1), 2), torch.full((64, 1), 1)
    source, labels = torch.cat((content, ends), 1), torch.cat((content.flip(1), ends), 1)
    target = torch.cat((starts, labels[:, :-1]), 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        loss = model(source, target, labels=labels)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    outputs = decode(model.eval(), content[:16].tolist(), DecodeConfig(beams=beams))
    correct = [list(output[0].ids) == row[:-1] for output, row in zip(outputs, labels.tolist()[:16], strict=True)]
    assert sum(correct) >= 14


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": [{"width": 8, "kernel": 4}]}, "kernel: a kernel of 4 tokens has no centre in an encoder"),
        ({"positions": "rotary"}, "positions: 'rotary' changes the scores of self-attention"),
        ({"encoder": []}, "encoder: has no layers"),
        ({"decoder": [{"width": 8, "kernl": 3}]}, r"^[^\n]*kernl: unknown key; did you mean kernel\?$"),
        ({"task": "tag"}, "'convs2s' cannot tag"),
        ({"tie": "target"}, "embeddings and outputs have widths 16 and 20"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_tiny(**settings)


def test_a_source_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(UserError, match="does not fit the learned table of 4"):
        build_tiny(positions={"kind": "learned", "max_length": 4})(SOURCE, TARGET)
