"""Load on servers of one trained model: ours, and those that people write with other libraries.

All servers are started at once, each on the same core, and idle while another is measured; the load comes from a
process on another core. A point is one load on all of them, one after the other, with the same requests; its repeats
alternate between the servers, so that other programs disturb all equally.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from headwise.bench.serve_arms import ARMS, Arm
from headwise.bench.serve_load import Load, Measured
from headwise.config.plugins import list_options
from headwise.errors import UserError
from headwise.utils.extras import describe_missing

Log = Callable[[str], None]
START_SECONDS = 120.0
SHARES = (0.25, 0.5, 0.75)  # of the first server's highest rate in the closed loops, for the open loops


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    clients: tuple[int, ...]
    rates: tuple[float, ...] | None  # requests a second; None: shares of what was reached
    rounds: int = 4  # requests of each client, and of each point at least `fewest`
    fewest: int = 16
    arrivals: int = 64  # requests of an open loop
    prompt: int = 16
    length: int = 32
    mixed: bool = False
    stream: bool = True
    repeats: int = 3


@dataclass
class Point:
    """All repeats of one load on one server."""

    clients: int = 0
    rate: float = 0.0
    requests: int = 0  # of a repeat
    repeats: list[Measured] = field(default_factory=list)

    @property
    def errors(self) -> int:
        return sum(len(each.errors) for each in self.repeats)

    def summarise(self, of: Callable[[Measured], float]) -> float:
        """The median over the repeats."""
        return median(map(of, self.repeats))

    @property
    def requests_per_second(self) -> float:
        return self.summarise(lambda one: (self.requests - len(one.errors)) / one.seconds)

    @property
    def tokens_per_second(self) -> float:
        return self.summarise(lambda one: one.tokens * (1 - len(one.errors) / self.requests) / one.seconds)

    @property
    def cpu(self) -> float:
        """Processor seconds of the server for a request; less disturbed by other programs than what clients see."""
        return self.summarise(lambda one: one.server_cpu / self.requests)

    def percentile(self, share: float, what: str = "latencies") -> float:
        """Of the requests of a repeat that were answered, by the median over the repeats; seconds."""
        return self.summarise(lambda one: find_percentile([each for each in getattr(one, what) if each], share))

    def agreement(self, other: Point) -> float:
        """The share of answers with the same text."""
        pairs = [
            (mine.strip(), theirs.strip())
            for one, two in zip(self.repeats, other.repeats, strict=False)
            for mine, theirs in zip(one.texts, two.texts, strict=True)
        ]
        return sum(a == b for a, b in pairs) / max(1, len(pairs))

    def to_json(self) -> dict[str, Any]:
        own = {"clients": self.clients, "rate": self.rate, "requests": self.requests, "errors": self.errors}
        rates = {"requests_per_second": self.requests_per_second, "tokens_per_second": self.tokens_per_second}
        times = {
            f"{name}_p{share:.0f}": self.percentile(share / 100, what)
            for name, what in (("latency", "latencies"), ("first_token", "first"))
            for share in (50, 99)
        }
        return own | rates | times | {"cpu": self.cpu, "load_cpu": self.summarise(lambda one: one.cpu / one.seconds)}


@dataclass
class ArmResult:
    """A server, and what was measured of it."""

    name: str
    missing: str = ""
    points: list[Point] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # resident bytes after the first load, and at the end
    served: int = 0  # requests between the two

    def find(self, clients: int = 0, rate: float = 0.0) -> Point | None:
        return next((each for each in self.points if (each.clients, each.rate) == (clients, rate)), None)

    def to_json(self) -> dict[str, Any]:
        own = asdict(self) | {"points": [point.to_json() for point in self.points]}
        return {"engine": own.pop("name"), **own}


def find_percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def find_cores() -> tuple[int, int] | None:
    """The core of the servers and that of the load; None where there is one, or processes cannot be pinned."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (cores[0], cores[1]) if len(cores) > 1 else None


