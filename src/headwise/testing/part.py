"""Check a part against the `Properties` that it declares.

Each property has one check. A claim fails if the check finds a violation, a denial if it finds none: models refuse what
a part denies, so a denial must be true, too.

The part is tested in float64, with noise on its weights, on a few tokens. Independence is tested twice: gradients are
zero, to the rounding of an FFT, which detects small leaks, and edits of the inputs change nothing, which detects
choices without gradient (a hash, a queue, a top-k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.blocks.attention.multihead import QKVProjection
from headwise.blocks.cache import DecodingCache
from headwise.blocks.interface import skip_claims
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import NO_CACHE, Cache, Context, Part, Properties, Stream
from headwise.errors import UserError
from headwise.testing.assertions import (
    GRADIENT_TOLERANCE,
    assert_causal,
    assert_independent,
    assert_parity,
    perturb_parameters,
)
from headwise.testing.verdicts import Verdict, find_violation

SMALL_CONTEXT = BuildContext(width=8, heads=2, hidden=12, memory_width=8)
TOLERANCE = 1e-7  # of what is computed in another way, in float64
MEMORY = 4  # tokens of the memory that cross-attention reads
PADDING = 2  # tokens of padding at the end of each row
LONGEST = 8192  # a part that takes fewer tokens must refuse more by then
FIXED_BY = 32  # tokens after which a decoding state of fixed size has that size
FORGOTTEN_BY = 256, 1024, 4096  # tokens: the influence of the first ones falls to a quarter over as many more
OF_A_MEAN = 0.45  # in a mean over all tokens it falls to half: what falls no faster is not tried with more tokens
Check = Callable[["Trial"], None]  # raises AssertionError where the property does not hold


def check_part(
    part: Part | PartConfig,
    build_ctx: BuildContext = SMALL_CONTEXT,
    *,
    length: int = 7,
    grid: tuple[int, int] | None = None,
    unidirectional: bool = False,
) -> None:
    """Check each property that a part declares, both ways: a claim must hold, a denial must be seen to fail.

    A config is built and checked for this `build_ctx` in an encoder and in a decoder, or in one of them if it refuses
    the other with a `UserError`. A built part is checked as it is; `build_ctx.width` is then its width. `length`, at
    least 4, is the number of tokens of most checks. With `grid`, (rows, columns), the tokens are patches of an image:
    padding, packing, decoding and other lengths are not checked. Outputs of a part that is not `exact` cannot be
    compared: only that denial is checked. Decoding states (`joins`, `ragged`, `unbounded`) are checked if the part is
    `steppable`. A config that builds a causal part for an encoder, too, where tokens are to see later ones, is wrong,
    unless it is `unidirectional` on purpose, as a recurrent network may be.

    Raises an AssertionError that names every wrong claim and denial, and by how much it is violated.
    """
    problems = [
        str(verdict)
        for verdict in judge_part(part, build_ctx, length=length, grid=grid, unidirectional=unidirectional)
        if not verdict.passed
    ]
    if problems:
        raise AssertionError("\n  ".join(("the part does not do what it declares:", *dict.fromkeys(problems))))


def judge_part(
    part: Part | PartConfig,
    build_ctx: BuildContext = SMALL_CONTEXT,
    *,
    length: int = 7,
    grid: tuple[int, int] | None = None,
    unidirectional: bool = False,
    catch: bool = False,
) -> Iterator[Verdict]:
    """The verdicts of `check_part`, one for each property in an encoder and in a decoder. With `catch`, an exception of
    the part is a verdict, too."""
    torch.manual_seed(0)
    for trial in list(_trials(part, build_ctx, length if grid is None else grid[0] * grid[1], grid, unidirectional)):
        yield from trial.verdicts(catch)


def _trials(
    part: Part | PartConfig, build_ctx: BuildContext, length: int, grid: tuple[int, int] | None, unidirectional: bool
) -> Iterator[Trial]:
    """The part in an encoder, where its stream has a padding mask, and in a decoder."""
    if isinstance(part, Part):
        for in_decoder in (False, True) if part.properties.causal and grid is None else (False,):
            yield Trial(perturb_parameters(deepcopy(part)), in_decoder, build_ctx, length, grid)
        return
    refusals: list[str] = []
    for in_decoder in (False, True) if grid is None else (False,):
        here = replace(build_ctx, causal=in_decoder, shared={})
        try:
            with skip_claims():
                built = part.build(here)
        except UserError as refusal:
            refusals.append(str(refusal))
            continue
        if not isinstance(built, Part):
            raise AssertionError(f"{type(part).__name__}.build gives {type(built).__name__}, which is no Part")
        bidirectional = not in_decoder and not unidirectional
        yield Trial(perturb_parameters(built), in_decoder, here, length, grid, bidirectional)
    if len(refusals) == 2 or (grid is not None and refusals):
        raise AssertionError(f"{type(part).__name__} cannot be built: {'; '.join(dict.fromkeys(refusals))}")


@dataclass(frozen=True)
class Trial:
    """A part under test, its place in a model, and its inputs."""

    part: Part
    in_decoder: bool
    build_ctx: BuildContext
    length: int
    grid: tuple[int, int] | None = None
    bidirectional: bool = False  # whether tokens that see earlier ones must see later ones, too

    @property
    def declared(self) -> Properties:
        return self.part.properties

    @property
    def rows(self) -> int:
        """Rows of a batch for checks of other properties than batch independence."""
        return 2 if self.declared.batch_independent else 1

    def draw(self, rows: int, length: int = 0, seed: int = 0) -> Tensor:
        """Random inputs, (rows, length, C)."""
        return _normal(rows, length or self.length, self.build_ctx.width, seed)

    def memory(self, rows: int) -> Stream:
        """The encoder outputs that cross-attention reads: a row for each row of the batch."""
        stream = Stream.of(_normal(rows, MEMORY, self.build_ctx.memory_width or self.build_ctx.width, seed=7))
        return stream if self.grid is None else replace(stream, grid=(1, MEMORY))

    def run(
        self,
        x: Tensor,
        *,
        start: int = 0,
        cache: Cache = NO_CACHE,
        keep: Tensor | None = None,
        segment: Tensor | None = None,
        pos: Tensor | None = None,
        memory: Stream | None = None,
        outputs_needed: int | None = None,
        prefill: bool = False,
    ) -> Tensor:
        """The part's outputs. In a decoder the causal mask hides the padding (`Stream.decoder_keep`), but not that of
        prompts (`prefill`), after which tokens follow."""
        shown, hidden = (None, keep) if self.in_decoder and not prefill else (keep, None)
        stream = Stream.of(x, shown, start)
        pos = stream.pos if pos is None else pos
        stream = replace(stream, pos=pos, segment=segment, grid=self.grid, decoder_keep=hidden)
        memories = {"encoder": memory if memory is not None else self.memory(len(x))}
        ctx = Context(memories, cache, outputs_needed=outputs_needed)
        return self.part(stream, ctx)

    def verdicts(self, catch: bool = False) -> Iterator[Verdict]:
        """Each claim and each denial, and whether it is true."""
        name = f"{type(self.part).__name__} in {'a decoder' if self.in_decoder else 'an encoder'}"

        def find(check: Check) -> str:
            return find_violation(lambda: check(self), catch)

        violation = find(check_interface)
        yield Verdict(name, "shape", violation, "keeps the shape of its inputs; gradients reach them")
        if violation:
            return
        for declared, check in CHECKS.items():
            if (self.grid is not None and check not in OF_GRIDS) or not (self.declared.exact or check is check_exact):
                continue
            if check in OF_STATES and not self.declared.steppable:
                continue
            violation = find(check)
            if getattr(self.declared, declared):
                problem = f"{declared} is claimed, but {violation}" if violation else ""
                yield Verdict(name, declared, problem, "claimed, and holds")
            else:
                problem = "" if violation else f"{declared} is denied, but holds; declare {declared}=True"
                yield Verdict(name, declared, problem, f"denied: {violation}")
        if self.part.by_token:
            violation = find(check_by_token)
            problem = f"by_token is claimed, but {violation}" if violation else ""
            yield Verdict(name, "by_token", problem, "claimed, and holds")
        if self.declared.exact:
            yield Verdict(name, "outputs_needed", find(check_outputs_needed), "the first outputs alone are the same")
        if self.bidirectional and self.declared.causal:
            yield Verdict(name, "both directions", find(check_bidirectional), "no token reads in one direction alone")


def check_interface(trial: Trial) -> None:
    """Outputs have the shape of the inputs, are finite, and depend on the inputs."""
    x = trial.draw(trial.rows).requires_grad_()
    outputs = trial.run(x)
    assert outputs.shape == x.shape, f"inputs of {tuple(x.shape)} give outputs of {tuple(outputs.shape)}"
    assert outputs.isfinite().all(), "some outputs are not finite"
    (gradient,) = torch.autograd.grad((outputs * trial.draw(trial.rows, seed=1)).sum(), x)
    assert gradient.any(), "no output depends on any input"


@torch.no_grad()
def check_outputs_needed(trial: Trial) -> None:
    """If only the first outputs are needed, these are the same."""
    x = trial.draw(trial.rows)
    _compare(trial.run(x, outputs_needed=2)[:, :2], trial.run(x)[:, :2], "with `outputs_needed` of 2 these")


def check_causal(trial: Trial) -> None:
    """Outputs do not depend on later inputs."""
    assert_causal(trial.run, trial.draw(trial.rows), tolerance=GRADIENT_TOLERANCE)


def check_bidirectional(trial: Trial) -> None:
    """Outputs of a causal part depend on no earlier inputs either, as those of a feed-forward network."""
    x = trial.draw(1).requires_grad_()
    (gradient,) = torch.autograd.grad(trial.run(x)[:, -1].sum(), x)
    assert not gradient[:, :-1].any(), (
        "it is causal, but in an encoder tokens see later ones, too; mix in both directions where `build_ctx.causal` "
        "is False, refuse an encoder with a UserError, or check it with unidirectional=True"
    )


@torch.no_grad()
def check_steppable(trial: Trial) -> None:
    """KV cache: tokens fed one by one, and after a prompt that was fed at once, give the same as at once."""
    x = trial.draw(trial.rows)
    at_once = trial.run(x)
    for prompt in (1, 3):
        cache, start, outputs = DecodingCache(len(x)), 0, []
        for end in range(prompt, x.shape[1] + 1):
            outputs.append(trial.run(x[:, start:end], start=start, cache=cache))
            start = end
        _compare(torch.cat(outputs, 1), at_once, f"step by step, {prompt} at first, outputs")


@torch.no_grad()
def check_length_free(trial: Trial) -> None:
    """Any length is accepted; a part with a maximum length must refuse more with a `UserError`."""
    lengths = [1, 2, 8 * trial.length]
    if not trial.declared.length_free:
        lengths += [length for length in (2**power for power in range(7, 14)) if length <= LONGEST]
    for length in lengths:
        x = trial.draw(1, length)
        try:
            outputs = trial.run(x)
        except UserError as refusal:
            raise AssertionError(f"{length} tokens are refused: {refusal}") from None
        assert outputs.shape == x.shape, f"{length} tokens give {outputs.shape[1]}"
        assert outputs.isfinite().all(), f"{length} tokens give outputs that are not finite"


def check_batch_independent(trial: Trial) -> None:
    """A row's outputs do not depend on the other rows."""
    assert_independent(trial.run, trial.draw(3), 0, slice(1, None), tolerance=GRADIENT_TOLERANCE)
    with torch.no_grad():
        for seed in range(4):  # experts' queues overflow in some draws only
            x = trial.draw(4, seed=seed)
            memory, together = trial.memory(4), trial.run(x)
            for row in range(4):
                one = slice(row, row + 1)
                alone = trial.run(x[one], memory=replace(memory, x=memory.x[one]))
                _compare(alone, together[one], "alone, a row's outputs")


