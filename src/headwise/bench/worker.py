"""The process of one engine: `python -m headwise.bench.worker WHAT JOB`.

It gets ready, says so, then times one repeat for every line it reads, which has the repeat's arguments. Answers are
lines of JSON.
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
from headwise.utils.extras import is_missing


def main(what: str, text: str) -> None:
    from headwise.bench.jobs import JOBS

    job: Any = JOBS[what].model_validate_json(text)

    import torch

    warnings.simplefilter("ignore")  # peers' own
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a peer prints must not mix with the answers
    torch.set_num_threads(job.threads)
    try:
        run = prepared(what, job)
        first = run()
    except (ImportError, UserError) as error:
        why = is_missing(error.name) if isinstance(error, ImportError) and error.name else str(error)
        print(json.dumps({"missing": why}), file=answers, flush=True)
        return
    print(json.dumps(described(first)), file=answers, flush=True)
    gc.disable()  # a collection in one engine's repeat and not in another's would be noise
    for line in sys.stdin:
        gc.collect()  # now, and not after the answer, when it would disturb the next engine
        begin, worked = perf_counter(), process_time()
        found = run(**json.loads(line))
        times = {"seconds": perf_counter() - begin, "cpu": process_time() - worked}
        print(json.dumps(times | (found if isinstance(found, dict) else {})), file=answers, flush=True)


def described(first: Any) -> dict[str, Any]:
    """What the first repeat did, as an answer."""
    if isinstance(first, dict):  # it measures itself
        return first
    return {"tokens": first} if isinstance(first, int) else {"tokens": sum(map(len, first)), "outputs": first}


def prepared(what: str, job: Any) -> Callable[..., Any]:
    """The function to time."""
    from importlib import import_module

    return import_module(f"headwise.bench.{HOMES[what]}").timed(job)


# Imported in the process of an engine alone, where it is known which peers are needed.
HOMES = {
    "train": "training",
    "decode": "decoding",
    "gpt": "gpt",
    "generate": "generating",
    "encode": "encoding",
    "images": "images",
    "attention": "mixers",
}


if __name__ == "__main__":
    main(*sys.argv[1:])
