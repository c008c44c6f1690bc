"""The application of LitServe, in a module of its own because its worker process imports it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headwise.bench.serve_arms import load_writer

BASE: Any = import_module("litserve").LitAPI if find_spec("litserve") else object  # readable where it is missing


class WriterAPI(BASE):
    """Batches of requests, written by `generate` of transformers."""

    def __init__(self, folder: str, **settings: Any):
        super().__init__(**settings)
        self.folder = folder

    def setup(self, device: str) -> None:
        self.write = load_writer(self.folder)

    def decode_request(self, request):  # an annotation would be read by FastAPI
        return request

    def predict(self, batch: list[Any]) -> list[str]:
        return self.write(batch)

    def encode_response(self, output: str) -> dict[str, str]:
        return {"text": output}
