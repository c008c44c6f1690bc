"""Measurements for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

if TYPE_CHECKING:
    from headwise.serve.pool import ModelPool

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters of the front process, and what the workers said last of themselves."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("headwise_requests", "Answered requests", ["route", "status"], registry=registry)
        self.latency = Histogram(
            "headwise_request_seconds", "From the headers to the end of the answer", ["route"], buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.first_token = Histogram(
            "headwise_time_to_first_token_seconds", "From the request to the first piece of a streamed answer",
            ["model"], buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.prompt_tokens = Counter("headwise_prompt_tokens", "Tokens read", ["model"], registry=registry)
        self.completion_tokens = Counter("headwise_completion_tokens", "Tokens written", ["model"], registry=registry)
        gauges = {
            "waiting": "Requests that wait for a row of the batch",
            "rows": "Rows of the batch: samples and beams that are being written",
            "cached_tokens": "Tokens in the KV cache",
            "memory": "Resident memory of the worker in bytes",
            "requests": "Requests in the worker, waiting or not",
            "restarts": "How often the worker was started again",
            "ready": "Whether the model is loaded",
        }
        self.gauges = {
            name: Gauge(f"headwise_worker_{name}", text, ["model"], registry=registry) for name, text in gauges.items()
        }

    def observe(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, status).inc()
        self.latency.labels(route).observe(seconds)

    def count_tokens(self, model: str, read: int, written: int) -> None:
        self.prompt_tokens.labels(model).inc(read)
        self.completion_tokens.labels(model).inc(written)

    def render(self, pool: ModelPool) -> bytes:
        """All measurements in Prometheus' text format."""
        for name, model in pool.models.items():
            values = {
                "waiting": 0, "rows": 0, "cached_tokens": 0, "memory": 0, **model.stats,
                "requests": len(model.jobs), "restarts": model.restarts, "ready": int(model.is_ready),
            }  # fmt: skip
            if not model.jobs:
                values |= {"waiting": 0, "rows": 0}  # a worker that has nothing to do says nothing
            for gauge, value in values.items():
                self.gauges[gauge].labels(name).set(value)
        return generate_latest(self.registry)
