"""A batcher of requests that are decoded whole, for engines with a decoding loop of their own, such as CTranslate2."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from headwise.blocks.evaluation import get_device
from headwise.decode.driver import decode
from headwise.decode.generator import source_length
from headwise.decode.hypothesis import Hypothesis
from headwise.errors import UserError
from headwise.serve.requests import Event, FailedEvent, FinishedEvent, GenerationRequest, Reason
from headwise.text.base import Tokeniser


class WholeBatcher:
    """Requests with one config are decoded together, as many as are waiting and fit in `rows`."""

    def __init__(self, model: Any, tokeniser: Tokeniser | None = None, rows: int = 32):
        self.model, self.tokeniser, self.rows = model, tokeniser, rows
        self.requests: dict[Hashable, GenerationRequest] = {}

    def submit(self, key: Hashable, request: GenerationRequest) -> None:
        self.requests[key] = request

    def cancel(self, key: Hashable) -> None:
        self.requests.pop(key, None)

    @property
    def idle(self) -> bool:
        return not self.requests

    @property
    def waiting(self) -> int:
        return len(self.requests)

    live_rows = 0
    cached_tokens = 0

    @property
    def free_rows(self) -> int:
        return self.rows

    def step(self) -> list[Event]:
        """Decode the oldest request, and those after it with its config."""
        if not self.requests:
            return []
        config = next(iter(self.requests.values())).config
        most = max(1, self.rows // config.rows)
        keys = [key for key, request in self.requests.items() if request.config == config][:most]
        sources = [self.requests.pop(key).source for key in keys]
        try:
            results = decode(self.model, sources, config, get_device(self.model), self.tokeniser)
        except UserError as error:
            return [FailedEvent(key, str(error)) for key in keys]
        return list(self._finish(keys, sources, results))

    def _finish(
        self, keys: list[Hashable], sources: list[Any], results: list[list[Hypothesis]]
    ) -> Iterator[FinishedEvent]:
        for key, source, hypotheses in zip(keys, sources, results, strict=True):
            reasons: list[Reason] = ["stop"] * len(hypotheses)
            yield FinishedEvent(
                key, hypotheses, tuple(reasons), source_length(source),
                sum(len(each.ids) + 1 for each in hypotheses),
            )  # fmt: skip
