"""Batches of inputs that need one pass of the model: classification, tagging, embeddings, answers.

Inputs that arrive within a few milliseconds run together, those of similar length in one batch, so that padding costs
little. The oldest input never waits for a batch to be filled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from headwise.decode.driver import batch_by_length
from headwise.errors import UserError
from headwise.serve.requests import FailedEvent, PredictedEvent, describe_failure

Predict = Callable[[Sequence[Any]], Sequence[Any]]  # a prediction for each input, whatever the others are


class Waiting(NamedTuple):
    """An input that waits."""

    key: Hashable
    value: Any
    length: int
    arrived: float


class EncoderBatcher:
    """Runs a task's batched `predict` function, which must give an input the same prediction in any batch. Not
    thread-safe: one thread calls it.

    A batch has at most `max_tokens` tokens, padding included, of at most `max_inputs` inputs. A step runs as soon as
    the oldest input has waited `max_wait` seconds, or a batch is full.
    """

    def __init__(
        self,
        predict: Predict,
        count_tokens: Callable[[Any], int] = len,
        max_inputs: int = 64,
        max_tokens: int = 8192,
        max_wait: float = 0.003,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.predict, self.count_tokens, self.clock = predict, count_tokens, clock
        self.max_inputs, self.max_tokens, self.max_wait = max_inputs, max_tokens, max_wait
        self.queue: dict[Hashable, Waiting] = {}

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.queue

    @property
    def waiting(self) -> int:
        """The number of inputs."""
        return len(self.queue)

    @property
    def delay(self) -> float:
        """Seconds until `step` has something to run; 0: now."""
        if not self.queue:
            return self.max_wait
        full = len(self.queue) >= self.max_inputs or sum(each.length for each in self.queue.values()) >= self.max_tokens
        oldest = next(iter(self.queue.values()))
        return 0.0 if full else max(0.0, oldest.arrived + self.max_wait - self.clock())

    def submit(self, key: Hashable, value: Any) -> None:
        """Queue an input; raises `UserError` for one that can never run."""
        if key in self.queue:
            raise UserError(f"request {key!r}: it is waiting already; give each request a key of its own")
        length = max(1, self.count_tokens(value))
        if length > self.max_tokens:
            raise UserError(f"this input has {length} tokens and a batch at most {self.max_tokens}; shorten it")
        self.queue[key] = Waiting(key, value, length, self.clock())

    def cancel(self, key: Hashable) -> None:
        """Forget an input that waits."""
        self.queue.pop(key, None)

    def step(self) -> list[PredictedEvent | FailedEvent]:
        """Run the batch of the oldest input, if it is time; returns its predictions."""
        if not self.queue or self.delay > 0:
            return []
        batch = self._take_batch()
        try:
            predictions = self.predict([each.value for each in batch])
        except Exception as error:  # whatever it is, other inputs go on
            if len(batch) == 1:
                return [FailedEvent(batch[0].key, describe_failure(error))]
            return [event for each in batch for event in self._predict_alone(each)]
        return [PredictedEvent(each.key, value) for each, value in zip(batch, predictions, strict=True)]

    def _take_batch(self) -> list[Waiting]:
        """The oldest input and those whose lengths are nearest to its own."""
        oldest = next(iter(self.queue.values()))
        waiting = list(self.queue.values())
        for indices in batch_by_length([each.length for each in waiting], self.max_tokens):
            batch = [waiting[index] for index in indices]
            if oldest in batch:
                break
        near = sorted(batch, key=lambda each: (each is not oldest, abs(each.length - oldest.length)))[: self.max_inputs]
        for each in near:
            del self.queue[each.key]
        return near

    def _predict_alone(self, each: Waiting) -> list[PredictedEvent | FailedEvent]:
        """The prediction of an input whose batch has failed, perhaps because of another."""
        try:
            return [PredictedEvent(each.key, self.predict([each.value])[0])]
        except Exception as error:
            return [FailedEvent(each.key, describe_failure(error))]
