"""Checks of generative models, p(target | source).

Each takes a built model, in float64 so that tolerances can be tight (`perturb_parameters`), and raises AssertionError
if it fails. `CHECKS` lists those that do not change the model, with the properties that all parts must declare for the
check to hold.

Letters: B sources, K beams, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call

from headwise.blocks.record import record
from headwise.errors import UserError
from headwise.models.language_model import LanguageModel
from headwise.testing.assertions import (
    GRADIENT_TOLERANCE,
    assert_causal_in_embeddings,
    assert_documents_apart,
    assert_parity,
    compute_expected_loss,
    rounding,
)
from headwise.testing.overfit import overfit_batch
from headwise.text import PAD

FIRST = 4  # ids below are special tokens
close = torch.testing.assert_close


class ConditionalModel(Protocol):
    """An `nn.Module` with the interface of `headwise.models.encoder_decoder.EncoderDecoder`."""

    start_id: int

    @property
    def vocab(self) -> int: ...

    @property
    def source_vocab(self) -> int: ...

    @property
    def joins(self) -> bool:
        """Whether rows of different lengths may share a state."""

    def __call__(self, source: Tensor, target: Tensor, **options: Any) -> Any:
        """Logits (B, T, V); with `labels`, and `label_smoothing`, a `Loss`."""

    def start(self, source: Tensor, beams: int = 1) -> Any:
        """The state before the first token, of `beams` rows for each source."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits of the next token for each row, and the state after it."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...

    def train(self) -> Any: ...

    def eval(self) -> Any: ...

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any: ...


