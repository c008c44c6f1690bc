"""The chunked cross-entropy loss against that of torch, which stores all logits."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.blocks.losses import ChunkedCrossEntropy

close = torch.testing.assert_close
PAD = 0


def make_inputs(bias: bool = True, tokens: int = 11) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    x = torch.randn(tokens, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    shift = torch.randn(9, dtype=torch.float64, requires_grad=True) if bias else None
    return x, weight, shift, torch.randint(0, 9, (tokens,))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_equals_torch_with_its_gradients(rows: int, bias: bool, label_smoothing: float) -> None:
    """(1 - e) on the label and e / V everywhere, as F.cross_entropy spreads it."""
    x, weight, shift, labels = make_inputs(bias)
    inputs = [tensor for tensor in (x, weight, shift) if tensor is not None]
    total, nll = ChunkedCrossEntropy.apply(x, weight, shift, labels, PAD, label_smoothing, rows)
    logits = F.linear(x, weight, shift)
    expected = F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum", label_smoothing=label_smoothing)
    close(total, expected)
    close(nll, F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum"))
    # as part of a larger graph, so that the incoming gradient is not 1
    close(torch.autograd.grad(3 * total, inputs), torch.autograd.grad(3 * expected, inputs))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_z_loss_adds_the_square_of_the_log_partition_function(rows: int, label_smoothing: float) -> None:
    """z sum log(Z)^2 over real tokens, with its gradients; the negative log-likelihood stays without it."""
    x, weight, shift, labels = make_inputs()
    total, nll = ChunkedCrossEntropy.apply(x, weight, shift, labels, PAD, label_smoothing, rows, 0.3)
    logits = F.linear(x, weight, shift)
    expected = F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum", label_smoothing=label_smoothing)
    expected = expected + 0.3 * logits.logsumexp(-1)[labels != PAD].square().sum()
    close(total, expected)
    close(nll, F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum"))
    inputs = [x, weight, shift]
    close(torch.autograd.grad(3 * total, inputs), torch.autograd.grad(3 * expected, inputs))


def test_the_z_loss_of_a_head_is_that_of_its_logits() -> None:
    head, x, labels = VocabularyHead(6, 9, bias=True, z_loss=0.5), torch.randn(2, 3, 6), torch.randint(1, 9, (2, 3))
    plain = VocabularyHead(6, 9, head.table)
    loss, without = head.loss(x, labels), plain.loss(x, labels)
    close(loss.total, without.total + 0.5 * head(x).logsumexp(-1).square().sum())
    close(loss.nll, without.nll)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_gradients_are_finite_differences(label_smoothing: float) -> None:
    *inputs, labels = make_inputs(tokens=5)
    step = 1e-6

    def compute_total() -> Tensor:
        return ChunkedCrossEntropy.apply(*inputs, labels, PAD, label_smoothing, 2)[0]

    for tensor, gradient in zip(inputs, torch.autograd.grad(compute_total(), inputs), strict=True):
        values, expected = tensor.detach().view(-1), torch.empty(tensor.numel(), dtype=torch.float64)
        with torch.no_grad():
            for place in range(len(values)):
                values[place] += step
                above = compute_total()
                values[place] -= 2 * step
                expected[place] = (above - compute_total()) / (2 * step)
                values[place] += step
        close(gradient.flatten(), expected, atol=1e-8, rtol=1e-6)


def test_a_second_backward_is_refused_rather_than_wrong() -> None:
    """The gradients are scaled where they lie."""
    x, weight, shift, labels = make_inputs()
    total, _ = ChunkedCrossEntropy.apply(x, weight, shift, labels, PAD, 0.0, 4)
    (3 * total).backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (3 * total).backward()


@pytest.mark.parametrize("wanted", range(3), ids=["x", "weight", "bias"])
def test_gradients_of_one_input_alone(wanted: int) -> None:
    x, weight, shift, labels = make_inputs()
    inputs = [tensor.detach() for tensor in (x, weight, shift)]
    inputs[wanted].requires_grad_()
    total, _ = ChunkedCrossEntropy.apply(*inputs, labels, PAD, 0.1, 4)
    expected = F.cross_entropy(F.linear(*inputs), labels, ignore_index=PAD, reduction="sum", label_smoothing=0.1)
    close(torch.autograd.grad(total, inputs[wanted]), torch.autograd.grad(expected, inputs[wanted]))


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    x, weight, shift, labels = make_inputs()
    total, _ = ChunkedCrossEntropy.apply(x, weight, shift, labels, PAD, 0.0, 4)
    (gradient,) = torch.autograd.grad(total.square(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_a_batch_of_padding_has_no_loss() -> None:
    head = VocabularyHead(6, 9, bias=True)
    loss = head.loss(torch.randn(2, 3, 6), torch.zeros(2, 3, dtype=torch.long), label_smoothing=0.1)
    loss.total.backward()
    assert loss.total == loss.nll == loss.count == 0
    assert head.table.weight.grad.abs().sum() == 0


def test_losses_of_parts_add_up_to_the_loss_of_the_batch() -> None:
    head, x, labels = VocabularyHead(6, 300), torch.randn(4, 200, 6), torch.randint(0, 300, (4, 200))
    whole, parts = head.loss(x, labels, 0.1), [head.loss(x[i : i + 1], labels[i : i + 1], 0.1) for i in range(4)]
    close(sum(part.total for part in parts), whole.total)
    assert sum(part.count for part in parts) == whole.count


def test_no_gradient_is_computed_without_grad_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    head, x, labels = VocabularyHead(6, 9, bias=True), torch.randn(2, 3, 6), torch.randint(0, 9, (2, 3))
    expected = head.loss(x, labels, 0.1).total.detach()
    monkeypatch.setattr("headwise.blocks.losses.compute_logit_grad_", None)
    with torch.no_grad():
        close(head.loss(x, labels, 0.1).total, expected)


def test_low_precision_is_for_matrix_products_alone() -> None:
    """Under autocast the sums stay in float32, and so do the weight's gradients."""
    head, x, labels = VocabularyHead(16, 50), torch.randn(4, 100, 16), torch.randint(1, 50, (4, 100))
    exact = head.loss(x, labels, 0.1)
    exact.total.backward()
    expected, head.table.weight.grad = head.table.weight.grad, None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head.loss(x, labels, 0.1)
    loss.total.backward()
    assert loss.total.dtype == head.table.weight.grad.dtype == torch.float32
    close(loss.total, exact.total, rtol=1e-2, atol=0)
    close(head.table.weight.grad, expected, rtol=0.05, atol=0.05)


def test_a_tied_head_learns_into_the_embedding() -> None:
    table = nn.Embedding(9, 6)
    head = VocabularyHead(6, 9, table)
    assert len(list(head.parameters())) == 1
    head.loss(torch.randn(1, 3, 6), torch.tensor([[1, 2, 3]])).total.backward()
    assert table.weight.grad is not None
    assert torch.equal(head(torch.eye(6)), table.weight.t())
