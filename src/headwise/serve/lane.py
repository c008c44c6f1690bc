"""A lane: one decoding state, whose rows belong to the searches of several requests and come and go at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import choose_threads, use_threads
from headwise.decode.generator import Generator
from headwise.serve.requests import Event
from headwise.serve.searches import BeamRows, Job, Search, Survivors, TokenSearch

KeepEnded = Callable[[Job, list[int], Any, int], None]  # a job that has ended, its output, the state and its place


class Lane:
    """Rows that take a step of the model together. A row has a place in the decoding state; where a row has left, the
    last one takes its place, so that no other is copied."""

    def __init__(self, model: Generator, device: torch.device, shape: tuple[int, ...] | None, keep: KeepEnded):
        self.model, self.device = model, device
        self.keep = keep
        self.shape = shape  # of the images of jobs that may join, () for texts; None: no others may join
        self.state: Any = None
        self.rows = 0
        self.in_order = False
        self.jobs: list[Job] = []
        self.searches: dict[DecodeConfig, Search] = {}
        self.count_threads = cache(lambda rows: choose_threads(model, rows, device))

    def join(self, jobs: Sequence[Job], state: Any) -> None:
        """Take in jobs that have read their prompts; `state` has the rows of each job, next to one another."""
        self.state = state if self.state is None else self.state.join(state)
        for job in jobs:
            key = job.search_key
            if key not in self.searches:
                self.searches[key] = BeamRows() if job.config.beams > 1 else TokenSearch()
            self.searches[key].join(job, range(self.rows, self.rows + job.rows))
            self.rows += job.rows
        self.jobs += jobs
        self._compare_order()

    def _compare_order(self) -> None:
        """Find out whether there is one search, whose rows are in the order of the state."""
        first = next(iter(self.searches.values()), None)
        self.in_order = first is not None and len(self.searches) == 1 and first.places == list(range(self.rows))

    def step(self) -> list[Event]:
        """One token for each row."""
        events: list[Event] = []
        searches = list(self.searches.values())
        alone = searches[0] if self.in_order else None
        with use_threads(self.count_threads(self.rows)):
            if alone is not None:
                with alone.recording():
                    logits, self.state = self.model.step(alone.tokens, self.state)
                survivors = [alone.extend(logits, events)]
            else:
                survivors = self._step_searches(searches, events)
        if any(rows is not None for rows in survivors):
            self._keep_ended(searches)
            self._rearrange(list(zip(searches, survivors, strict=True)))
        return events

    def _keep_ended(self, searches: Iterable[Search]) -> None:
        """Show the rows that have ended to `keep`, before others take their places."""
        for search in searches:
            for row, place in search.ended if isinstance(search, TokenSearch) else ():
                if row.job.rows == 1:
                    self.keep(row.job, row.ids, self.state, place)

    def _step_searches(self, searches: Iterable[Search], events: list[Event]) -> list[Survivors | None]:
        tokens = torch.empty(self.rows, dtype=torch.long, device=self.device)
        places = [torch.tensor(search.places, device=self.device) for search in searches]
        for search, at in zip(searches, places, strict=True):
            tokens[at] = search.tokens
        logits, self.state = self.model.step(tokens, self.state)
        return [search.extend(logits[at], events) for search, at in zip(searches, places, strict=True)]

    def remove(self, job: Job) -> None:
        """Take a job out of the batch."""
        search = self.searches[job.search_key]
        self._rearrange([(each, each.remove(job) if each is search else None) for each in self.searches.values()])
        self.jobs = [each for each in self.jobs if each is not job]

    def _rearrange(self, searches: list[tuple[Search, Survivors | None]]) -> None:
        """Move rows into the places of those that have left, and to those that continue them."""
        pairs = [
            (search, [(row, row) for row in range(len(search.places))] if survivors is None else survivors)
            for search, survivors in searches
        ]
        count = sum(len(survivors) for _, survivors in pairs)
        used = [search.places[own] for search, survivors in pairs for own, _ in survivors]
        free = sorted(set(range(count)).difference(used))
        moved = dict(zip(sorted(place for place in used if place >= count), free, strict=True))
        order = [0] * count
        for search, survivors in pairs:
            places = [moved.get(search.places[own], search.places[own]) for own, _ in survivors]
            for place, (_, parent) in zip(places, survivors, strict=True):
                order[place] = search.places[parent]
            search.arrange(survivors, places)
        self.searches = {key: search for key, search in self.searches.items() if search.places}
        if not count:
            self.state = None
        elif count < self.rows or order != list(range(count)):
            self.state = self.state.select(torch.tensor(order, device=self.device))
        self.rows = count
        self._compare_order()
