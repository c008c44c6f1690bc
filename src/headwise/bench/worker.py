"""The process of one engine: `python -m headwise.bench.worker WHAT JOB [--with PARTS.py]`.

It prepares the benchmark, reports that it is ready, and then times one repeat for every line of stdin, which holds the
repeat's arguments as JSON. Responses are lines of JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from headwise.errors import UserError
from headwise.utils.extras import describe_missing
from headwise.utils.parent import die_with_parent


def main(what: str, text: str, *options: str) -> None:
    from headwise.bench.jobs import JOBS
    from headwise.config.plugins import take_options

    die_with_parent()
    take_options(options)  # before the job is read, which may name the parts
    job: Any = JOBS[what].model_validate_json(text)

    import torch

    warnings.simplefilter("ignore")  # warnings of other libraries
    responses = sys.stdout
    sys.stdout = sys.stderr  # output of other libraries must not mix with the responses
    torch.set_num_threads(job.threads)
    try:
        run = build_benchmark(what, job)
        first = run()
    except (ImportError, UserError) as error:
        message = describe_missing(error.name) if isinstance(error, ImportError) and error.name else str(error)
        print(json.dumps({"missing": message}), file=responses, flush=True)
        return
    print(json.dumps(describe_first(first)), file=responses, flush=True)
    gc.disable()  # a collection in one engine's repeat and not in another's would be noise
    for line in sys.stdin:
        gc.collect()  # now, not after the response, where it would disturb the next engine
        start, cpu_start = perf_counter(), process_time()
        result = run(**json.loads(line))
        times = {"seconds": perf_counter() - start, "cpu": process_time() - cpu_start}
        print(json.dumps(times | (result if isinstance(result, dict) else {})), file=responses, flush=True)


def describe_first(first: Any) -> dict[str, Any]:
    """The response to the first repeat."""
    if isinstance(first, dict):  # it is already a response
        return first
    return {"tokens": first} if isinstance(first, int) else {"tokens": sum(map(len, first)), "outputs": first}


def build_benchmark(what: str, job: Any) -> Callable[..., Any]:
    """The function to time."""
    from importlib import import_module

    return import_module(f"headwise.bench.{MODULES[what]}").build_benchmark(job)


# Imported only in the process of an engine, which needs only its own library.
MODULES = {
    "train": "training",
    "decode": "decoding",
    "gpt": "gpt",
    "generate": "generating",
    "serve-engine": "serve_engine",
    "encode": "encoding",
    "images": "images",
    "attention": "mixers",
}


if __name__ == "__main__":
    main(*sys.argv[1:])
