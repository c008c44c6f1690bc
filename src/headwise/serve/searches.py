"""The searches of one decoding batch: rows that are decoded with the same logits processors, and join and leave at any
step. Greedy decoding and sampling share one search, whatever their temperatures; beam search has its own.

Letters: R rows, K rows of a request, V vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from headwise.decode.beam import BeamSearch
from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Generator, NextTokenScorer, Request, topk
from headwise.decode.hypothesis import NOT_FINITE, Hypothesis, are_finite
from headwise.decode.sample import draw, draw_uniforms, get_truncation
from headwise.decode.token_loop import score_path
from headwise.serve.requests import Event, FailedEvent, FinishedEvent, GenerationRequest, Reason, TokenEvent

# Settings of a single row: requests that differ in these alone share a search.
PER_ROW = {
    "seed": 0, "max_ratio": 1.0, "max_extra": 50, "max_length": 1024, "max_total_length": 0, "tokens_per_batch": 4096,
    "context": 0, "marked": True, "replace_unknown": False, "dictionary": "",
}  # fmt: skip
PER_SAMPLE = {
    "nbest": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "length_penalty": 0.6,
    "early_stopping": "never",
}  # fmt: skip


@dataclass(eq=False)
class Job:
    """A request while it is decoded."""

    key: Hashable
    request: GenerationRequest
    search: Request  # the same source and config, as searches take it
    model: Generator
    prompt: tuple[int, ...]  # the inputs of `start`; of an image none
    limit: int  # maximum length of an output
    prompt_tokens: int
    alone: bool = False  # whether its rows cannot share a state with others
    finished: list[tuple[int, Hypothesis]] = field(default_factory=list)  # outputs of single rows, and their numbers

    @property
    def config(self) -> DecodeConfig:
        return self.request.config

    @property
    def rows(self) -> int:
        return self.config.rows

    @property
    def tokens(self) -> int:
        """The most tokens of a row."""
        return len(self.prompt) + self.limit + 1

    @cached_property
    def max_steps(self) -> int:
        """The most steps of a row, that of a forced EOS included."""
        return self.limit + self.config.conventions.forces_eos

    @cached_property
    def search_key(self) -> DecodeConfig:
        """Jobs with equal keys share a search."""
        return self.config.replace(**PER_ROW, **({} if self.config.beams > 1 else PER_SAMPLE))

    def finish(self, hypotheses: Sequence[Hypothesis], outputs: tuple[int, ...] = ()) -> Event:
        """The last event."""
        if not are_finite(hypotheses):
            return FailedEvent(self.key, NOT_FINITE)
        reasons = tuple(self.find_reason(hypothesis) for hypothesis in hypotheses)
        written = sum(len(hypothesis.ids) for hypothesis in hypotheses)
        return FinishedEvent(self.key, list(hypotheses), reasons, self.prompt_tokens, written, outputs)

    def find_reason(self, hypothesis: Hypothesis) -> Reason:
        """Whether an output ended by itself, at a stop string or at its maximum length."""
        if len(hypothesis.ids) < self.limit:
            return "stop"
        text = self.search.tokeniser.decode(hypothesis.ids) if self.config.stop and self.search.tokeniser else ""
        return "stop" if any(string in text for string in self.config.stop) else "length"


Survivors = list[tuple[int, int]]  # of each row that goes on: the row whose place it has, and the row that it continues


class Search(Protocol):
    """Rows that are decoded together."""

    places: list[int]  # of each row in the decoding state

    @property
    def tokens(self) -> Tensor:
        """The last tokens, (R,)."""
        ...

    def join(self, job: Job, places: Sequence[int]) -> None:
        """Append the rows of a job."""
        ...

    def extend(self, logits: Tensor, events: list[Event]) -> Survivors | None:
        """Extend all rows by a token, given logits (R, V); None: all go on in their places."""
        ...

    def remove(self, job: Job) -> Survivors:
        """The rows of the other jobs."""
        ...

    def arrange(self, survivors: Survivors, places: list[int]) -> None:
        """Continue with these rows in these places of the decoding state."""
        ...

    def recording(self) -> AbstractContextManager[None]:
        """Run the model inside this block."""
        ...


@dataclass(eq=False, slots=True)
class TokenRow:
    """One output of a job, decoded greedily or sampled."""

    job: Job
    output: int
    truncation: tuple[float, int, float, float, float] | None  # of the distribution to sample from; None: greedy
    uniforms: list[float]  # a random number for each step
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class TokenSearch:
    """Greedy decoding and sampling: a token of each row at each step."""

    def __init__(self) -> None:
        self.rows: list[TokenRow] = []
        self.places: list[int] = []
        self.scorer: NextTokenScorer | None = None
        self.tokens = torch.empty(0, dtype=torch.long)
        self.forced = 0
        self.ends: set[int] = set()
        self.pick: Pick = pick_most_probable
        self.top = 0  # the most of `top_logprobs`
        self.ended: list[tuple[TokenRow, int]] = []  # rows that ended in the last step, and their places

    def join(self, job: Job, places: Sequence[int]) -> None:
        scorer, first = NextTokenScorer(job.model, job.search), job.search.build_first_tokens(job.model)
        if self.scorer is None:
            self.scorer, self.tokens = scorer, first
            self.forced, self.ends = job.search.count_forced(job.model), set(scorer.ends)
        else:
            self.scorer.join(scorer)
            self.tokens = torch.cat((self.tokens, first))
        sampled = job.config.search == "sample"
        uniforms = draw_uniforms(job.request.source, job.config).t().tolist() if sampled else [[]] * job.rows
        truncation = get_truncation(job.config) if sampled else None
        self.rows += [TokenRow(job, output, truncation, numbers) for output, numbers in enumerate(uniforms)]
        self.places += places
        self._prepare()

    def _prepare(self) -> None:
        """What follows from the rows and holds until others join or some leave."""
        self.pick = make_picker(self.rows)
        self.top = max((row.job.request.top_logprobs for row in self.rows), default=0)
        if self.scorer is not None and self.rows:
            self.scorer.set_bounds(
                min(len(row.ids) for row in self.rows), min(row.job.limit - len(row.ids) for row in self.rows)
            )

    def extend(self, logits: Tensor, events: list[Event]) -> Survivors | None:
        assert self.scorer is not None
        log_probs = self.scorer.score(logits)
        gains, self.tokens = self.pick(log_probs)
        self.scorer.extend(self.tokens)
        tops = list_top(log_probs, self.top) if self.top else None
        left = []
        self.ended.clear()
        for place, (row, token, gain) in enumerate(zip(self.rows, self.tokens.tolist(), gains.tolist(), strict=True)):
            row.log_probs.append(gain)
            if token in self.ends:
                self._finish(row, events)
                left.append(place)
                continue
            row.ids.append(token)
            top = tops[place][: row.job.request.top_logprobs] if tops else ()
            events.append(TokenEvent(row.job.key, row.output, token, gain, top))
            if len(row.log_probs) >= row.job.max_steps:
                self._finish(row, events)
                left.append(place)
        self.ended += [(self.rows[index], self.places[index]) for index in left]
        return self._drop(left) if left else None

    def _finish(self, row: TokenRow, events: list[Event]) -> None:
        job = row.job
        job.finished.append((row.output, score_path(row.ids, row.log_probs, job.config, self.forced)))
        if len(job.finished) == job.rows:
            ranked = sorted(sorted(job.finished, key=lambda pair: pair[0]), key=lambda pair: -pair[1].score)
            events.append(job.finish([hypothesis for _, hypothesis in ranked], tuple(output for output, _ in ranked)))

    def remove(self, job: Job) -> Survivors:
        return self._drop([index for index, row in enumerate(self.rows) if row.job is job])

    def _drop(self, rows: Collection[int]) -> Survivors:
        gone = set(rows)
        return [(index, index) for index in range(len(self.rows)) if index not in gone]

    def arrange(self, survivors: Survivors, places: list[int]) -> None:
        order = sorted(range(len(places)), key=places.__getitem__)  # in the order of the state, if there is one search
        kept = [survivors[index][0] for index in order]
        self.places = [places[index] for index in order]
        self.rows = [self.rows[index] for index in kept]
        if not self.rows:
            self.scorer = None
        else:
            assert self.scorer is not None
            rows = torch.tensor(kept, device=self.tokens.device)
            self.scorer.select(rows)
            self.tokens = self.tokens[rows]
        self._prepare()

    def recording(self) -> AbstractContextManager[None]:
        return nullcontext()


Pick = Callable[[Tensor], tuple[Tensor, Tensor]]  # log P (R, V) -> log P and id of the next token of each row


def pick_most_probable(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Greedy decoding."""
    gains, tokens = topk(log_probs, 1)
    return gains[:, 0], tokens[:, 0]


