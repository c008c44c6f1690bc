"""What approximation costs: mixers beside exact attention over length, in time, memory and error.

Every mixer has a process of its own; at each length repeats go in turn through all of them. A cell that would take
longer or more memory than allowed, if costs go on as they did, is left out and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from headwise.bench.contest import Say, Worker
from headwise.bench.cost_fit import crossover, expected, exponent
from headwise.bench.jobs import MixerJob
from headwise.blocks.tables import PARTS
from headwise.config.base import validate
from headwise.errors import UserError, nearest
from headwise.experiment.config import parse_changes

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
PASSES = {"forward": False, "forward and backward": True}  # with or without a gradient
BASE = "sdpa"  # exact attention by torch's fused kernel, which the others must beat
Clock = Literal["seconds", "cpu"]
PATIENCE = 6.0  # seconds beyond which one repeat is enough, though it is the one that warms up

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
    """What one pass may take, and by which clock."""

    seconds: float = 60.0
    bytes: float = 8e9
    clock: Clock = "seconds"  # or of the processor, which other programs disturb less


@dataclass
class Costs:
    """What one pass of a mixer costs, by length; where a length was left out, why."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def times(self) -> dict[int, float]:
        """Medians; the first repeat at a length only warms up where others follow."""
        return {length: median(each[1:] or each) for length, each in self.seconds.items()}

    @property
    def least(self) -> dict[int, float]:
        """What the work itself takes: whatever disturbs a machine only adds to it."""
        return {length: min(each) for length, each in self.seconds.items()}

    def refused(self, length: int, limits: Limits) -> str:
        """Why a further length is not to be tried, if the costs go on as they did; empty: it is."""
        if self.left_out:
            return next(reversed(self.left_out.values()))
        if expected(list(self.times), list(self.times.values()), length) > limits.seconds:
            return f"> {limits.seconds:g} s"
        if expected(list(self.bytes), list(self.bytes.values()), length) > limits.bytes:
            return f"> {limits.bytes / 1e9:g} GB"
        return ""


@dataclass
class Row:
    """A mixer over all lengths."""

    name: str
    missing: str = ""
    costs: dict[str, Costs] = field(default_factory=lambda: {name: Costs() for name in PASSES})
    errors: dict[int, float] = field(default_factory=dict)

    def fitted(self, what: str, quantity: str = "least") -> float | None:
        """The exponent of a cost."""
        every: Mapping[int, float] = getattr(self.costs[what], quantity)
        found = {length: cost for length, cost in every.items() if cost > 0}
        return exponent(list(found), list(found.values()))

    def ahead(self, base: Row, what: str) -> float | None:
        """The length from which it is faster than another."""
        own, other = self.costs[what].times, base.costs[what].times
        common = [length for length in own if length in other]
        return crossover(common, [own[n] for n in common], [other[n] for n in common]) if common else None

    def ratios(self, other: Row, what: str) -> dict[int, float]:
        """How many times as fast as another, by length."""
        own, theirs = self.costs[what].times, other.costs[what].times
        return {length: theirs[length] / own[length] for length in own if length in theirs}


def jobs(names: Sequence[str], **settings: Any) -> list[MixerJob]:
    """The jobs of some mixers, all where none is named, with exact attention among them and each with its package.

    A name is one of `MIXERS`, a kind of part, or a table with `kind` and settings as TOML writes it.
    """
    found = dict.fromkeys(names or MIXERS)
    if BASE not in found:
        found = {BASE: None, **found}
    made = []
    for name in found:
        for engine in (name, *([PEERS[name]] if name in PEERS else [])):
            made.append(validate(MixerJob, {"engine": engine, "mixer": settings_of(name), **settings}, "--mixers"))
    return made


def settings_of(name: str) -> Any:
    """The part that a name on the command line means."""
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
    say: Say = lambda text: None,
) -> list[Row]:
    """All mixers at all lengths."""
    if repeats < 1 or min(lengths, default=0) < 2:
        raise UserError("--repeats and --lengths: give at least one repeat, and lengths of 2 tokens or more")
    rows = []
    with ExitStack() as running:
        ready: list[tuple[Worker, Row]] = []
        for work in works:
            say(f"{work.engine}: getting ready")
            worker = running.enter_context(Worker(work, "attention"))
            row = Row(work.engine, missing=unable(worker))
            rows.append(row)
            if not row.missing:
                ready.append((worker, row))
        for length in sorted(set(lengths)):
            say(f"{length:,} tokens")
            for number in range(repeats + 1):
                for worker, row in ready:
                    if not row.missing:
                        repeat(worker, row, length, number, limits)
    return rows


def unable(worker: Worker) -> str:
    """Why a mixer cannot be measured; empty where it can."""
    try:
        return str(worker.answer().get("missing", ""))
    except UserError as error:
        return str(error)


def repeat(worker: Worker, row: Row, length: int, number: int, limits: Limits) -> None:
    """One repeat of a mixer at a length, forward, then forward and backward; the first decides what follows. A process
    that fails has nothing more to say."""
    try:
        _repeat(worker, row, length, number, limits)
    except (UserError, BrokenPipeError) as error:
        row.missing = str(error)


def _repeat(worker: Worker, row: Row, length: int, number: int, limits: Limits) -> None:
    for what, backward in PASSES.items():
        costs = row.costs[what]
        if number == 0 and (why := costs.refused(length, limits)):
            costs.left_out[length] = why
        if length in costs.left_out or (number and costs.seconds[length][0] > PATIENCE):
            continue
        found = worker.repeat(length=length, backward=backward, first=number == 0)
        costs.seconds.setdefault(length, []).append(found[limits.clock])
        if found.get("bytes") is not None:
            costs.bytes[length] = found["bytes"]
        if found.get("error") is not None:
            row.errors[length] = found["error"]
