"""The engine of the service without HTTP: `python -m headwise.bench.serve_offline RUN`, a load in JSON on every line of
stdin, answered like `headwise.bench.serve_load` answers them. Its clients are rows of one running batch, and their next
requests are there as soon as a row is free, so that this is the most that a server with this engine can reach.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time
from typing import Any

from headwise.bench.serve_load import Load, Measured
from headwise.utils.parent import die_with_parent


def run_offline(trained: Any, load: Load) -> Measured:
    from headwise.blocks.evaluation import get_device
    from headwise.serve.batching import ContinuousBatcher
    from headwise.serve.requests import TokenEvent
    from headwise.serve.worker import find_context

    count = len(load.bodies)
    measured = Measured([0.0] * count, [0.0] * count, [""] * count)
    context = find_context(trained)
    batcher = ContinuousBatcher(
        trained.model, trained.tokenisers.target, get_device(trained.model), max_rows=load.clients
    )
    started, cpu = perf_counter(), process_time()
    jobs = iter([build_job(trained, body, context) for body in load.bodies])  # tokenised, as a batch of texts would be
    running: dict[int, Any] = {}
    begun: dict[int, float] = {}

    def submit(places: int) -> None:
        for _, job in zip(range(places), jobs, strict=False):
            number = len(begun)
            running[number], begun[number] = job, perf_counter()
            batcher.submit(number, job.requests[0])

    submit(load.clients)
    while not batcher.idle:
        for event in batcher.step():
            number = int(str(event.key))
            passed = perf_counter() - begun[number]
            measured.first[number] = measured.first[number] or passed
            ended = False
            for message in running[number].take(0, event):
                if message["type"] == "prompt":
                    measured.texts[number] = message["outputs"][0]["text"]
                if message["type"] == "error":
                    measured.errors.append(message["message"])
                ended = ended or message["type"] in ("done", "error")
            if ended and not isinstance(event, TokenEvent):
                measured.latencies[number] = passed
                running.pop(number)
                submit(1)
    measured.seconds, measured.cpu = perf_counter() - started, process_time() - cpu
    return measured


def build_job(trained: Any, body: dict[str, Any], context: int) -> Any:
    """The request as a worker of the service prepares it."""
    from headwise.serve.generation import GenerationJob

    most = body["max_tokens"]
    settings = {"beams": 1, "coverage_penalty": 0.0, "temperature": 0.0, "min_length": body["min_length"]}
    settings |= {"max_ratio": 0.0, "max_extra": most, "max_length": most}
    switches = {"nbest": 1, "top_logprobs": 0, "logprobs": False, "echo": False, "echo_text": False, "stream": False}
    given = {"inputs": [{"text": body["text"]}], "settings": settings, "max_tokens": most, **switches}
    return GenerationJob(trained, given, None, context)


def main(run: str) -> None:
    die_with_parent()
    from pathlib import Path

    from headwise.serve.limits import ServeLimits
    from headwise.serve.loading import load_for_serving
    from headwise.serve.pool import ModelSpec

    responses, sys.stdout = sys.stdout, sys.stderr
    trained, _ = load_for_serving(ModelSpec("model", Path(run), threads=1).to_message(ServeLimits()))
    for line in sys.stdin:
        print(json.dumps(vars(run_offline(trained, Load(**json.loads(line))))), file=responses, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
