"""`headwise bench serve`: servers of one model under load."""

from __future__ import annotations

import json as json_format
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from headwise.cli.bench_layers import Repeats, print_table
from headwise.cli.common import Json, say

POSITIVE = validators.Number(gte=1)
Count = Annotated[int, Parameter(validator=POSITIVE)]


def serve(
    run: Path,
    *,
    clients: Annotated[list[int] | None, Parameter(negative="", consume_multiple=True, validator=POSITIVE)] = None,
    rates: Annotated[
        list[float] | None, Parameter(negative="", consume_multiple=True, validator=validators.Number(gte=0))
    ] = None,
    rounds: Count = 4,
    arrivals: Count = 64,
    prompt: Count = 16,
    length: Count = 32,
    mixed: Annotated[bool, Parameter(negative="")] = False,
    stream: bool = True,
    repeats: Repeats = 3,
    engines: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    peer: Annotated[str, Parameter(help="The server whose speed is 1 in the ratios.")] = "naive",
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Load servers of a run from another process: ours, and what people write with other libraries.

    naive is transformers behind FastAPI with a lock, litserve the same in batches, transformers-serve the server of
    transformers, offline our engine without HTTP. All decode greedily, to outputs of exactly LENGTH tokens. Every
    server runs on one core and the load on another, where there are two.

    In the first loads a number of clients have one request each at a time; in the others requests arrive at random
    moments, whether the server keeps up or not, and wait from then on.

    For example:

        headwise bench serve runs/shakespeare-gpt --out serve.svg
        headwise bench serve runs/demo --clients 1 16 --rates 0 --engines headwise naive
        headwise bench serve runs/mine --clients 64 --rounds 160 --rates 0 --engines headwise   # 10,240 requests

    Parameters
    ----------
    run
        A run folder or a Hugging Face folder: a language model or an encoder-decoder of texts.
    clients
        Clients of the closed loops; 1, 4, 16 and 64 if none is given.
    rates
        Requests a second of the open loops (Poisson arrivals); by default 0.25, 0.5 and 0.75 of the most that the first
        server answered in the closed loops; 0: none.
    rounds
        Requests of each client; at least 16 in all.
    arrivals
        Requests of each open loop.
    prompt
        Random tokens of each prompt, as text.
    length
        Tokens of each output.
    mixed
        Outputs of a quarter of LENGTH to 7 quarters.
    stream
        Ask for a stream where the server has one; the first token of others is there with the last.
    engines
        Only these servers, and the peer.
    out
        Also write a picture: a name that ends in .svg or .png.
    """
    from headwise.bench.contest import select_engines
    from headwise.bench.serve_arms import ARMS
    from headwise.bench.serving import Plan, find_cores, measure
    from headwise.bench.serving_report import build_tables, draw_report, list_ratios, to_json
    from headwise.inspect.files import check_ending, save
    from headwise.utils.extras import needed_for

    if out is not None:
        check_ending(out, ".svg", ".png")
    names = select_engines(engines or (), list(ARMS), peer)
    given = None if rates is None else tuple(rate for rate in rates if rate)
    plan = Plan(tuple(clients or (1, 4, 16, 64)), given, rounds, 16, arrivals, prompt, length, mixed, stream, repeats)
    busy = os.getloadavg()[0]
    with needed_for("headwise bench serve"):
        results = measure(run, names, plan, say)
    where = "one core for the server, one for the load" if find_cores() else "not pinned to cores"
    kind = f"{prompt} + {length} tokens{' in the mean' if mixed else ''}, {'streamed' if stream else 'whole'}"
    note = f"{run.resolve().name}: {kind}; {where}; medians of {repeats}; load average before it {busy:.1f}"
    if out is not None:
        say(f"wrote {save(draw_report(results, note), out)}")
    if json:
        setting = {"run": str(run), "peer": peer, "load_average": busy, "cores": find_cores()} | vars(plan)
        print(json_format.dumps({**setting, "results": to_json(results)}, indent=1))
        return
    print(note)
    for title, columns, cells in build_tables(results, peer):
        print_table(title, columns, cells)
    for line in list_ratios(results):
        print(line)
    for result in results:
        if result.missing:
            print(f"{result.name}: {result.missing}")