def check_padding(trial: Trial) -> None:
    """Padding on the right, of the row or of the memory, changes no real output; a row of padding gives no NaN."""
    x = trial.draw(trial.rows, trial.length + PADDING)
    real = slice(None), slice(trial.length)
    keep = torch.ones(x.shape[:2], dtype=torch.bool)
    keep[:, trial.length :] = False
    plain = trial.run(x[real])
    _compare(trial.run(x, keep=keep)[real], plain, "behind padding, real outputs")
    padding = slice(None), slice(trial.length, None)
    assert_independent(lambda x: trial.run(x, keep=keep), x, real, padding, tolerance=GRADIENT_TOLERANCE)
    if trial.declared.batch_independent:
        keep[1, trial.length - 2 :] = False
        shorter = trial.run(x, keep=keep)[1, : trial.length - 2]
        memory = Stream.of(trial.memory(2).x[1:])
        alone = trial.run(x[1:, : trial.length - 2], memory=memory)[0]
        _compare(shorter, alone, "in a batch of longer rows, real outputs")
    memory = trial.memory(len(x))
    padded = Stream.of(
        torch.cat((memory.x, memory.x[:, :2] + 1), 1), torch.arange(MEMORY + 2).expand(len(x), -1) < MEMORY
    )
    _compare(trial.run(x[real], memory=padded), plain, "with a padded memory, outputs")
    empty = trial.run(
        x, keep=torch.zeros_like(keep), memory=replace(padded, keep=torch.zeros(padded.x.shape[:2]).bool())
    )
    assert empty.isfinite().all(), "a row that is all padding gives outputs that are not finite"