class IgnoreSource(nn.Module):
    """A language model as a conditional model, p(target | source) = p(target), so that the same checks apply."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model
        self.start_id, self.vocab, self.source_vocab = model.start_id, model.vocab, model.vocab

    @property
    def joins(self) -> bool:
        return self.model.joins

    def forward(self, source: Tensor, target: Tensor, **options: Any) -> Any:
        return self.model(target, **options)

    def start(self, source: Tensor, beams: int = 1) -> Any:
        return self.model.start(source[:, :0], beams)

    def step(self, tokens: Tensor, state: Any) -> Any:
        return self.model.step(tokens, state)


def draw_ids(model: ConditionalModel, rows: int, length: int, seed: int = 0) -> Tensor:
    """Random ordinary tokens, (rows, length)."""
    high = min(model.vocab, model.source_vocab)
    return torch.randint(FIRST, high, (rows, length), generator=torch.Generator().manual_seed(seed))


def step_through(model: ConditionalModel, state: Any, target: Tensor) -> Tensor:
    """The logits of feeding (rows, T) tokens one by one: (rows, T, V)."""
    logits = []
    for tokens in target.unbind(1):
        out, state = model.step(tokens, state)
        logits.append(out)
    return torch.stack(logits, dim=1)


def check_causality(model: ConditionalModel) -> None:
    """Causality: another token at j changes outputs before j by no more than rounding, and later ones by more;
    gradients with respect to later tokens are zero (to rounding, which an FFT has)."""
    source, target = draw_ids(model, 2, 5), draw_ids(model, 2, 7, seed=1)
    with torch.no_grad():
        before = model(source, target)
        for j in range(1, target.shape[1]):
            edited = target.clone()
            edited[:, j] = FIRST + (edited[:, j] - FIRST + 1) % (model.vocab - FIRST)
            after = model(source, edited)
            assert_parity(after[:, :j], before[:, :j], rounding(before.dtype))
            assert not torch.allclose(after[:, j:], before[:, j:]), f"a token at {j} changed nothing"
    assert_causal_in_embeddings(cast(nn.Module, model), lambda: model(source, target), target, GRADIENT_TOLERANCE)


@torch.no_grad()
def check_padding(model: ConditionalModel) -> None:
    """Padding on the right of either side changes no real output."""
    source, target = draw_ids(model, 2, 5), draw_ids(model, 2, 4, seed=1)
    padded = [nn.functional.pad(tokens, (0, 3), value=PAD) for tokens in (source, target)]
    close(model(*padded)[:, : target.shape[1]], model(source, target))
    assert torch.isfinite(model(torch.full_like(source, PAD), target)).all(), "an empty source gave NaN"


@torch.no_grad()
def check_batch(model: ConditionalModel) -> None:
    """A row gives the same alone as among others."""
    source, target = draw_ids(model, 3, 6), draw_ids(model, 3, 5, seed=1)
    together = model(source, target)
    for row in range(3):
        close(model(source[row : row + 1], target[row : row + 1]), together[row : row + 1])


@torch.no_grad()
def check_ragged_sources(model: ConditionalModel) -> None:
    """A row whose source is shorter gives the same alone as among others."""
    source, target = draw_ids(model, 3, 6), draw_ids(model, 3, 5, seed=1)
    source[1, 3:] = PAD
    close(model(source[1:2, :3], target[1:2]), model(source, target)[1:2])


@torch.no_grad()
def check_cached(model: ConditionalModel) -> None:
    """KV cache: tokens fed one by one give the same as at once, for an empty source, too."""
    source, target = draw_ids(model, 3, 5), draw_ids(model, 3, 9, seed=1)
    source[1, 4:] = source[2] = PAD
    close(step_through(model, model.start(source), target), model(source, target))


@torch.no_grad()
def check_recording(model: ConditionalModel) -> None:
    """Recording attention maps changes nothing, also if only some steps are recorded."""
    source, target = draw_ids(model, 2, 5), draw_ids(model, 2, 6, seed=1)
    state, logits = model.start(source), []
    for number, tokens in enumerate(target.unbind(1)):
        with record() if number % 2 else nullcontext():
            out, state = model.step(tokens, state)
        logits.append(out)
    close(torch.stack(logits, dim=1), model(source, target))


@torch.no_grad()
def check_beams(model: ConditionalModel) -> None:
    """K beams of a source give the same as K copies of it."""
    beams, source = 3, draw_ids(model, 2, 5)
    source[0, 3:] = PAD
    target = draw_ids(model, 2 * beams, 4, seed=1)
    repeated = model(source.repeat_interleave(beams, 0), target)
    close(step_through(model, model.start(source, beams), target), repeated)


@torch.no_grad()
def check_select(model: ConditionalModel) -> None:
    """After beams are reordered and a source is dropped, the others give the same as from the beginning."""
    beams, source = 2, draw_ids(model, 3, 5)
    target = draw_ids(model, 6, 6, seed=1)
    state = model.start(source, beams)
    step_through(model, state, target[:, :2])
    reordered = torch.tensor([1, 0, 3, 3, 4, 5])
    target = target[reordered]
    state = state.select(reordered)
    step_through(model, state, target[:, 2:4])
    remaining = torch.tensor([1, 1, 5, 4])
    target, source = target[remaining], source[[0, 2]]
    after = step_through(model, state.select(remaining), target[:, 4:])
    close(after, model(source.repeat_interleave(beams, 0), target)[:, 4:])


@torch.no_grad()
def check_sources_move(model: ConditionalModel) -> None:
    """With one row a source, selecting may also change the order of the sources."""
    source, target = draw_ids(model, 3, 5), draw_ids(model, 3, 4, seed=1)
    state = model.start(source)
    step_through(model, state, target[:, :2])
    order = torch.tensor([2, 0, 1])
    after = step_through(model, state.select(order), target[order, 2:])
    close(after, model(source, target)[order, 2:])


@torch.no_grad()
def check_join(model: ConditionalModel) -> None:
    """Continuous batching: rows that join a decoding state, and those that it had, go on as they do alone: rows of
    equal length in any model, rows of different lengths if the model `joins`; otherwise these are refused."""
    sources = [draw_ids(model, 1, length, seed=length) for length in (5, 3, 7)]
    target = draw_ids(model, 3, 9, seed=1)
    alone = [model(source, row.unsqueeze(0))[0] for source, row in zip(sources, target, strict=True)]

    def start(row: int, length: int) -> Any:
        state = model.start(sources[row])
        if length:
            step_through(model, state, target[row : row + 1, :length])
        return state

    state = start(0, 7).join(start(1, 7))
    close(step_through(model, state, target[:2, 7:8]), torch.stack(alone[:2])[:, 7:8])
    if not model.joins:
        try:
            start(0, 7).join(start(1, 2))
        except UserError:
            return
        raise AssertionError("rows of different lengths join, though the model says that they cannot (`joins`)")
    state = start(0, 7).join(start(1, 2)).join(start(2, 0))  # the last one before its first token
    tokens = torch.stack((target[0, 7:9], target[1, 2:4], target[2, :2]))
    expected = torch.stack((alone[0][7:9], alone[1][2:4], alone[2][:2]))
    close(step_through(model, state, tokens), expected)
    state = state.select(torch.tensor([2, 1]))  # the longest leaves, and the cache gets shorter
    tokens, expected = torch.stack((target[2, 2:5], target[1, 4:7])), torch.stack((alone[2][2:5], alone[1][4:7]))
    close(step_through(model, state, tokens), expected)


@torch.no_grad()
def check_ragged_prompts(model: LanguageModel) -> None:
    """Prompts of different lengths, padded on the right, give the same as alone."""
    generator, lengths = torch.Generator().manual_seed(0), (6, 1, 4)
    prompts, tokens = (torch.randint(FIRST, model.vocab, (3, n), generator=generator) for n in (6, 3))
    padded = prompts.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = PAD
    together = step_through(IgnoreSource(model), model.start(padded), tokens)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = step_through(IgnoreSource(model), model.start(prompts[one, :length]), tokens[one])
        close(alone, together[one])


def check_gradients(model: ConditionalModel) -> None:
    """The gradient of the loss along a random direction of all parameters equals the central difference."""
    source, target, labels = draw_ids(model, 2, 4), draw_ids(model, 2, 3, seed=1), draw_ids(model, 2, 3, seed=2)
    source[1, 2:] = labels[0, 2:] = PAD
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(3)
    directions = {k: torch.randn(v.shape, generator=generator, dtype=v.dtype) for k, v in values.items()}

    def loss(step: Tensor) -> Tensor:
        moved = {name: value + step * directions[name] for name, value in values.items()}
        options = {"labels": labels, "label_smoothing": 0.1}
        return functional_call(cast(nn.Module, model), moved, (source, target), options).total

    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(zero), zero)
    step = 1e-6
    with torch.no_grad():
        expected = (loss(zero + step) - loss(zero - step)) / (2 * step)
    close(slope, expected, rtol=1e-6, atol=1e-6)


def check_loss(model: ConditionalModel) -> None:
    """The loss that the head computes in chunks is the loss of the logits."""
    source, target, labels = draw_ids(model, 2, 4), draw_ids(model, 2, 5, seed=1), draw_ids(model, 2, 5, seed=2)
    labels[0, 3:] = PAD
    flat = model(source, target).flatten(0, 1)  # (B, T, V) -> (B*T, V)
    loss = model(source, target, labels=labels, label_smoothing=0.1)
    close(loss.total, compute_expected_loss(model, flat, labels.flatten(), label_smoothing=0.1))
    close(loss.nll, nn.functional.cross_entropy(flat, labels.flatten(), ignore_index=PAD, reduction="sum"))
    assert loss.count == (labels != PAD).sum(), f"{loss.count} labels are counted, of {(labels != PAD).sum()}"
    assert not loss.nll.requires_grad, "the loss without label smoothing has a gradient"


def check_packing(model: LanguageModel, edits: bool = True) -> None:
    """Packed documents (`segment`, `pos`) do not depend on one another: gradients with respect to other documents are
    zero, and, with `edits`, other tokens there change nothing beyond rounding."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(FIRST, model.vocab, (2, 7), generator=generator)
    for first in (1, 3, 6):  # tokens of the first document
        places = torch.arange(7)
        segment = (1 + (places >= first).long()).expand(2, -1)
        packed = {"segment": segment, "pos": (places - first * (places >= first)).expand(2, -1)}
        assert_documents_apart(
            model,
            lambda packed=packed: model(ids, **packed),  # type: ignore[misc]
            ids,
            segment,
            GRADIENT_TOLERANCE,
        )
        if not edits:
            continue
        with torch.no_grad():
            before = model(ids, **packed)
            for inside in (segment == 1, segment == 2):
                edited = torch.where(inside, ids, FIRST + (ids - FIRST + 1) % (model.vocab - FIRST))
                assert_parity(model(edited, **packed)[inside], before[inside], rounding(before.dtype))


