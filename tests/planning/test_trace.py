"""A traced step has the FLOPs of the closed form, and the memory of the tensors that live."""

import pytest
import torch

from headwise.errors import UserError
from headwise.planning.trace import Recorder, build_on_meta, trace_step

ROWS, LENGTH = 2, 64
MEGABYTE = 2**20


def trace(name, vocab=0, rows=ROWS, **options):
    return trace_step(build_on_meta(name, vocab), rows, LENGTH, **options)


def test_the_recorder_counts_tensors_while_they_live():
    with Recorder() as recorder:
        x = torch.zeros(MEGABYTE // 4, device="meta")
        y = x * 2
        z = y.view(2, -1).exp()
        del x, y
        assert recorder.live == MEGABYTE and recorder.peak == 3 * MEGABYTE
        z.add_(1)
    assert recorder.live == MEGABYTE
    assert [operation.flops for operation in recorder.operations] == [0] * 4  # a view moves nothing
    with Recorder() as recorder:
        torch.zeros(8, 16, device="meta") @ torch.zeros(16, 4, device="meta")
    assert recorder.operations[-1].flops == 2 * 8 * 16 * 4
    assert recorder.operations[-1].bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_flops_are_those_of_the_closed_form():
    """Six for each weight and token (Kaplan et al. 2020), and for each pair of tokens and channel 4 in the forward pass
    of attention and 10 in the backward pass, which computes the map again."""
    model = build_on_meta("gpt2-small", vocab=1000)
    step = trace_step(model, ROWS, LENGTH)
    weights = 12 * (12 * 768**2) + 1000 * 768  # no biases, norms and positions
    expected = ROWS * LENGTH * (6 * weights + 14 * 12 * LENGTH * 768)
    assert step.flops == pytest.approx(expected, rel=1e-6)
    assert step.tokens == ROWS * LENGTH and step.parameters == sum(each.numel() for each in model.parameters())


def test_gradients_come_while_activations_go():
    step = trace("gpt2-small", vocab=1000)
    assert step.activations < step.peak < step.activations + 4 * step.parameters
    twice = trace("gpt2-small", vocab=1000, rows=2 * ROWS)
    assert 1.5 < twice.activations / step.activations < 2.5
    assert step.weights >= 4 * step.parameters


def test_recomputed_activations_are_not_stored():
    plain = trace_step(build_on_meta("gpt2-small", vocab=1000), ROWS, LENGTH)
    recomputed = trace_step(build_on_meta("gpt2-small", vocab=1000), ROWS, LENGTH, checkpointing=True)
    assert recomputed.activations < plain.activations / 3
    assert 1.2 < recomputed.flops / plain.flops < 1.4  # another forward pass, of three


def test_lower_precision_halves_activations_and_casts_weights():
    plain, lower = (trace("gpt2-small", vocab=1000, precision=each) for each in ("float32", "bfloat16"))
    assert plain.casts == 0 and 0 < lower.casts <= 2 * lower.parameters
    assert lower.activations < plain.activations
    assert lower.flops == plain.flops


@pytest.mark.parametrize(
    ("name", "message"),
    [("ngram", "is fitted by counting"), ("vit-tiny", "models of texts that give a loss can be")],
)
def test_models_without_a_step_are_refused(name, message):
    with pytest.raises(UserError, match=message):
        trace(name)
