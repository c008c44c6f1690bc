"""Ways to decode the requests of several clients with the same random model: with continuous batching, in one static
batch for each round of requests, and one request after the other.

Every client has one request at a time, and sends the next when it has the output of the last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from headwise.bench import decoding, generating
from headwise.bench.jobs import DecodeJob, GenerateJob, ServeEngineJob, StackShape
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.int8_screen import prepare_for_cpu
from headwise.errors import UserError
from headwise.serve.batching import ContinuousBatcher
from headwise.serve.requests import FailedEvent, FinishedEvent, GenerationRequest
from headwise.text import SPECIALS

Outputs = list[list[int]]


def build_model(job: ServeEngineJob) -> Any:
    """A random model that never generates EOS."""
    shape = {"engine": "headwise", "shape": job.shape, "rows": job.clients}
    if isinstance(job.shape, StackShape):
        return prepare_for_cpu(generating.random_model(GenerateJob.model_validate(shape)), build_config(job))
    return prepare_for_cpu(decoding.random_model(DecodeJob.model_validate(shape))[0], build_config(job))


def draw_sources(job: ServeEngineJob) -> list[list[int]]:
    """Random sources. If they are mixed, the shortest has a quarter of the mean length, and outputs are as many times
    longer or shorter."""
    rng = random.Random(1)
    least, most = (max(1, job.prompt // 4), 2 * job.prompt - job.prompt // 4) if job.mixed else (job.prompt, job.prompt)
    lengths = [rng.randint(least, most) for _ in range(job.clients * job.rounds)]
    return [rng.choices(range(len(SPECIALS), job.shape.vocab), k=length) for length in lengths]


def build_config(job: ServeEngineJob) -> DecodeConfig:
    return DecodeConfig(
        beams=job.beams, max_ratio=job.length / job.prompt, max_extra=0, max_length=10**6, tokens_per_batch=10**9
    )


def continuous(job: ServeEngineJob) -> Callable[[], Outputs]:
    model, sources, config = build_model(job), draw_sources(job), build_config(job)

    def run() -> Outputs:
        batcher = ContinuousBatcher(model, max_rows=job.clients * config.rows, prefix_tokens=0)
        queue = enumerate(sources)
        outputs: Outputs = [[] for _ in sources]

        def submit_next(count: int) -> None:
            for _, (key, source) in zip(range(count), queue, strict=False):
                batcher.submit(key, GenerationRequest(source, config))

        submit_next(job.clients)
        while not batcher.idle:
            for event in batcher.step():
                if isinstance(event, FailedEvent):
                    raise UserError(event.message)
                if isinstance(event, FinishedEvent):
                    outputs[event.key] = list(event.hypotheses[0].ids)  # type: ignore[call-overload]
                    submit_next(1)
        return outputs

    return run


def static(job: ServeEngineJob, rows: int) -> Callable[[], Outputs]:
    model, sources, config = build_model(job), draw_sources(job), build_config(job)

    def run() -> Outputs:
        return [ids for first in range(0, len(sources), rows) for ids in decode_ids(first)]

    def decode_ids(first: int) -> Iterator[list[int]]:
        for hypotheses in decode(model, sources[first : first + rows], config):
            yield list(hypotheses[0].ids)

    return run


ENGINES: dict[str, Callable[[ServeEngineJob], Callable[[], Outputs]]] = {
    "continuous": continuous,
    "static": lambda job: static(job, job.clients),
    "one by one": lambda job: static(job, 1),
}


def build_benchmark(job: ServeEngineJob) -> Callable[[], Outputs]:
    """The function to time."""
    return ENGINES[job.engine](job)
