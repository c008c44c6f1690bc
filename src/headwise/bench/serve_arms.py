"""The servers that `headwise bench serve` compares, each in a process of its own:
`python -m headwise.bench.serve_arms ARM RUN FOLDER PORT CLIENTS`, where FOLDER is the run as transformers loads it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.utils.parent import die_with_parent


@dataclass(frozen=True)
class Setup:
    """What a server is started with."""

    run: str
    folder: str
    port: int
    clients: int  # the most that there will be


@dataclass(frozen=True)
class Arm:
    """A server and what it is asked; `serve` None: no server, but the engine without HTTP."""

    serve: Callable[[Setup], None] | None
    needs: str = ""  # a package
    exported: bool = False  # whether it serves the exported folder
    verbs: tuple[str, ...] = ("generate", "translate")
    path: str = "/api/{verb}"
    build_body: Callable[[str, str, int, bool, str], dict[str, Any]] = lambda verb, text, tokens, stream, folder: (
        build_own_body(text, tokens, stream)
    )


def build_own_body(text: str, tokens: int, stream: bool) -> dict[str, Any]:
    """Greedy outputs of exactly so many tokens."""
    lengths = {"max_tokens": tokens, "min_length": tokens}
    return {"text": text, "temperature": 0.0, "beams": 1, "stream": stream, **lengths}


def build_openai_body(verb: str, text: str, tokens: int, stream: bool, folder: str) -> dict[str, Any]:
    lengths = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "num_beams": 1}
    own = {"model": folder, "prompt": text, "max_tokens": tokens, "temperature": 0.0, "stream": stream}
    return own | {"generation_config": json.dumps(lengths)}


def serve_headwise(engine: str) -> Callable[[Setup], None]:
    def serve(setup: Setup) -> None:
        from headwise.serve import server
        from headwise.serve.limits import ServeLimits
        from headwise.serve.pool import ModelSpec
        from headwise.web.guard import Address

        limits = ServeLimits(queue=8 * setup.clients, rows=setup.clients)  # no request of a load is refused
        specs = (ModelSpec("model", Path(setup.run), engine, threads=1),)
        server.serve(server.ServeConfig(specs, Address(port=setup.port), limits, spare=False), print)

    return serve


def serve_naive(setup: Setup) -> None:
    """What people write first: transformers behind FastAPI, one request at a time."""
    import threading

    import uvicorn
    from fastapi import Body, FastAPI

    write = load_writer(setup.folder)
    app, lock = FastAPI(), threading.Lock()

    @app.post("/api")
    def answer(body: Any = Body()) -> dict[str, str]:  # noqa: B008  (as FastAPI wants it)
        with lock:
            return {"text": write([body])[0]}

    uvicorn.run(app, host="127.0.0.1", port=setup.port, log_level="warning")


def serve_litserve(setup: Setup) -> None:
    """LitServe with dynamic batches of what arrives within 10 ms."""
    import litserve

    from headwise.bench.serve_lit import WriterAPI

    api = WriterAPI(setup.folder, max_batch_size=max(2, setup.clients), batch_timeout=0.01, api_path="/api")
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1, timeout=False)
    server.run(host="127.0.0.1", port=setup.port, log_level="warning", generate_client_file=False, num_api_servers=1)


def serve_transformers(setup: Setup) -> None:
    """`transformers serve`."""
    import runpy

    sys.argv = ["transformers", "serve", setup.folder, "--host", "127.0.0.1", "--port", str(setup.port)]
    sys.argv += ["--device", "cpu", "--log-level", "error"]
    runpy.run_module("transformers.cli.transformers", run_name="__main__")


def load_writer(folder: str) -> Callable[[list[Any]], list[str]]:
    """A function that writes the answers to a batch of requests with `generate` of transformers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    torch.set_num_threads(1)
    source = AutoConfig.from_pretrained(folder).is_encoder_decoder
    model = (AutoModelForSeq2SeqLM if source else AutoModelForCausalLM).from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right" if source else "left")
    model.generation_config.forced_eos_token_id = None  # of Marian: it would be the last of the tokens asked for
    model.generation_config.max_length = None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    @torch.inference_mode()
    def write(bodies: list[Any]) -> list[str]:
        inputs = tokenizer([body["text"] for body in bodies], return_tensors="pt", padding=len(bodies) > 1)
        most = max(body["max_tokens"] for body in bodies)
        taken = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        outputs = model.generate(**taken, max_new_tokens=most, min_new_tokens=most, do_sample=False, num_beams=1)
        begin = 1 if source else inputs["input_ids"].shape[1]
        return [
            str(tokenizer.decode(row[begin : begin + body["max_tokens"]], skip_special_tokens=True))
            for row, body in zip(outputs, bodies, strict=True)
        ]

    return write


ARMS: dict[str, Arm] = {
    "offline": Arm(None),
    "headwise": Arm(serve_headwise("native")),
    "headwise-int8": Arm(serve_headwise("int8")),
    "headwise-ctranslate2": Arm(serve_headwise("ctranslate2"), "ctranslate2", verbs=("translate",)),
    "naive": Arm(serve_naive, "transformers", exported=True, path="/api"),
    "litserve": Arm(serve_litserve, "litserve", exported=True, path="/api"),
    "transformers-serve": Arm(
        serve_transformers, "accelerate", True, ("generate",), "/v1/completions", build_openai_body
    ),
}


def main(arm: str, run: str, folder: str, port: str, clients: str) -> None:
    die_with_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    serve = ARMS[arm].serve
    assert serve is not None
    serve(Setup(run, folder, int(port), int(clients)))


if __name__ == "__main__":
    main(*sys.argv[1:])
