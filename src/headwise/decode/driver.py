"""The decoding driver: batches of sources (token ids or images), threads, order of results; and token streaming."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from headwise.blocks.evaluation import eval_mode
from headwise.decode.beam import beam_search
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.generator import Generator, NextTokenScorer, Request, Source, source_length
from headwise.decode.greedy import greedy_search, most_probable
from headwise.decode.hypothesis import NOT_FINITE, Hypothesis, are_finite
from headwise.decode.sample import make_sampler, sample
from headwise.decode.token_loop import PickToken
from headwise.decode.window import wrap_in_window
from headwise.errors import UserError
from headwise.text.base import Tokeniser

Search = Callable[[Generator, Any, Request], list[list[Hypothesis]]]
SEARCHES: dict[str, Search] = {"greedy": greedy_search, "sample": sample, "beam": beam_search}


@runtime_checkable
class Engine(Protocol):
    """A deployment library with its own decoding loop, such as CTranslate2."""

    def decode(self, sources: Sequence[Any], config: DecodeConfig) -> list[list[Hypothesis]]: ...


def decode(
    model: Generator | Engine,
    sources: Sequence[Source],
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
    tokeniser: Tokeniser | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, best first.

    Sources are token ids without special tokens, or image tensors. The result for a source does not depend on the
    others in its batch. `tokeniser`, of the outputs, is needed for stop strings only.
    """
    if isinstance(model, Engine):
        if config.replace(min_length=0).processes_logits:
            raise UserError(
                "decode: this engine has no logits processors, early stopping or convention 'generate'; use another"
            )
        if config.coverage_penalty:
            raise UserError("decode.coverage_penalty: this engine returns no attention; use engine 'native'")
        return model.decode(sources, config)
    outputs: list[list[Hypothesis]] = [[] for _ in sources]
    for indices, batch in decode_batches(model, sources, config, device, tokeniser):
        for index, hypotheses in zip(indices, batch, strict=True):
            outputs[index] = hypotheses
    return outputs


@torch.inference_mode()
def decode_batches(
    model: Generator,
    sources: Sequence[Source],
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
    tokeniser: Tokeniser | None = None,
) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
    """As `decode`, but yields each batch when it is done: indices of the sources, and their hypotheses."""
    device = torch.device(device)
    search, model = SEARCHES[config.search], wrap_in_window(model, sources, config)
    lengths = [source_length(source) + 1 for source in sources]
    for indices in batch_by_length(lengths, config.tokens_per_batch // config.rows, equal=not model.ragged):
        request = Request([sources[index] for index in indices], config, device, tokeniser)
        with eval_mode(model):
            state = model.start(request.build_inputs(model), beams=config.rows)
            with use_threads(choose_threads(model, len(indices) * config.rows, device)):
                batch = search(model, state, request)
        if not all(map(are_finite, batch)):
            raise UserError(NOT_FINITE)
        yield indices, batch


def stream(
    model: Generator,
    source: Source,
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
    tokeniser: Tokeniser | None = None,
) -> Iterator[int]:
    """Stream the tokens of one output, decoded greedily or sampled."""
    device = torch.device(device)
    if config.rows > 1:
        raise UserError("decode: only one hypothesis can be streamed; set beams and nbest to 1")
    request = Request([source], config, device, tokeniser)
    pick = make_sampler(request) if config.search == "sample" else most_probable
    model = wrap_in_window(model, [source], config)
    return _stream_tokens(model, request, request.build_inputs(model), pick)


@torch.inference_mode()
def _stream_tokens(model: Generator, request: Request, inputs: Tensor, pick: PickToken) -> Iterator[int]:
    scorer, ends = NextTokenScorer(model, request), {model.end_id, *request.config.eos_token_ids}
    row = torch.zeros(1, dtype=torch.long, device=request.device)
    token = request.build_first_tokens(model)
    with eval_mode(model):
        state = model.start(inputs)
    count = choose_threads(model, 1, request.device)
    for step in range(scorer.longest):
        with eval_mode(model), use_threads(count):
            log_probs, state = scorer(token, state)
            token = pick(log_probs, step, row)[1]
            scorer.extend(token)
        if int(token) in ends:
            return
        yield int(token)


def batch_by_length(lengths: Sequence[int], tokens: int, equal: bool = False) -> Iterator[list[int]]:
    """Indices of sources of similar (or equal) length, longest first: a batch too large for memory fails at once.

    >>> list(batch_by_length([2, 9, 3, 3], tokens=10))
    [[1], [2, 3, 0]]
    >>> list(batch_by_length([2, 9, 3, 3], tokens=10, equal=True))
    [[1], [2, 3], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    first = 0
    while first < len(order):
        longest = lengths[order[first]]
        end = first + max(1, tokens // longest)
        batch = [index for index in order[first:end] if not equal or lengths[index] == longest]
        yield batch
        first += len(batch)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads inside the block."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# A second thread halves a step but costs about a millisecond of synchronisation, so steps below some 5 ms use one.
# A step reads each weight once; above some 20 rows it is bound by compute instead of memory.
SMALL_STEP = 16_000_000  # weights read in 5 ms
ROWS_PER_READ = 20


def choose_threads(model: Generator, rows: int, device: torch.device) -> int:
    """One thread for small steps on a CPU, all threads otherwise."""
    available = torch.get_num_threads()
    if available == 1 or device.type != "cpu" or not isinstance(model, nn.Module):
        return available
    weights = sum(weight.numel() for weight in model.parameters())
    return 1 if weights * max(1, rows / ROWS_PER_READ) < SMALL_STEP else available