def make_picker(rows: Sequence[TokenRow]) -> Pick:
    """The picker for rows of which some are greedy and others sampled, each by its own random numbers."""
    groups = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row.truncation].append(index)
    samplers = [(truncation, indices) for truncation, indices in groups.items() if truncation is not None]
    if not samplers:
        return pick_most_probable

    def pick(log_probs: Tensor) -> tuple[Tensor, Tensor]:
        tokens = topk(log_probs, 1)[1][:, 0]
        for truncation, indices in samplers:
            numbers = [rows[index].uniforms[len(rows[index].log_probs)] for index in indices]
            uniforms = torch.tensor(numbers, dtype=torch.float64, device=log_probs.device)
            where = torch.tensor(indices, device=log_probs.device)
            chosen = log_probs if len(indices) == len(rows) else log_probs[where]
            tokens[where] = draw(chosen, uniforms, *truncation)[:, 0]
        return log_probs.gather(1, tokens[:, None])[:, 0], tokens

    return pick


def list_top(log_probs: Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """The most probable tokens of each row and their log P."""
    values, tokens = topk(log_probs, min(count, log_probs.shape[1]))
    return [
        tuple((token, value) for token, value in zip(*pair, strict=True) if value > -torch.inf)
        for pair in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


class BeamRows:
    """Beam search over the rows of several jobs with the same number of beams."""

    def __init__(self) -> None:
        self.search: BeamSearch | None = None
        self.jobs: dict[int, Job] = {}  # by the number of their source in the search
        self.done: dict[int, int] = {}  # tokens of each source
        self.places: list[int] = []

    @property
    def tokens(self) -> Tensor:
        assert self.search is not None
        return self.search.tokens

    def join(self, job: Job, places: Sequence[int]) -> None:
        search = BeamSearch(job.model, job.search)
        if self.search is None:
            self.search, number = search, 0
        else:
            number = self.search.count
            self.search.join(search)
        self.jobs[number], self.done[number] = job, 0
        self.places += places
        self._set_bounds()

    def _set_bounds(self) -> None:
        if self.search is not None and self.done:
            left = min(self.jobs[number].limit - done for number, done in self.done.items())
            self.search.scorer.set_bounds(min(self.done.values()), left)

    def extend(self, logits: Tensor, events: list[Event]) -> Survivors | None:
        assert self.search is not None
        search, width = self.search, self.search.width
        before = list(self.jobs)
        log_probs = search.scorer.score(logits)
        rows = search.extend(log_probs)
        for number in before:
            self.done[number] += 1
        active = self._find_active(before)
        if not search.finished and len(active) < len(before):  # without outputs, the search looks for none to drop
            rows = rows[search.select_sources(active)]
        after = set(search.sources.tolist())
        for number in before:
            if number not in after:
                events.append(self.jobs.pop(number).finish(search.rank(number)))
                del self.done[number]
                search.finished.pop(number, None)
        own = [index * width + beam for index, number in enumerate(before) if number in after for beam in range(width)]
        self._continue(rows, extended=True)
        return list(zip(own, rows.tolist(), strict=True))

    def _find_active(self, numbers: Sequence[int]) -> Tensor:
        """The indices of sources that may go on: all, unless their outputs have no finite probability."""
        active = [index for index, number in enumerate(numbers) if self.done[number] < self.jobs[number].max_steps]
        return torch.tensor(active, dtype=torch.long, device=self.tokens.device)

    def _continue(self, rows: Tensor, extended: bool = False) -> None:
        assert self.search is not None
        self.search.scorer.select(rows)
        self.search.coverage.select(rows)
        if extended:
            self.search.scorer.extend(self.search.tokens)
        if not self.jobs:
            self.search = None

    def remove(self, job: Job) -> Survivors:
        assert self.search is not None
        numbers = list(self.jobs)
        kept = [index for index, number in enumerate(numbers) if self.jobs[number] is not job]
        for number in numbers:
            if self.jobs[number] is job:
                del self.jobs[number], self.done[number]
                self.search.finished.pop(number, None)
        rows = self.search.select_sources(torch.tensor(kept, dtype=torch.long, device=self.tokens.device))
        self._continue(rows)
        return [(row, row) for row in rows.tolist()]

    def arrange(self, survivors: Survivors, places: list[int]) -> None:
        self.places = places
        self._set_bounds()

    def recording(self) -> AbstractContextManager[None]:
        assert self.search is not None
        return self.search.coverage.record_attention()