@contextmanager
def pin(core: int | None) -> Iterator[None]:
    """Processes that are started in the block run on this core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Process:
    """A process of the benchmark, in a session of its own, so that it ends with all that it has started."""

    def __init__(self, words: Sequence[str], core: int | None, errors: Path):
        settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.errors = errors
        with pin(core), errors.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words, *list_options()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | settings,
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def run(self, load: Load) -> Measured:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(load)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise UserError(f"a process of the benchmark ended ({self.last_words})")
        return Measured(**json.loads(line))

    @property
    def last_words(self) -> str:
        return (self.errors.read_text(errors="replace").strip().splitlines() or ["no message"])[-1][:300]

    def measure(self) -> tuple[int, float]:
        """Resident bytes and processor seconds of the process and of all that it has started; 0 without /proc."""
        pages, ticks = 0, 0
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                if os.getsid(int(entry.name)) == self.process.pid:
                    pages += int((entry / "statm").read_text().split()[1])
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    ticks += int(fields[11]) + int(fields[12])  # of proc(5): utime and stime
        return pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A server that runs, or the engine in its place."""

    result: ArmResult
    arm: Arm
    process: Process
    loader: Process
    verb: str
    folder: str
    port: int

    def run(self, prompts: Sequence[tuple[str, int]], stream: bool, **settings: Any) -> Measured:
        bodies = [self.arm.build_body(self.verb, text, tokens, stream, self.folder) for text, tokens in prompts]
        load = Load(self.port, self.arm.path.format(verb=self.verb), bodies, **settings)
        return (self.loader if self.arm.serve else self.process).run(load)

    def wait(self, prompt: tuple[str, int]) -> None:
        """Until it answers; else the reason becomes what is missing."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.process.poll() is not None:
                self.result.missing = f"did not start ({self.process.last_words})"
                return
            with suppress(OSError):
                if self.arm.serve:
                    socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                measured = self.run([prompt], False, clients=1)
                self.result.missing = "".join(measured.errors)
                if not measured.errors or measured.errors[0].startswith("status 4"):
                    return
            time.sleep(0.2)
        self.result.missing = f"did not answer within {START_SECONDS:.0f} seconds ({self.result.missing})"


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Prompts:
    """Random texts of about as many tokens as are asked for; never the same twice, so that no answer is cached."""

    def __init__(self, tokeniser: Any, plan: Plan):
        from headwise.text import SPECIALS

        self.tokeniser, self.plan, self.rng = tokeniser, plan, random.Random(1)
        self.ids = [number for number in range(len(SPECIALS), tokeniser.size) if self._is_plain([number])]
        if not self.ids:
            raise UserError("headwise bench serve: this run's tokeniser writes no plain text; name another run")

    def _is_plain(self, ids: list[int]) -> bool:
        text = self.tokeniser.decode(ids)
        return bool(text.strip()) and text.isprintable() and "\ufffd" not in text

    def draw(self, count: int) -> list[tuple[str, int]]:
        """Texts, and how many tokens to write for each: if they are mixed, from a quarter of the mean to 7 quarters."""
        least = max(1, self.plan.length // 4) if self.plan.mixed else self.plan.length
        lengths = [self.rng.randint(least, 2 * self.plan.length - least) for _ in range(count)]
        return [(self.tokeniser.decode(self.rng.choices(self.ids, k=self.plan.prompt)), length) for length in lengths]


def measure(run: Path, names: Sequence[str], plan: Plan, say: Log) -> list[ArmResult]:
    """Measure all servers; those that cannot run here say why."""
    from headwise.experiment.load import load

    trained = load(run)
    writes = trained.experiment.task.writes
    if trained.experiment.task.reads != "texts" or not writes:
        raise UserError(f"{run}: writes no texts; name a language model or an encoder-decoder")
    verb = "generate" if writes == "continuation" else "translate"
    tokeniser = trained.tokenisers.target if verb == "generate" else trained.tokenisers.source
    prompts, cores = Prompts(tokeniser, plan), find_cores()
    server_core, load_core = cores or (None, None)
    results = [ArmResult(name) for name in names]
    with TemporaryDirectory() as parent, ExitStack() as running:
        folder, reason = export(trained, Path(parent, "exported"))
        loader = running.enter_context(Process(["headwise.bench.serve_load"], load_core, Path(parent, "load.log")))
        servers = []
        for result in results:
            arm = ARMS[result.name]
            result.missing = find_obstacle(arm, verb, reason)
            if result.missing:
                continue
            say(f"{result.name}: starting")
            port = find_free_port()
            most = str(max((*plan.clients, 16)))
            words = ["headwise.bench.serve_arms", result.name, str(run), str(folder), str(port), most]
            if arm.serve is None:
                words = ["headwise.bench.serve_offline", str(run)]
            process = running.enter_context(Process(words, server_core, Path(parent, f"{result.name}.log")))
            server = Server(result, arm, process, loader, verb, str(folder), port)
            server.wait(prompts.draw(1)[0])
            if not result.missing:
                servers.append(server)
        if not any(server.arm.serve for server in servers):
            raise UserError("--engines: none of these can run here: " + "; ".join(
                f"{result.name}: {result.missing}" for result in results if result.missing))  # fmt: skip
        run_points(servers, prompts, plan, say)
    return results


def export(trained: Any, folder: Path) -> tuple[Path, str]:
    """The run as transformers loads it, or why it cannot be written so."""
    from headwise.experiment.convert import to_hf

    try:
        reason = to_hf(trained, folder)
    except UserError as error:
        reason = str(error)
    return folder, f"transformers cannot load this model: {reason}" if reason else ""


def find_obstacle(arm: Arm, verb: str, unexported: str) -> str:
    if verb not in arm.verbs:
        return f"does not {verb}"
    if arm.exported and unexported:
        return unexported
    return describe_missing(arm.needs) if arm.needs and find_spec(arm.needs) is None else ""


def run_points(servers: Sequence[Server], prompts: Prompts, plan: Plan, say: Log) -> None:
    for server in servers:  # the first requests allocate and compile
        server.run(prompts.draw(max(plan.clients)), plan.stream, clients=max(plan.clients))
        server.result.memory = [server.process.measure()[0]]
    for clients in plan.clients:
        run_point(servers, Point(clients, 0.0, max(plan.fewest, clients * plan.rounds)), prompts, plan, say)
    reached = max(point.requests_per_second for point in servers[0].result.points)
    rates = plan.rates if plan.rates is not None else [float(f"{share * reached:.2g}") for share in SHARES]
    for rate in rates:
        run_point([each for each in servers if each.arm.serve], Point(0, rate, plan.arrivals), prompts, plan, say)
    for server in servers:
        server.result.memory.append(server.process.measure()[0])


def run_point(servers: Sequence[Server], point: Point, prompts: Prompts, plan: Plan, say: Log) -> None:
    """One load on all servers, again and again."""
    own = [Point(point.clients, point.rate, point.requests) for _ in servers]
    for repeat in range(plan.repeats):
        what = f"{point.clients} clients" if point.clients else f"{point.rate:g} requests/s"
        say(f"{what}, repeat {repeat + 1} of {plan.repeats}")
        drawn = prompts.draw(point.requests)
        for server, each in zip(servers, own, strict=True):
            settings: dict[str, Any] = {"clients": point.clients} if point.clients else {"rate": point.rate}
            before = server.process.measure()[1]
            measured = server.run(drawn, plan.stream, **settings, seed=repeat)
            measured.server_cpu = server.process.measure()[1] - before
            measured.tokens = sum(tokens for _, tokens in drawn)
            each.repeats.append(measured)
            server.result.served += point.requests
    for server, each in zip(servers, own, strict=True):
        server.result.points.append(each)
