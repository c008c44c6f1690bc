"""Limits of the service: what a client may ask, how much of it, and for how long."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MAX_CHARACTERS = 100_000  # of one text
MAX_TEXTS = 64  # of one request
MAX_JSON_BYTES = 256 * 2**10  # of a body without images
MAX_IMAGE_BYTES = 8 * 2**20  # of an image
MAX_IMAGE_PIXELS = 25_000_000
MAX_IMAGE_BODY = MAX_IMAGE_BYTES * 4 // 3 + 2**16  # of a body with an image in base64
MAX_KEYS = 4096  # of all objects in a body
MAX_DEPTH = 16  # of objects and lists in each other
MAX_STOPS = 16
MAX_OUTPUTS = 16  # samples or hypotheses of a prompt
MAX_BEAMS = 32
MAX_TOP_LOGPROBS = 20
MAX_MAP_VALUES = 2_000_000  # of the attention maps in one answer
MAX_SCORED_TOKENS = 4096
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class ServeLimits:
    """What the person who starts the service decides."""

    queue: int = 128  # requests of a model that may wait
    rows: int = 32  # rows of a model's batch, each a sample or a beam
    max_tokens: int = 1024  # most tokens of an output
    seconds: float = 300.0  # of a whole request, from its headers to the end of the answer
    drain_seconds: float = 30.0  # for requests in flight after SIGTERM

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
