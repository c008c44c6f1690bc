"""From lists of token ids, or images, to hypotheses: batches, threads, order; and a stream for interactive use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import eval_mode
from headwise.decode.beam import beam
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.generator import Generator, Request, Source, Stepper, length
from headwise.decode.greedy import greedy, most_probable
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.sample import make_sampler, sample
from headwise.decode.token_loop import PickToken
from headwise.decode.window import with_window
from headwise.errors import UserError
from headwise.text.base import Tokeniser

Search = Callable[[Generator, Any, Request], list[list[Hypothesis]]]
SEARCHES: dict[str, Search] = {"greedy": greedy, "sample": sample, "beam": beam}


@runtime_checkable
class Engine(Protocol):
    """Something that decodes by itself, such as a deployment library."""

    def decode(self, sources: Sequence[Any], config: DecodeConfig) -> list[list[Hypothesis]]: ...


def decode(
    model: Generator | Engine,
    sources: Sequence[Source],
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
    tokeniser: Tokeniser | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, best first.

    Sources are token ids as a tokeniser gives them, without special tokens, or images as a model reads them. What a
    source gets does not depend on the others. The tokeniser of the outputs is needed where the config has stop strings.
    """
    if isinstance(model, Engine):
        if config.looks_back:
            raise UserError("decode: this engine has no stop strings, shortest length or penalties; use another")
        return model.decode(sources, config)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for numbers, hypotheses in decode_batches(model, sources, config, device, tokeniser):
        for number, own in zip(numbers, hypotheses, strict=True):
            found[number] = own
    return found


@torch.inference_mode()
def decode_batches(
    model: Generator,
    sources: Sequence[Source],
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
    tokeniser: Tokeniser | None = None,
) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
    """As `decode`, batch by batch as they get ready: the sources' numbers and their hypotheses."""
    device = torch.device(device)
    search, model = SEARCHES[config.search], with_window(model, sources, config)
    lengths = [length(source) + 1 for source in sources]
    for numbers in batches(lengths, config.tokens_per_batch // config.rows, equal=not model.ragged):
        request = Request([sources[number] for number in numbers], config, device, tokeniser)
        with eval_mode(model):
            state = model.start(request.opening(model), beams=config.rows)
            with threads(step_threads(model, len(numbers) * config.rows, device)):
                hypotheses = search(model, state, request)
        if any(not own or isnan(own[0].score) for own in hypotheses):
            raise UserError(
                "No output of the model has a probability: its weights are damaged or its training diverged; "
                "use an earlier checkpoint."
            )
        yield numbers, hypotheses


def stream(
    model: Generator,
    source: Source,
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
    tokeniser: Tokeniser | None = None,
) -> Iterator[int]:
    """The tokens of one output as they are found, greedily or at random."""
    device = torch.device(device)
    if config.rows > 1:
        raise UserError("A stream follows one hypothesis: set beams and nbest to 1.")
    request = Request([source], config, device, tokeniser)
    pick = make_sampler(request) if config.search == "sample" else most_probable
    model = with_window(model, [source], config)
    return _follow(model, request, request.opening(model), pick)


@torch.inference_mode()
def _follow(model: Generator, request: Request, opening: Tensor, pick: PickToken) -> Iterator[int]:
    stepper = Stepper(model, request)
    row = torch.zeros(1, dtype=torch.long, device=request.device)
    token = request.first(model)
    with eval_mode(model):
        state = model.start(opening)
    count = step_threads(model, 1, request.device)
    for step in range(stepper.longest):
        with eval_mode(model), threads(count):
            log_probs, state = stepper(token, state, step)
            token = pick(log_probs, step, row)[1]
        if int(token) == model.end_id:
            return
        yield int(token)


def batches(lengths: Sequence[int], tokens: int, equal: bool = False) -> Iterator[list[int]]:
    """Numbers of sources of like (or equal) length, longest first, so that too large a batch fails at once.

    >>> list(batches([2, 9, 3, 3], tokens=10)), list(batches([2, 9, 3, 3], tokens=10, equal=True))
    ([[1], [2, 3, 0]], [[1], [2, 3], [0]])
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    first = 0
    while first < len(order):
        longest = lengths[order[first]]
        end = first + max(1, tokens // longest)
        batch = [number for number in order[first:end] if not equal or lengths[number] == longest]
        yield batch
        first += len(batch)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """`count` threads for torch inside the block."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# A second thread saves half of a step but costs about a millisecond of waking and waiting, so steps under
# some 5 ms stay on one. A step reads each weight once; beyond some 20 rows multiplying outlasts reading.
SMALL_STEP = 16_000_000  # weights read in 5 ms
ROWS_PER_READ = 20


def step_threads(model: Generator, rows: int, device: torch.device) -> int:
    """One thread for small steps on a CPU, all of them otherwise."""
    most = torch.get_num_threads()
    if most == 1 or device.type != "cpu" or not isinstance(model, nn.Module):
        return most
    weights = sum(weight.numel() for weight in model.parameters())
    return 1 if weights * max(1, rows / ROWS_PER_READ) < SMALL_STEP else most
