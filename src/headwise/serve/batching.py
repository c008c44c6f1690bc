"""Continuous batching: requests join a running batch when there is room and leave it when they are done, between any
two tokens (Yu et al. 2022, Orca: iteration-level scheduling).

A request waits, reads its prompt (prefill), joins a lane, and leaves. Long prompts are read in chunks, so that the rows
that run never wait for more than `prefill_tokens` tokens of others between two of their own. A model whose parts do not
declare `joins` decodes each group of requests that start together in a lane of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator as Iterable
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headwise.decode.coverage_penalty import build_coverage_penalty
from headwise.decode.generator import Generator, Request, source_length
from headwise.decode.logits_processors import build_processors
from headwise.decode.window import wrap_in_window
from headwise.errors import UserError
from headwise.models.generative import DecodingState
from headwise.models.language_model import LanguageModel
from headwise.serve.lane import Lane
from headwise.serve.prefixes import PrefixCache, make_source_key
from headwise.serve.requests import PROMPT, Event, FailedEvent, GenerationRequest, TokenEvent, describe_failure
from headwise.serve.searches import Job, list_top
from headwise.text import PAD
from headwise.text.base import Tokeniser


@dataclass
class Reading:
    """Chunked prefill: a job whose prompt is being read in chunks."""

    job: Job
    state: Any
    read: int


class ContinuousBatcher:
    """Decodes the requests of one model in one batch. Not thread-safe: one thread calls it.

    At most `max_rows` rows run at a time, and their caches hold at most `max_tokens` tokens, padding included: a
    request is admitted when its longest outputs fit. `prefill_tokens` bounds the tokens of prompts that are read
    between two steps of running rows; `prefix_tokens` bounds the cache of prompts that may come again.
    """

    def __init__(
        self,
        model: Generator,
        tokeniser: Tokeniser | None = None,
        device: torch.device | str = "cpu",
        max_rows: int = 64,
        max_tokens: int = 131_072,
        prefill_tokens: int = 512,
        prefix_tokens: int = 8192,
    ):
        self.model, self.tokeniser, self.device = model, tokeniser, torch.device(device)
        self.max_rows, self.max_tokens, self.prefill_tokens = max_rows, max_tokens, prefill_tokens
        self.joins, self.ragged = model.joins, model.ragged  # once: these ask every part
        self.prefixes = PrefixCache(prefix_tokens)
        self.queue: deque[Job] = deque()
        self.reading: Reading | None = None
        self.lanes: list[Lane] = []
        self.jobs: dict[Hashable, Job] = {}
        if isinstance(model, nn.Module):
            model.eval()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.jobs

    @property
    def waiting(self) -> int:
        """The number of requests that have not been admitted."""
        return len(self.queue)

    @property
    def live_rows(self) -> int:
        """The number of rows that are taken."""
        return sum(lane.rows for lane in self.lanes) + (self.reading.job.rows if self.reading else 0)

    @property
    def free_rows(self) -> int:
        return self.max_rows - self.live_rows

    @property
    def cached_tokens(self) -> int:
        """The number of tokens in the caches of running rows, padding included, and of prefixes."""
        running = sum(lane.rows * max((job.tokens for job in lane.jobs), default=0) for lane in self.lanes)
        return running + self.prefixes.tokens

    def submit(self, key: Hashable, request: GenerationRequest) -> None:
        """Queue a request; raises `UserError` for one that can never run."""
        if key in self.jobs:
            raise UserError(f"request {key!r}: it is running already; give each request a key of its own")
        job = self._build_job(key, request)
        if job.rows > self.max_rows:
            raise UserError(
                f"beams and nbest: {job.rows} rows do not fit into a batch of {self.max_rows}; ask for fewer"
            )
        if job.rows * job.tokens > self.max_tokens:
            raise UserError(
                f"this request needs {job.rows * job.tokens} tokens of cache, and there are {self.max_tokens}; shorten "
                "the prompt, max_length or beams"
            )
        self.jobs[key] = job
        self.queue.append(job)

    def _build_job(self, key: Hashable, request: GenerationRequest) -> Job:
        config, source = request.config, request.source
        check_source(self.model, request)
        model = wrap_in_window(self.model, [source], config)
        search = Request([source], config, self.device, self.tokeniser)
        build_processors(config, model.vocab, model.start_id, model.end_id, self.device, self.tokeniser)
        build_coverage_penalty(model, search)
        inputs = [] if isinstance(source, Tensor) else search.build_inputs(model)[0].tolist()
        alone = model is not self.model or config.coverage_penalty > 0
        tokens = 0 if isinstance(source, Tensor) else len(source)
        return Job(key, request, search, model, tuple(inputs), search.compute_limits(model)[0], tokens, alone)

    def cancel(self, key: Hashable) -> None:
        """Forget a request, in whatever state it is; its rows are free at the next step."""
        job = self.jobs.pop(key, None)
        if job is None:
            return
        if job in self.queue:
            self.queue.remove(job)
        elif self.reading and self.reading.job is job:
            self.reading = None
        else:
            with torch.inference_mode():
                for lane in self.lanes:
                    if job in lane.jobs:
                        lane.remove(job)
            self.lanes = [lane for lane in self.lanes if lane.rows]

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Admit what fits, and take one step: a token for each row; returns what happened."""
        events = list(self._admit())
        for lane in self.lanes:
            try:
                events += lane.step()
            except Exception as error:  # whatever it is, other lanes go on
                events += [FailedEvent(job.key, describe_failure(error)) for job in lane.jobs]
                lane.rows = 0
        for event in events:
            if not isinstance(event, TokenEvent):
                self._forget(event.key)
        self.lanes = [lane for lane in self.lanes if lane.rows]
        return events

    def _forget(self, key: Hashable) -> None:
        job = self.jobs.pop(key, None)
        for lane in self.lanes:
            lane.jobs = [other for other in lane.jobs if other is not job]

    def _admit(self) -> Iterable[Event, None, None]:
        """Read prompts, as many tokens as may be read before the next step; first come, first served."""
        budget = self.prefill_tokens if self.live_rows else 4 * self.prefill_tokens
        while budget > 0:
            if self.reading is None:
                if not self.queue or not self._fits([self.queue[0]]):
                    return
                try:
                    self.reading = self._begin_reading(self.queue[0], budget)
                except Exception as error:  # whatever it is, running rows go on
                    yield FailedEvent(self.queue.popleft().key, describe_failure(error))
                    continue
                if self.reading is None:
                    budget -= yield from self._start(self._take_batch(budget))
                    continue
                self.queue.popleft()
            reading = self.reading
            try:
                budget -= yield from self._read_on(reading, budget)
            except Exception as error:
                yield FailedEvent(reading.job.key, describe_failure(error))
                self.reading = None

    def _fits(self, jobs: Sequence[Job]) -> bool:
        """Whether the rows of these jobs, and their caches when they are longest, fit beside those that run."""
        if self.live_rows + sum(job.rows for job in jobs) > self.max_rows:
            return False
        together = [*jobs, *([self.reading.job] if self.reading else [])]
        rows, tokens = sum(job.rows for job in together), max(job.tokens for job in together)
        used = 0
        for lane in self.lanes:
            longest = max((job.tokens for job in lane.jobs), default=0)
            if lane.shape is not None:
                rows, tokens = rows + lane.rows, max(tokens, longest)
            else:
                used += lane.rows * longest
        return used + rows * tokens <= self.max_tokens

    def _begin_reading(self, job: Job, budget: int) -> Reading | None:
        """Go on from a prefix that was read before, or read a long prompt in chunks; None: start it with others."""
        if job.alone:
            return None
        if not (isinstance(self.model, LanguageModel) and self.joins):
            prefix = self.prefixes.find(make_source_key(job.request.source)) if self.joins else None
            return None if prefix is None else Reading(job, prefix.state.copy_row(0), len(job.prompt))
        echo = job.request.echo_logprobs
        prefix = None if echo else self.prefixes.find_common(job.prompt)
        if prefix is not None:
            return Reading(job, prefix.state.copy_row(0, prefix.length), prefix.length)
        if len(job.prompt) <= budget and not echo:
            return None
        return Reading(job, self.model.start(torch.empty(1, 0, dtype=torch.long, device=self.device)), 0)

    def _read_on(self, reading: Reading, budget: int) -> Iterable[Event, None, int]:
        """Read the next chunk of a prompt; returns its length. After the last one the job joins."""
        job, first = reading.job, reading.read
        chunk = job.prompt[first : first + budget]
        if chunk:
            assert isinstance(self.model, LanguageModel)
            x = self.model.read(torch.tensor([chunk], device=self.device), reading.state)
            reading.read += len(chunk)
            if job.request.echo_logprobs:
                yield from describe_prompt(job, first, self.model.decoder.head(x)[0])
        if reading.read == len(job.prompt):
            self._keep_prefixes([job], reading.state)
            self.reading = None
            yield from self._join([job], reading.state)
        return len(chunk)

    def _take_batch(self, budget: int) -> list[Job]:
        """The next jobs of the queue that start together, as many as the budget allows, padding included."""
        batch = [self.queue.popleft()]
        while self.queue and not batch[0].alone:
            job = self.queue[0]
            longest = max(count_inputs(other) for other in (*batch, job))
            equal = self.ragged or len(job.prompt) == len(batch[0].prompt)
            images = [each.request.source.shape for each in (batch[0], job) if isinstance(each.request.source, Tensor)]
            if job.alone or not equal or len(images) == 1 or len(set(images)) > 1:
                break
            if (len(batch) + 1) * longest > budget or not self._fits([*batch, job]):
                break
            if job.request.echo_logprobs or self.prefixes.knows(self._get_prefix_key(job)):
                break
            batch.append(self.queue.popleft())
        return batch

    def _start(self, batch: list[Job]) -> Iterable[Event, None, int]:
        """Read the prompts or sources of jobs that start together; returns the number of tokens read."""
        try:
            state = batch[0].model.start(self._build_inputs(batch))
        except Exception as error:  # whatever it is, running rows go on
            if len(batch) > 1:  # at most the one that fails
                for job in batch:
                    yield from self._start([job])
            else:
                yield FailedEvent(batch[0].key, describe_failure(error))
        else:
            if batch[0].request.echo_logprobs:
                yield from self._score_by_steps(batch[0])
            self._keep_prefixes(batch, state)
            yield from self._join(batch, state)
        return len(batch) * max(count_inputs(job) for job in batch)

    def _score_by_steps(self, job: Job) -> Iterable[Event, None, None]:
        """log P of the tokens of a prompt, by a model that cannot read it in chunks."""
        state = job.model.start(torch.empty(1, 0, dtype=torch.long, device=self.device))
        for place, token in enumerate(job.prompt):
            logits, state = job.model.step(torch.tensor([token], device=self.device), state)
            yield from describe_prompt(job, place, logits)

    def _build_inputs(self, batch: Sequence[Job]) -> Tensor:
        images = [job.request.source for job in batch if isinstance(job.request.source, Tensor)]
        if images:
            return torch.stack(images).to(self.device)
        rows = [torch.tensor(job.prompt, dtype=torch.long) for job in batch]
        return pad_sequence(rows, batch_first=True, padding_value=PAD).to(self.device)

    def _get_prefix_key(self, job: Job) -> Hashable:
        return job.prompt if self.model.continues_prompt else make_source_key(job.request.source)

    def _keep_prefixes(self, jobs: Sequence[Job], state: Any) -> None:
        """Keep the states of prompts that may come again."""
        if not self.joins or jobs[0].alone or not isinstance(state, DecodingState):
            return
        for row, job in enumerate(jobs):
            key, tokens = self._get_prefix_key(job), count_inputs(job)
            if self.prefixes.wants(key, tokens):
                self.prefixes.add(key, state.copy_row(row), tokens)

    def _keep_output(self, job: Job, ids: list[int], state: Any, place: int) -> None:
        """Keep the state after a prompt and its output, with which the next prompt of a chat begins."""
        if not isinstance(self.model, LanguageModel) or not self.joins or job.alone or not state.can_shorten:
            return
        first = int(job.search.build_first_tokens(job.model)[0])
        read = (*job.prompt, first, *ids)[: int(state.lengths[place])]
        if self.prefixes.wants(read, len(read)):
            self.prefixes.forget(job.prompt)  # which the longer one begins with
            self.prefixes.add(read, state.copy_row(place), len(read))

    def _join(self, jobs: Sequence[Job], state: Any) -> Iterable[Event, None, None]:
        """Let jobs join a lane: `state` has one row for each."""
        source, shared = jobs[0].request.source, self.joins and not jobs[0].alone
        shape = tuple(source.shape) if isinstance(source, Tensor) else ()  # images of one size share a lane
        lane = next((lane for lane in self.lanes if shared and lane.shape == shape), None)
        if lane is None:
            lane = Lane(jobs[0].model, self.device, shape if shared else None, self._keep_output)
            self.lanes.append(lane)
        try:
            if any(job.rows > 1 for job in jobs):
                rows = [row for row, job in enumerate(jobs) for _ in range(job.rows)]
                state = state.select(torch.tensor(rows, device=self.device))
            lane.join(jobs, state)
        except Exception as error:  # its rows may be incomplete now; other lanes go on
            for job in {id(job): job for job in (*lane.jobs, *jobs)}.values():
                yield FailedEvent(job.key, describe_failure(error))
            lane.rows = 0
            self.lanes.remove(lane)


