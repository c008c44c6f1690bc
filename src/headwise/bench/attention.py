"""Mixers beside exact attention over length: time, memory and error.

Every mixer has its own process; at each length repeats alternate between all of them. A cell whose extrapolated time or
memory exceeds the limits is skipped and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from headwise.bench.contest import Log, Worker
from headwise.bench.cost_fit import crossover, extrapolate, fit_exponent
from headwise.bench.jobs import MixerJob
from headwise.blocks.tables import PARTS
from headwise.config.base import validate
from headwise.errors import UserError, nearest
from headwise.experiment.config import parse_changes

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
PASSES = {"forward": False, "forward and backward": True}  # with or without a gradient
BASE = "sdpa"  # exact attention by torch's fused kernel, which the others must beat
Clock = Literal["seconds", "cpu"]
PATIENCE = 6.0  # seconds: a slower first repeat, the warm-up, is the only one

MIXERS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "attention", "kernel": "plain"},
    "chunked": {"kind": "attention", "kernel": "chunked"},
    BASE: {"kind": "attention", "kernel": "sdpa"},
    **{
        kind: {"kind": kind}
        for kind in (
            "lsh", "linformer", "performer", "linear", "local", "window", "strided", "bigbird", "compressed", "fourier",
            "tokens", "workspace",
        )
    },
    "dense": {"kind": "attention", "score": "dense"},
    "random": {"kind": "attention", "score": "random"},
}  # fmt: skip
PEERS = {"lsh": "reformer-pytorch", "linformer": "linformer (PyPI)", "performer": "performer-pytorch"}


@dataclass(frozen=True)
class Limits:
    """The limits of one pass, and the clock that is used."""

    seconds: float = 60.0
    bytes: float = 8e9
    clock: Clock = "seconds"  # or CPU time, which other programs disturb less


@dataclass
class Costs:
    """The costs of one pass of a mixer by length, and the reasons for skipped lengths."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)

    @property
    def times(self) -> dict[int, float]:
        """Medians; the first repeat at a length is a warm-up if others follow."""
        return {length: median(each[1:] or each) for length, each in self.seconds.items()}

    @property
    def least(self) -> dict[int, float]:
        """Minima: other load only adds to the time of the work itself."""
        return {length: min(each) for length, each in self.seconds.items()}

    def skip_reason(self, length: int, limits: Limits) -> str:
        """Why a length is skipped, by extrapolated costs; empty if it is not."""
        if self.skipped:
            return next(reversed(self.skipped.values()))
        if extrapolate(list(self.times), list(self.times.values()), length) > limits.seconds:
            return f"> {limits.seconds:g} s"
        if extrapolate(list(self.bytes), list(self.bytes.values()), length) > limits.bytes:
            return f"> {limits.bytes / 1e9:g} GB"
        return ""


@dataclass
class MixerCosts:
    """A mixer over all lengths."""

    name: str
    missing: str = ""
    costs: dict[str, Costs] = field(default_factory=lambda: {name: Costs() for name in PASSES})
    errors: dict[int, float] = field(default_factory=dict)

    def fit_exponent(self, what: str, quantity: str = "least") -> float | None:
        """The exponent of a cost over length."""
        costs: Mapping[int, float] = getattr(self.costs[what], quantity)
        positive = {length: cost for length, cost in costs.items() if cost > 0}
        return fit_exponent(list(positive), list(positive.values()))

    def crossover_length(self, base: MixerCosts, what: str) -> float | None:
        """The length from which it is faster than `base`."""
        own, other = self.costs[what].times, base.costs[what].times
        common = [length for length in own if length in other]
        return crossover(common, [own[n] for n in common], [other[n] for n in common]) if common else None

    def speedups(self, other: MixerCosts, what: str) -> dict[int, float]:
        """The speedup over another mixer, by length."""
        own, theirs = self.costs[what].times, other.costs[what].times
        return {length: theirs[length] / own[length] for length in own if length in theirs}


def build_jobs(names: Sequence[str], **settings: Any) -> list[MixerJob]:
    """The jobs of some mixers (by default all), with exact attention, and the package of each that has one.

    A name is one of `MIXERS`, a kind of part, or a table with `kind` and settings as TOML writes it.
    """
    mixers = dict.fromkeys(names or MIXERS)
    if BASE not in mixers:
        mixers = {BASE: None, **mixers}
    jobs = []
    for name in mixers:
        for engine in (name, *([PEERS[name]] if name in PEERS else [])):
            jobs.append(validate(MixerJob, {"engine": engine, "mixer": parse_mixer(name), **settings}, "--mixers"))
    return jobs


def parse_mixer(name: str) -> Any:
    """The settings of the part that a name on the command line means."""
    if name in MIXERS:
        return MIXERS[name]
    value = parse_changes([f"mixer={name}"])["mixer"]
    if isinstance(value, str) and value not in PARTS.names:
        raise UserError(f"--mixers: there is no '{name}'; {nearest(name, {*MIXERS, *PARTS.names})}")
    return value


def measure(
    works: Sequence[MixerJob],
    lengths: Sequence[int],
    repeats: int,
    limits: Limits = Limits(),  # noqa: B008  (a frozen value)
    say: Log = lambda text: None,
) -> list[MixerCosts]:
    """Measure all mixers at all lengths."""
    if repeats < 1 or min(lengths, default=0) < 2:
        raise UserError("--repeats and --lengths: give at least one repeat, and lengths of 2 tokens or more")
    rows = []
    with ExitStack() as running:
        ready: list[tuple[Worker, MixerCosts]] = []
        for work in works:
            say(f"{work.engine}: starting")
            worker = running.enter_context(Worker(work, "attention"))
            row = MixerCosts(work.engine, missing=read_missing(worker))
            rows.append(row)
            if not row.missing:
                ready.append((worker, row))
        for length in sorted(set(lengths)):
            say(f"{length:,} tokens")
            for number in range(repeats + 1):
                for worker, row in ready:
                    if not row.missing:
                        run_repeat(worker, row, length, number, limits)
    return rows


def read_missing(worker: Worker) -> str:
    """Why a mixer cannot be measured; empty if it can."""
    try:
        return str(worker.read_response().get("missing", ""))
    except UserError as error:
        return str(error)


def run_repeat(worker: Worker, row: MixerCosts, length: int, number: int, limits: Limits) -> None:
    """One repeat of a mixer at a length, forward, then forward and backward; the first decides on the others. A process
    that fails is not asked again."""
    try:
        _run_repeat(worker, row, length, number, limits)
    except (UserError, BrokenPipeError) as error:
        row.missing = str(error)


def _run_repeat(worker: Worker, row: MixerCosts, length: int, number: int, limits: Limits) -> None:
    for what, backward in PASSES.items():
        costs = row.costs[what]
        if number == 0 and (reason := costs.skip_reason(length, limits)):
            costs.skipped[length] = reason
        if length in costs.skipped or (number and costs.seconds[length][0] > PATIENCE):
            continue
        result = worker.run_repeat(length=length, backward=backward, first=number == 0)
        costs.seconds.setdefault(length, []).append(result[limits.clock])
        if result.get("bytes") is not None:
            costs.bytes[length] = result["bytes"]
        if result.get("error") is not None:
            row.errors[length] = result["error"]