Check = Callable[[ConditionalModel], None]
CHECKS: dict[Check, Iterable[str]] = {
    check_causality: ("causal",),
    check_padding: ("padding", "batch_independent"),  # experts' queues hold padding, too
    check_batch: ("batch_independent",),
    check_ragged_sources: ("padding", "batch_independent"),
    check_cached: ("steppable",),
    check_recording: ("steppable",),
    check_beams: ("steppable",),
    check_select: ("steppable",),
    check_sources_move: ("steppable",),
    check_join: ("steppable",),
    check_loss: (),
    check_gradients: (),
}


@torch.no_grad()
def check_round_trip(model: ConditionalModel, fresh: ConditionalModel, path: Path) -> None:
    """Saved with tied tensors once, and loaded into another model of the config, it gives the same outputs."""
    names = {parameter: name for name, parameter in reversed(list(model.named_parameters()))}
    save_file({name: tensor.detach().contiguous() for tensor, name in names.items()}, path)
    stored = load_file(path)
    sizes = sum(tensor.numel() for tensor in stored.values()), sum(p.numel() for p in model.parameters())
    assert sizes[0] == sizes[1], f"the file holds {sizes[0]} numbers, the model {sizes[1]}"
    _, unexpected = fresh.load_state_dict(stored, strict=False)
    assert not unexpected, f"the other model has no {', '.join(unexpected)}"
    source, target = draw_ids(model, 2, 5), draw_ids(model, 2, 4, seed=1)
    assert torch.equal(fresh(source, target), model(source, target)), "the other model gives other outputs"


def check_overfit(model: ConditionalModel, steps: int = 80, lr: float = 0.01) -> None:
    """The model overfits a handful of pairs, and decodes them greedily."""
    source = draw_ids(model, 4, 5)
    orders = torch.rand(4, model.vocab - FIRST, generator=torch.Generator().manual_seed(1)).argsort(dim=1)
    target = FIRST + orders[:, :4]  # no token twice: repetitions are hard without positions
    start = torch.full((4, 1), model.start_id)
    target_in = torch.cat((start, target[:, :-1]), dim=1)

    def compute_loss() -> Tensor:
        loss = model(source, target_in, labels=target)
        return loss.total / loss.count

    overfit_batch(cast(nn.Module, model), compute_loss, steps, lr)
    loss = compute_loss()
    assert loss < 0.1, f"after {steps} steps the loss is still {loss:.3g}"
    state, tokens, decoded = model.start(source), start[:, 0], []
    for _ in range(target.shape[1]):
        logits, state = model.step(tokens, state)
        tokens = logits.argmax(-1)
        decoded.append(tokens)
    assert torch.equal(torch.stack(decoded, dim=1), target), "greedy decoding does not give what was learned"
