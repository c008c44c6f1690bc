"""What every generator p(target | source) must do, whatever it is made of.

Each check takes a built model and raises AssertionError where the model breaks a promise. Models are compared in
float64, so that tolerances can be tight. `CHECKS` lists those that only read the model.

Letters: B sources, K beams, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call

import headwise
from headwise.errors import UserError
from headwise.testing import assert_causal_in_embeddings, assert_parity, rounding

PAD, FIRST = 0, 4  # ids below FIRST are special
Model = Any  # of headwise.models.encoder_decoder.EncoderDecoder's shape
close = torch.testing.assert_close


def ids(model: Model, rows: int, length: int, seed: int = 0) -> Tensor:
    """Random ordinary tokens, (rows, length)."""
    high = min(model.vocab, model.source_vocab)
    return torch.randint(FIRST, high, (rows, length), generator=torch.Generator().manual_seed(seed))


def ready(model: Model) -> Model:
    """In float64 and evaluation mode, with every parameter away from its special initial value."""
    generator = torch.Generator().manual_seed(1)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def stepped(model: Model, state: Any, target: Tensor) -> Tensor:
    """The logits of feeding (rows, T) tokens one by one: (rows, T, V)."""
    logits = []
    for tokens in target.unbind(1):
        out, state = model.step(tokens, state)
        logits.append(out)
    return torch.stack(logits, dim=1)


def check_causality(model: Model) -> None:
    """Another token at j changes outputs before j by no more than rounding, and those from j on by more; gradients of
    outputs with respect to later tokens are exactly zero."""
    source, target = ids(model, 2, 5), ids(model, 2, 7, seed=1)
    with torch.no_grad():
        before = model(source, target)
        for j in range(1, target.shape[1]):
            edited = target.clone()
            edited[:, j] = FIRST + (edited[:, j] - FIRST + 1) % (model.vocab - FIRST)
            after = model(source, edited)
            assert_parity(after[:, :j], before[:, :j], rounding(before.dtype))
            assert not torch.allclose(after[:, j:], before[:, j:]), f"a token at {j} changed nothing"
    assert_causal_in_embeddings(model, lambda: model(source, target), target)


@torch.no_grad()
def check_padding(model: Model) -> None:
    """Padding on the right of either side changes no real output."""
    source, target = ids(model, 2, 5), ids(model, 2, 4, seed=1)
    padded = [nn.functional.pad(tokens, (0, 3), value=PAD) for tokens in (source, target)]
    close(model(*padded)[:, : target.shape[1]], model(source, target))
    assert torch.isfinite(model(torch.full_like(source, PAD), target)).all(), "an empty source gave NaN"


@torch.no_grad()
def check_batch(model: Model) -> None:
    """A row gives the same alone as among others, of other lengths too."""
    source, target = ids(model, 3, 6), ids(model, 3, 5, seed=1)
    source[1, 3:] = PAD
    together = model(source, target)
    for row in range(3):
        own = source[row : row + 1]
        close(model(own[own != PAD].unsqueeze(0), target[row : row + 1]), together[row : row + 1])


@torch.no_grad()
def check_cached(model: Model) -> None:
    """Fed one by one through the cache, tokens give what they give at once; for an empty source, too."""
    source, target = ids(model, 3, 5), ids(model, 3, 9, seed=1)
    source[1, 4:] = source[2] = PAD
    close(stepped(model, model.start(source), target), model(source, target))


@torch.no_grad()
def check_recording(model: Model) -> None:
    """Looking on changes nothing, also where somebody looks at some steps and not at others."""
    source, target = ids(model, 2, 5), ids(model, 2, 6, seed=1)
    state, logits = model.start(source), []
    for number, tokens in enumerate(target.unbind(1)):
        with headwise.record() if number % 2 else nullcontext():
            out, state = model.step(tokens, state)
        logits.append(out)
    close(torch.stack(logits, dim=1), model(source, target))


@torch.no_grad()
def check_beams(model: Model) -> None:
    """K beams of a source are K rows with that source repeated."""
    beams, source = 3, ids(model, 2, 5)
    source[0, 3:] = PAD
    target = ids(model, 2 * beams, 4, seed=1)
    repeated = model(source.repeat_interleave(beams, 0), target)
    close(stepped(model, model.start(source, beams), target), repeated)


@torch.no_grad()
def check_select(model: Model) -> None:
    """Beams reordered, then a source dropped: the rest goes on as if it had always been so."""
    beams, source = 2, ids(model, 3, 5)
    target = ids(model, 6, 6, seed=1)
    state = model.start(source, beams)
    stepped(model, state, target[:, :2])
    moved = torch.tensor([1, 0, 3, 3, 4, 5])
    target = target[moved]
    state = state.select(moved)
    stepped(model, state, target[:, 2:4])
    kept = torch.tensor([1, 1, 5, 4])
    target, source = target[kept], source[[0, 2]]
    after = stepped(model, state.select(kept), target[:, 4:])
    close(after, model(source.repeat_interleave(beams, 0), target)[:, 4:])


@torch.no_grad()
def check_sources_move(model: Model) -> None:
    """With one row a source, selecting may also change the order of the sources."""
    source, target = ids(model, 3, 5), ids(model, 3, 4, seed=1)
    state = model.start(source)
    stepped(model, state, target[:, :2])
    order = torch.tensor([2, 0, 1])
    after = stepped(model, state.select(order), target[order, 2:])
    close(after, model(source, target)[order, 2:])


@torch.no_grad()
def check_join(model: Model) -> None:
    """Rows that join a running state go on as they do alone, and so do those that were there: rows that have read as
    many tokens in any model, others where the model says so; elsewhere they are refused."""
    sources, target = [ids(model, 1, length, seed=length) for length in (5, 3, 7)], ids(model, 3, 9, seed=1)
    alone = [model(source, row.unsqueeze(0))[0] for source, row in zip(sources, target, strict=True)]

    def started(row: int, length: int) -> Any:
        state = model.start(sources[row])
        if length:
            stepped(model, state, target[row : row + 1, :length])
        return state

    state = started(0, 7).join(started(1, 7))
    close(stepped(model, state, target[:2, 7:8]), torch.stack(alone[:2])[:, 7:8])
    if not getattr(model, "model", model).joins:
        with pytest.raises(UserError, match="join: rows of different lengths cannot share the state of"):
            started(0, 7).join(started(1, 2))
        return
    state = started(0, 7).join(started(1, 2)).join(started(2, 0))  # the last one before its first token
    tokens = torch.stack((target[0, 7:9], target[1, 2:4], target[2, :2]))
    expected = torch.stack((alone[0][7:9], alone[1][2:4], alone[2][:2]))
    close(stepped(model, state, tokens), expected)
    state = state.select(torch.tensor([2, 1]))  # the longest leaves, and what it alone needed
    tokens, expected = torch.stack((target[2, 2:5], target[1, 4:7])), torch.stack((alone[2][2:5], alone[1][4:7]))
    close(stepped(model, state, tokens), expected)


def check_gradients(model: Model) -> None:
    """The gradient of the loss in all parameters is what a central difference along a random direction says."""
    source, target, labels = ids(model, 2, 4), ids(model, 2, 3, seed=1), ids(model, 2, 3, seed=2)
    source[1, 2:] = labels[0, 2:] = PAD
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(3)
    ways = {k: torch.randn(v.shape, generator=generator, dtype=v.dtype) for k, v in values.items()}

    def loss(along: Tensor) -> Tensor:
        moved = {name: value + along * ways[name] for name, value in values.items()}
        return functional_call(model, moved, (source, target), {"labels": labels, "label_smoothing": 0.1}).total

    along = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(along), along)
    step = 1e-6
    with torch.no_grad():
        expected = (loss(along + step) - loss(along - step)) / (2 * step)
    close(slope, expected, rtol=1e-6, atol=1e-6)


def check_loss(model: Model) -> None:
    """The loss that the head computes in chunks is the loss of the logits."""
    source, target, labels = ids(model, 2, 4), ids(model, 2, 5, seed=1), ids(model, 2, 5, seed=2)
    labels[0, 3:] = PAD
    flat = model(source, target).flatten(0, 1)  # (B, T, V) -> (B*T, V)
    loss = model(source, target, labels=labels, label_smoothing=0.1)
    expected = nn.functional.cross_entropy(
        flat, labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    close(loss.total, expected)
    close(loss.nll, nn.functional.cross_entropy(flat, labels.flatten(), ignore_index=PAD, reduction="sum"))
    assert loss.count == (labels != PAD).sum() and not loss.nll.requires_grad


CHECKS: tuple[Callable[[Model], None], ...] = (
    check_causality,
    check_padding,
    check_batch,
    check_cached,
    check_recording,
    check_beams,
    check_select,
    check_sources_move,
    check_join,
    check_loss,
    check_gradients,
)


@torch.no_grad()
def check_round_trip(model: Model, fresh: Model, path: Path) -> None:
    """Through a file with every tensor once (ties included), another model of the config gives the same outputs."""
    names = {parameter: name for name, parameter in reversed(list(model.named_parameters()))}
    save_file({name: tensor.detach().contiguous() for tensor, name in names.items()}, path)
    stored = load_file(path)
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters())
    _, unexpected = fresh.load_state_dict(stored, strict=False)
    assert not unexpected
    source, target = ids(model, 2, 5), ids(model, 2, 4, seed=1)
    assert torch.equal(fresh(source, target), model(source, target))


def check_overfit(model: Model, steps: int = 80, lr: float = 0.01) -> None:
    """A handful of pairs can be learnt by heart, and then decoded greedily."""
    source = ids(model, 4, 5)
    orders = torch.rand(4, model.vocab - FIRST, generator=torch.Generator().manual_seed(1)).argsort(dim=1)
    target = FIRST + orders[:, :4]  # no token twice: without positions a repetition is hard to count
    start = torch.full((4, 1), model.start_id)
    target_in = torch.cat((start, target[:, :-1]), dim=1)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(source, target_in, labels=target)
        (loss.total / loss.count).backward()
        optimizer.step()
    model.eval()
    assert model(source, target_in, labels=target).total / target.numel() < 0.1
    state, tokens, decoded = model.start(source), start[:, 0], []
    for _ in range(target.shape[1]):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        decoded.append(tokens)
    assert torch.equal(torch.stack(decoded, dim=1), target)