def count_inputs(job: Job) -> int:
    """The number of tokens that a job reads before its first step."""
    return max(1, source_length(job.request.source) if isinstance(job.request.source, Tensor) else len(job.prompt))


def describe_prompt(job: Job, first: int, logits: Tensor) -> Iterable[Event, None, None]:
    """The events of the prompt's tokens after those from `first` on, given logits (T, V)."""
    log_probs = logits.log_softmax(-1, dtype=torch.float32)
    tokens = [*job.prompt, int(job.search.build_first_tokens(job.model)[0])][first + 1 : first + 1 + len(log_probs)]
    count = job.request.top_logprobs
    tops = list_top(log_probs, count) if count else [()] * len(tokens)
    values = log_probs.gather(1, torch.tensor(tokens, device=log_probs.device)[:, None])[:, 0].tolist()
    for token, value, top in zip(tokens, values, tops, strict=True):
        yield TokenEvent(job.key, PROMPT, token, value, top)


def check_source(model: Generator, request: GenerationRequest) -> None:
    """Raise if the model has no such input."""
    source = request.source
    if request.top_logprobs < 0 or request.top_logprobs > model.vocab:
        raise UserError(f"top_logprobs: {request.top_logprobs} is not between 0 and the {model.vocab} tokens there are")
    if request.echo_logprobs and not model.continues_prompt:
        raise UserError("echo_logprobs: only a language model has probabilities of its prompt; leave it out")
    if isinstance(source, Tensor):
        return
    vocab = getattr(model, "source_vocab", model.vocab)
    wrong = [token for token in source if not 0 <= token < vocab]
    if wrong:
        raise UserError(f"source: the model has no token {wrong[0]}; ids are from 0 to {vocab - 1}")
