"""A contest: every engine runs in its own process, and repeats alternate, so that other load affects all equally."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from headwise.bench.jobs import EngineJob
from headwise.config.plugins import list_options
from headwise.errors import UserError, nearest

Log = Callable[[str], None]


@dataclass
class Result:
    """The results of one engine: wall time and CPU time of each repeat, in seconds."""

    engine: str
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    missing: str = ""

    @property
    def rate(self) -> float:
        """Tokens per second, by the median."""
        return self.tokens / median(self.seconds) if self.seconds else 0.0

    def ratio(self, peer: Result, clock: Literal["seconds", "cpu"] = "seconds") -> float:
        """The median over repeats of the peer's time / own time; repeats are paired, as they met the same load. Above 1
        it is faster. CPU time is less disturbed by other programs, but does not see idle threads."""
        if not (self.seconds and peer.seconds):
            return 0.0
        pairs = zip(getattr(peer, clock), getattr(self, clock), strict=True)
        return median(theirs / own for theirs, own in pairs)

    def agreement(self, peer: Result) -> float | None:
        """The share of output tokens equal to the peer's; None if there are no outputs."""
        if not (self.outputs and peer.outputs):
            return None
        pairs = [
            (a, b)
            for own, theirs in zip(self.outputs, peer.outputs, strict=True)
            for a, b in zip(own, theirs, strict=False)
        ]
        return sum(a == b for a, b in pairs) / max(len(pairs), self.tokens, peer.tokens)

    def to_json(self, peer: Result) -> dict[str, Any]:
        own = {key: value for key, value in asdict(self).items() if key != "outputs"}
        ratios = {"ratio": self.ratio(peer), "cpu_ratio": self.ratio(peer, "cpu")}
        return own | {"rate": self.rate, **ratios, "agreement": self.agreement(peer)}


class Worker:
    """The process of one engine."""

    def __init__(self, job: EngineJob, what: str):
        self.engine = job.engine
        threads = {"OMP_NUM_THREADS": str(job.threads), "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwise.bench.worker", what, job.model_dump_json(), *list_options()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | threads,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def read_response(self) -> dict[str, Any]:
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            last = (self.process.stderr.read().strip().splitlines() or ["no message"])[-1]
            raise UserError(f"{self.engine}: its process failed ({last}); leave it out with --engines")
        response: dict[str, Any] = json.loads(line)
        return response

    def run_repeat(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read_response()


def run_contest(jobs: Sequence[EngineJob], what: str, repeats: int, say: Log = lambda text: None) -> list[Result]:
    """Time all jobs, alternating between them; a job whose engine is not installed has `missing` instead of seconds."""
    if repeats < 1:
        raise UserError(f"--repeats: each engine must be timed at least once, not {repeats} times")
    results = []
    with ExitStack() as running:
        ready: list[tuple[Worker, Result]] = []
        for job in jobs:  # sequentially, so that starting one does not disturb another's first repeat
            say(f"{job.engine}: starting")
            worker = running.enter_context(Worker(job, what))
            result = Result(job.engine, **worker.read_response())
            results.append(result)
            if not result.missing:
                ready.append((worker, result))
        for number in range(repeats):
            say(f"repeat {number + 1} of {repeats}")
            for worker, result in ready:
                times = worker.run_repeat()
                result.seconds.append(times["seconds"])
                result.cpu.append(times["cpu"])
    return results


def select_engines(names: Sequence[str], known: Sequence[str], peer: str) -> list[str]:
    """The engines to run, in the table's order, always with the peer."""
    for name in (*names, peer):
        if name not in known:
            raise UserError(f"--engines: there is no '{name}'; {nearest(name, known)}")
    return [name for name in known if not names or name in names or name == peer]