@torch.no_grad()
def check_exact(trial: Trial) -> None:
    """The same inputs give the same outputs, also after other inputs."""
    x = trial.draw(trial.rows)
    first, _, second = (trial.run(inputs) for inputs in (x, x + 1, x))
    _compare(second, first, "the second time, the same inputs' outputs")


def check_packing(trial: Trial) -> None:
    """Documents packed into one row (`Stream.segment`) do not depend on one another; if batch independence is denied,
    edits may change them through experts' queues, as rows of a batch."""
    x = trial.draw(trial.rows)
    for first in (2, trial.length // 2, trial.length - 1):  # tokens of the first document
        places = torch.arange(trial.length)
        segment = (1 + (places >= first).long()).expand(len(x), -1)
        pos = (places - first * (places >= first)).expand(len(x), -1)

        def run(x: Tensor, pos: Tensor = pos, segment: Tensor = segment) -> Tensor:
            return trial.run(x, pos=pos, segment=segment)

        assert run(x).isfinite().all(), f"documents of {first} and {trial.length - first} tokens give NaN or infinity"
        one, other = (slice(None), slice(first)), (slice(None), slice(first, None))
        for outputs, inputs in ((one, other), (other, one)):
            try:
                edits = trial.declared.batch_independent
                assert_independent(run, x, outputs, inputs, edits, tolerance=GRADIENT_TOLERANCE)
            except AssertionError as error:
                raise AssertionError(f"documents of {first} and {trial.length - first} tokens mix: {error}") from None


@torch.no_grad()
def check_joins(trial: Trial) -> None:
    """Continuous batching: rows that have read different numbers of tokens share a decoding state and go on as they do
    alone, also after one of them leaves; and prompts may be read in chunks."""
    _check_chunks(trial)
    x, memory, caches = trial.draw(3), trial.memory(3), []
    lengths = (trial.length - 3, 1, 0)  # the last row joins before its first token
    for row, length in enumerate(lengths):
        cache, one = DecodingCache(1), slice(row, row + 1)
        if length:
            trial.run(x[one, :length], cache=cache, memory=replace(memory, x=memory.x[one]))
        caches.append(cache)
    shared = caches[0]
    try:
        for count, cache in enumerate(caches[1:], start=2):
            read = torch.tensor(lengths[:count]).unsqueeze(1)
            shared.join(cache, read.max() - read)
        _step_rows(trial, x, memory, shared, torch.tensor(lengths), steps=2)
        rows = torch.tensor([2, 1])  # the longest leaves
        shared.select(rows)
        read = torch.tensor(lengths)[rows].unsqueeze(1)
        shared.forget(lengths[0] - int(read.max()), read.max() - read)
        memory = replace(memory, x=memory.x[rows])
        _step_rows(trial, x[rows], memory, shared, torch.tensor(lengths)[rows] + 2, steps=1)
    except RuntimeError as error:
        raise AssertionError(f"states of rows of different lengths do not fit together: {error}") from None


def _check_chunks(trial: Trial) -> None:
    x, cache, length = trial.draw(trial.rows), DecodingCache(trial.rows), trial.length
    ends = ((0, 2), (2, length - 1), (length - 1, length))
    chunks = [trial.run(x[:, start:end], start=start, cache=cache) for start, end in ends]
    _compare(torch.cat(chunks, 1), trial.run(x), "in chunks, outputs")


@torch.no_grad()
def check_ragged(trial: Trial) -> None:
    """Prompts of different lengths, padded on the right, leave a decoding state from which each row goes on as it does
    alone; and rows may join it."""
    check_joins(trial)
    x, memory = trial.draw(2), trial.memory(2)
    lengths, longest = torch.tensor([trial.length - 2, 1]), trial.length - 2
    pos = torch.arange(longest).expand(2, -1)
    keep = pos < lengths.unsqueeze(1)
    prompts = torch.where(keep.unsqueeze(-1), x[:, :longest], x[:, :longest] + 1)
    cache = DecodingCache(2)
    trial.run(prompts, cache=cache, keep=keep, pos=pos, memory=memory, prefill=True)
    cache.align(longest - lengths.unsqueeze(1))
    _step_rows(trial, x, memory, cache, lengths, steps=2)


def _step_rows(trial: Trial, x: Tensor, memory: Stream, cache: DecodingCache, read: Tensor, steps: int) -> None:
    """Feed each row of `x` (R, T, C) its next tokens, after the `read` (R,) ones that the cache has of it, and compare
    with the rows alone."""
    rows = torch.arange(len(x))
    alone = [trial.run(x[row : row + 1], memory=replace(memory, x=memory.x[row : row + 1])) for row in rows]
    for place in (read + step for step in range(steps)):
        outputs = trial.run(x[rows, place].unsqueeze(1), pos=place.unsqueeze(1), cache=cache, memory=memory)
        _compare(outputs[:, 0], torch.cat(alone)[rows, place], "of rows of different lengths in one state, outputs")


@torch.no_grad()
def check_unbounded(trial: Trial) -> None:
    """The decoding state has a fixed size, and the influence of a token vanishes with its distance, faster than in a
    mean over all tokens."""
    limit = max((part.memory_length for part in trial.part.modules() if isinstance(part, QKVProjection)), default=0)
    short, long = limit + FIXED_BY, limit + 2 * FIXED_BY
    x = trial.draw(1, long)
    sizes = [_feed(trial, x[:, :length], limit)[1] for length in (short, long)]
    assert sizes[0], "it stores no state"
    assert sizes[0] == sizes[1], f"its state grows: {sizes[0]} numbers after {short} tokens, {sizes[1]} after {long}"
    for tokens in FORGOTTEN_BY:
        early, late, rounding = _measure_influence(trial, tokens, limit)
        if late <= max(early / 4, rounding):
            return
        if late > early * OF_A_MEAN:
            break
    raise AssertionError(
        f"it does not forget: other first tokens change outputs by {early:.3g} after {limit + tokens} tokens and by "
        f"{late:.3g} after {limit + 2 * tokens}"
    )


def _measure_influence(trial: Trial, tokens: int, limit: int) -> tuple[float, float, float]:
    """By how much other first tokens change outputs after this many tokens and after twice as many, and what rounding
    may change."""
    x = trial.draw(1, limit + 2 * tokens)
    edited = torch.cat((trial.draw(1, seed=1), x[:, trial.length :]), 1)
    outputs = _feed(trial, x, limit)[0]
    changes = (_feed(trial, edited, limit)[0] - outputs).abs().mean((0, 2))  # (1, T, C) -> (T,)
    quarter = tokens // 4
    early, late = changes[limit + tokens - quarter :][:quarter].mean(), changes[-quarter:].mean()
    return early.item(), late.item(), TOLERANCE * outputs.abs().max().item()


def _feed(trial: Trial, x: Tensor, limit: int) -> tuple[Tensor, int]:
    """Outputs of tokens that are fed one by one, and how many numbers the decoding state holds after the last."""
    cache, memory = DecodingCache(len(x), limit=limit), trial.memory(len(x))
    outputs = [trial.run(x[:, at : at + 1], start=at, cache=cache, memory=memory) for at in range(x.shape[1])]
    growing = (tensor for entry in cache.growing.values() for tensor in entry.read_last(limit))
    return torch.cat(outputs, 1), sum(tensor.numel() for tensor in (*growing, *cache.states.values()))


def check_by_token(trial: Trial) -> None:
    """A token's output depends on that token alone."""
    x = trial.draw(trial.rows)
    others = torch.arange(trial.length) != 2
    edits = trial.declared.batch_independent
    assert_independent(trial.run, x, (slice(None), 2), (slice(None), others), edits, tolerance=GRADIENT_TOLERANCE)


CHECKS: dict[str, Check] = {
    "causal": check_causal,
    "steppable": check_steppable,
    "length_free": check_length_free,
    "batch_independent": check_batch_independent,
    "padding": check_padding,
    "packing": check_packing,
    "exact": check_exact,
    "joins": check_joins,
    "ragged": check_ragged,
    "unbounded": check_unbounded,
}
OF_STATES = (check_joins, check_ragged, check_unbounded)  # a part that is not steppable has no decoding state
OF_GRIDS = (check_causal, check_batch_independent, check_exact)


def _normal(rows: int, length: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, length, width, generator=generator, dtype=torch.float64)


def _compare(actual: Tensor, expected: Tensor, what: str) -> None:
    try:
        assert_parity(actual, expected, TOLERANCE)
    except AssertionError as error:
        raise AssertionError(f"{what} differ: {error}") from None
