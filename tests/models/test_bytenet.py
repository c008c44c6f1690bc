"""ByteNet: parameter counts, dilations, dynamic unfolding, decoding states, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.stack import count_parameters
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.testing import perturb_parameters

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [9, 10, 2, 0, 0, 0, 0]])


def build_tiny(**settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build("bytenet-tiny", vocab=12, **settings)


def count_blocks(width: int, multiplicative: bool, count: int = 30) -> int:
    """Blocks of kernel 3 with biases and norms of gain and bias, d = width / 2."""
    hidden = width // 2
    narrow, wide = width * hidden + hidden, hidden * width + width
    gates = 4 if multiplicative else 1
    convolution = gates * (3 * hidden * hidden + hidden)
    norms = 2 * width + 2 * hidden * (1 if multiplicative else 2)
    return count * (narrow + convolution + wide + norms)


def test_parameter_counts_are_those_of_the_published_blocks() -> None:
    model = headwise.build("bytenet-base", vocab=323, outputs=296, device="meta")
    tables = (323 + 296) * 1600 + 296 * 1601
    assert count_parameters(model) == 2 * count_blocks(1600, multiplicative=False) + tables + 2 * 1600
    model = headwise.build("bytenet-decoder", vocab=205, task="language-model", device="meta")
    assert count_parameters(model) == count_blocks(1024, multiplicative=True) + 205 * 1024 + 205 * 1025 + 2 * 1024


def test_dilations_repeat_over_the_blocks_of_both_sides() -> None:
    model = headwise.build("bytenet-base", vocab=323, outputs=296, device="meta")
    for side in (model.encoder, model.decoder):
        assert [layer.parts[0].convolution.dilation for layer in side.stack.layers] == [1, 2, 4, 8, 16] * 6


@pytest.mark.parametrize(("ratio", "extra", "bounds"), [(1.2, 0, (9, 4)), (1.0, 2, (9, 5)), (2.0, 1, (15, 7))])
def test_the_encoder_has_outputs_up_to_the_bound_of_the_target(
    ratio: float, extra: int, bounds: tuple[int, int]
) -> None:
    model = perturb_parameters(build_tiny(length_ratio=ratio, extra_length=extra))
    memory = model.encoder.read(SOURCE)["encoder"]
    for row, bound in enumerate(bounds):
        assert memory.keep[row].sum() == bound
        assert memory.x[row, :bound].any(-1).all() and not memory.x[row, bound:].any()


def test_a_bound_is_not_rounded_up_from_a_whole_number() -> None:
    memory = build_tiny(length_ratio=1.1).encoder.read(torch.full((1, 10), 5))["encoder"]
    assert memory.x.shape[1] == 11


def test_outputs_after_the_bound_depend_on_the_source_through_earlier_tokens_alone() -> None:
    model = build_tiny(length_ratio=1.0, dilations=[1], depth=1).eval()
    target = torch.randint(4, 12, (1, 9))
    with torch.no_grad():
        one, other = model(torch.tensor([[5, 6, 7, 2]]), target), model(torch.tensor([[8, 9, 10, 2]]), target)
    assert not torch.allclose(one[:, :6], other[:, :6])
    # windows of three tokens, of which none is one of the first four
    torch.testing.assert_close(one[:, 6:], other[:, 6:])


def test_the_state_has_the_inputs_that_dilated_kernels_reach() -> None:
    model = build_tiny(depth=3, dilations=[1, 3], kernel=3).eval()
    state = model.start(SOURCE)
    for token in (1, 5, 6):
        model.step(torch.full((2,), token), state)
    shapes = {path: tuple(value.shape) for path, value in state.cache.states.items()}
    assert shapes == {("decoder", 0, 0): (2, 2, 16), ("decoder", 1, 0): (2, 6, 16), ("decoder", 2, 0): (2, 2, 16)}


@pytest.mark.parametrize("block", ["relu", "multiplicative"])
def test_it_learns_to_reverse_and_decodes(block: str) -> None:
    model, generator = build_tiny(dropout=0.0, block=block), torch.Generator().manual_seed(0)
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
    for beams in (1, 3):
        outputs = decode(model.eval(), content[:16].tolist(), DecodeConfig(beams=beams))
        correct = [list(output[0].ids) == row[:-1] for output, row in zip(outputs, labels.tolist()[:16], strict=True)]
        assert sum(correct) >= 14


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": 4}, "kernel: a kernel of 4 tokens has no centre in an encoder"),
        ({"length_ratio": 0.5}, "length_ratio"),
        ({"dilations": [1, 0]}, r"^[^\n]*dilations[^\n]*$"),
        ({"dilations": []}, "dilations: is empty"),
        ({"block": "gelu"}, "block"),
        ({"task": "tag"}, "'bytenet' cannot tag"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_tiny(**settings)
