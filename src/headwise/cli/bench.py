"""`headwise bench`: speed compared with other installed libraries."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headwise.cli.bench_layers import Repeats, attention, length, print_table
from headwise.cli.bench_serve import serve
from headwise.cli.common import Json, say

if TYPE_CHECKING:
    from headwise.bench.contest import Result
    from headwise.bench.jobs import ImageJob, ModelJob, ServeEngineJob

app = App(name="bench", help="Compare the speed with other installed libraries.")

Shape = Annotated[
    str, Parameter(help="base (width 512, 6+6 layers, vocabulary 32,000), small (256, 3+3, 8,000) or tiny.")
]
Stack = Annotated[
    str, Parameter(help="gpt2 and bert (width 768, 12 layers), characters (384, 6 layers, vocabulary 65) or tiny.")
]
Engines = Annotated[
    list[str] | None, Parameter(negative="", consume_multiple=True, help="Only these libraries, and the peer.")
]
Peer = Annotated[str, Parameter(help="The library whose speed is 1 in the ratios.")]

for command in (attention, length, serve):
    app.command(command)


@app.command
def decode(
    *,
    shape: Shape = "base",
    rows: int = 1,
    beams: int = 1,
    length: int = 32,
    threads: int = 1,
    repeats: Repeats = 7,
    engines: Engines = None,
    peer: Peer = "marian",
    json: Json = False,
) -> None:
    """Decode with the same random model in every library, to outputs of exactly LENGTH tokens.

    For example:

        headwise bench decode
        headwise bench decode --shape small --rows 32 --beams 4
        headwise bench decode --engines headwise --repeats 15 --json

    Parameters
    ----------
    rows
        Batch size, in sentences.
    beams
        Beam size; 1: greedy decoding.
    length
        Tokens of each output.
    threads
        Threads of each library.
    """
    from headwise.bench.contest import select_engines
    from headwise.bench.decoding import ENGINES
    from headwise.bench.jobs import SHAPES, DecodeJob, get_shape
    from headwise.config.base import validate

    common = {"shape": get_shape(shape, SHAPES), "threads": threads, "rows": rows, "beams": beams, "length": length}
    jobs = [
        validate(DecodeJob, {"engine": name, **common}) for name in select_engines(engines or (), list(ENGINES), peer)
    ]
    search = f"beam {beams}" if beams > 1 else "greedy"
    _run(jobs, "decode", repeats, peer, f"decoding, {search}, {rows} at once, {length} tokens", json)


@app.command
def train(
    *,
    shape: Shape = "base",
    rows: int = 32,
    length: int = 32,
    dropout: float = 0.0,
    threads: int = 2,
    repeats: Repeats = 7,
    engines: Engines = None,
    peer: Peer = "marian",
    json: Json = False,
) -> None:
    """Train the same encoder-decoder in every library: forward, backward and a step of fused AdamW.

    For example:

        headwise bench train
        headwise bench train --dropout 0.1
        headwise bench train --shape small --peer nn.Transformer

    Parameters
    ----------
    rows
        Batch size, in sentence pairs.
    length
        Tokens of each sentence; target tokens are counted.
    dropout
        Dropout of embeddings and sublayers.
    threads
        Threads of each library.
    """
    from headwise.bench.contest import select_engines
    from headwise.bench.jobs import SHAPES, TrainJob, get_shape
    from headwise.bench.training import ENGINES
    from headwise.config.base import validate

    common = {
        "shape": get_shape(shape, SHAPES),
        "threads": threads,
        "rows": rows,
        "length": length,
        "dropout": dropout,
    }
    jobs = [
        validate(TrainJob, {"engine": name, **common}) for name in select_engines(engines or (), list(ENGINES), peer)
    ]
    _run(jobs, "train", repeats, peer, f"training, {rows} x {length} tokens, dropout {dropout:g}", json)


@app.command
def gpt(
    *,
    shape: Stack = "characters",
    rows: int = 32,
    length: int = 64,
    dropout: float = 0.0,
    threads: int = 2,
    repeats: Repeats = 7,
    engines: Engines = None,
    json: Json = False,
) -> None:
    """Train the same GPT-2 in every library: forward, backward and a step of fused AdamW.

    For example:

        headwise bench gpt
        headwise bench gpt --shape gpt2 --rows 4 --length 128

    Parameters
    ----------
    rows
        Batch size, in texts.
    length
        Tokens of each.
    dropout
        Dropout of embeddings and sublayers; the peer also drops attention weights.
    threads
        Threads of each library.
    """
    from headwise.bench.gpt import ENGINES
    from headwise.bench.jobs import GptJob

    settings = {"rows": rows, "length": length, "dropout": dropout, "threads": threads}
    jobs = _stack_jobs(GptJob, shape, list(ENGINES), engines, settings)
    _run(jobs, "gpt", repeats, "transformers", f"training, {rows} x {length} tokens, dropout {dropout:g}", json)


@app.command
def generate(
    *,
    shape: Stack = "gpt2",
    rows: int = 1,
    prompt: int = 16,
    length: int = 32,
    threads: int = 1,
    repeats: Repeats = 7,
    engines: Engines = None,
    json: Json = False,
) -> None:
    """Generate greedily after random prompts with the same random GPT-2 in every library.

    For example:

        headwise bench generate
        headwise bench generate --rows 8 --length 64

    Parameters
    ----------
    rows
        Batch size, in prompts.
    prompt
        Tokens of each prompt.
    length
        Tokens to generate.
    threads
        Threads of each library.
    """
    from headwise.bench.generating import ENGINES
    from headwise.bench.jobs import GenerateJob

    settings = {"rows": rows, "prompt": prompt, "length": length, "threads": threads}
    jobs = _stack_jobs(GenerateJob, shape, list(ENGINES), engines, settings)
    _run(jobs, "generate", repeats, "transformers", f"generating, {rows} at once, {length} tokens", json)


@app.command(name="serve-engine")
def serve_engine(
    *,
    encoder_decoder: Annotated[bool, Parameter(negative="", help="Translate, instead of continuing texts.")] = False,
    shape: str = "small",
    clients: int = 16,
    rounds: int = 2,
    prompt: int = 16,
    length: int = 64,
    beams: int = 1,
    mixed: Annotated[bool, Parameter(negative="", help="Lengths from a quarter to 7/4 of the mean.")] = False,
    threads: int = 1,
    repeats: Repeats = 5,
    engines: Engines = None,
    json: Json = False,
) -> None:
    """Decode the requests of several clients with continuous batching, in static batches, and one by one.

    Every client has one request at a time, and sends the next when it has its output. There is no HTTP in between:
    this is what the engine of the service can reach.

    For example:

        headwise bench serve-engine --clients 64
        headwise bench serve-engine --clients 16 --mixed --rounds 4
        headwise bench serve-engine --encoder-decoder --beams 4

    Parameters
    ----------
    shape
        small (width 256, 4 layers, or 3+3), gpt2, characters or tiny; of an encoder-decoder base, small or tiny.
    clients
        Requests at a time.
    rounds
        Requests of each client.
    prompt
        Tokens of each prompt, or source.
    length
        Tokens of each output.
    beams
        Beam size; 1: greedy decoding.
    threads
        Threads of each engine.
    """
    from headwise.bench.contest import select_engines
    from headwise.bench.jobs import SHAPES, STACKS, ServeEngineJob, get_shape
    from headwise.bench.serve_engine import ENGINES
    from headwise.config.base import validate

    shapes: dict[str, Any] = dict(SHAPES if encoder_decoder else STACKS)
    lengths = {"prompt": prompt, "length": length, "mixed": mixed, "beams": beams}
    common = {"shape": get_shape(shape, shapes), "clients": clients, "rounds": rounds, "threads": threads, **lengths}
    names = select_engines(engines or (), list(ENGINES), "static")
    jobs = [validate(ServeEngineJob, {"engine": name, **common}) for name in names]
    kind = f"{prompt} + {length} tokens{' in the mean' if mixed else ''}"
    title = f"{clients} clients with {rounds} requests each, {kind}, beams {beams}"
    _run(jobs, "serve-engine", repeats, "static", title, json)


@app.command
def encode(
    *,
    shape: Stack = "bert",
    rows: int = 32,
    length: int = 64,
    threads: int = 1,
    repeats: Repeats = 7,
    engines: Engines = None,
    json: Json = False,
) -> None:
    """Encode texts with the same random BERT in every library.

    For example:

        headwise bench encode
        headwise bench encode --rows 8 --length 128 --threads 2

    Parameters
    ----------
    rows
        Batch size, in texts.
    length
        Tokens of each.
    threads
        Threads of each library.
    """
    from headwise.bench.encoding import ENGINES
    from headwise.bench.jobs import EncodeJob

    settings = {"rows": rows, "length": length, "threads": threads}
    jobs = _stack_jobs(EncodeJob, shape, list(ENGINES), engines, settings)
    _run(jobs, "encode", repeats, "transformers", f"encoding, {rows} x {length} tokens", json)


@app.command
def images(
    model: str = "vit-s16",
    *,
    image: int = 224,
    rows: int = 8,
    train: Annotated[bool, Parameter(negative="")] = False,
    threads: int = 1,
    repeats: Repeats = 7,
    engines: Engines = None,
    json: Json = False,
) -> None:
    """Classify random images with the same random model in every library, or train it.

    For example:

        headwise bench images vit-b16
        headwise bench images swin-t --train --rows 4

    Parameters
    ----------
    model
        A Vision Transformer or a Swin of `headwise list`.
    image
        Height and width in pixels.
    rows
        Batch size, in images.
    train
        Forward, backward and a step of fused AdamW instead.
    threads
        Threads of each library.
    """
    from headwise.bench.contest import select_engines
    from headwise.bench.images import ENGINES
    from headwise.bench.jobs import ImageJob
    from headwise.catalog import find
    from headwise.config.base import validate
    from headwise.errors import UserError

    entry, size = find(model)
    if entry.name not in ("vit", "swin"):
        raise UserError(f"{model}: there is no other library to compare with; name a size of vit or swin")
    common = {"model": f"{entry.name}-{size}", "image": image, "rows": rows, "train": train, "threads": threads}
    names = select_engines(engines or (), list(ENGINES), "transformers")
    jobs = [validate(ImageJob, {"engine": name, **common}) for name in names]
    _run(jobs, "images", repeats, "transformers", f"{'training' if train else 'labelling'} {rows} at once", json)


def _stack_jobs(
    kind: type[ModelJob], shape: str, known: list[str], engines: list[str] | None, settings: dict[str, Any]
) -> list[ModelJob]:
    from headwise.bench.contest import select_engines
    from headwise.bench.jobs import STACKS, get_shape
    from headwise.config.base import validate

    common = {"shape": get_shape(shape, STACKS), **settings}
    return [validate(kind, {"engine": name, **common}) for name in select_engines(engines or (), known, "transformers")]


def _run(
    jobs: Sequence[ModelJob | ImageJob | ServeEngineJob], what: str, repeats: int, peer: str, title: str, json: bool
) -> None:
    from headwise.bench.contest import run_contest

    results = run_contest(jobs, what, repeats, say)
    (first,) = (result for result in results if result.engine == peer)
    job = jobs[0]
    if json:
        setting = {"what": what, "peer": peer, "repeats": repeats} | job.model_dump(exclude={"engine", "what"})
        print(json_format.dumps(setting | {"results": [result.to_json(first) for result in results]}, indent=1))
        return
    head = f"{title}; {job.shape}; threads {job.threads}; medians of {repeats}"
    columns = [
        "engine",
        "ms",
        "images/s" if what == "images" else "tokens/s",
        f"x {peer}",
        "in CPU time",
        *(["same tokens"] if what in ("decode", "generate", "serve-engine") else []),
    ]
    print_table(head, columns, [_format_row(result, first) for result in results])


def _format_row(result: Result, peer: Result) -> list[str]:
    if result.missing:
        return [result.engine, f"[dim]{result.missing}[/]"]
    agreement = result.agreement(peer)
    return [
        f"[cyan]{result.engine}[/]",
        f"{1e3 * result.tokens / result.rate:,.1f}",
        f"{result.rate:,.0f}" if result.rate >= 100 else f"{result.rate:.1f}",
        *([f"{result.ratio(peer):.2f}", f"{result.ratio(peer, 'cpu'):.2f}"] if peer.seconds else ["-", "-"]),
        *([] if agreement is None else [f"{agreement:.0%}"]),
    ]
