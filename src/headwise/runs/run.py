"""The run folder: everything that came out of one training, and all that is needed to go on.

    runs/NAME/
      config.toml       the resolved experiment
      info.json         versions and time
      tokenizer.json    (written by the tokenisers)
      metrics.jsonl     one row a line
      checkpoints/step-N/   model, optimizer, ema (safetensors), state.json, manifest.json
      best, last        each names a checkpoint
      lock              held by the process that trains

Nothing here imports torch; tensors are the business of `checkpoint.py`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from reprlib import repr as shorten
from typing import IO, Any

import tomli_w

from headwise.errors import UserError
from headwise.runs.metrics import Metrics
from headwise.utils.files import (
    Stage,
    check_name,
    discard,
    open_regular,
    read_bytes,
    read_json,
    read_toml,
    recover,
    remove,
    unheard,
    write,
    writing,
)

# The types of what info.json and a checkpoint's state.json say; other keys may hold anything.
INFO = {"created": str}
COUNTS = ("step", "epoch", "index", "tokens", "validated", "stale", "skips")
STATE = {**dict.fromkeys(COUNTS, int), "minutes": float, "best": dict}
BEST = {"name": str, "value": float, "step": int}
POINTER = 100  # bytes at most of `best` and `last`


class Taken(UserError):
    """The name of a new run is in use."""


class Run:
    """One run folder. `stage` hears the steps of a save, for those who test by killing it."""

    def __init__(self, path: Path, stage: Stage = unheard):
        self.path = path
        self.stage = stage
        self.tokenizer = path / "tokenizer.json"
        self.checkpoints = path / "checkpoints"
        self.metrics = Metrics(path / "metrics.jsonl")

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """An existing run."""
        path = Path(path)
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} is not a run: it has no config.toml; name a folder that training wrote")
        return cls(path)

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, Any]) -> Run:
        """A new run with its resolved config; refuses a folder that exists."""
        run = cls(Path(path))
        with writing(run.path):
            run.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                run.path.mkdir()  # atomic: of two processes that want the name, one gets it
            except FileExistsError:
                raise Taken(f"{path} exists already; choose another name, or resume it") from None
            try:
                run.checkpoints.mkdir()
                write(run.path / "info.json", json.dumps(_info(), indent=1))
                write(run.path / "config.toml", tomli_w.dumps(dict(config)))
            except BaseException:
                remove(run.path)
                raise
        return run

    @classmethod
    def fresh(cls, folder: Path | str, name: str, config: Mapping[str, Any]) -> Run:
        """A new run `folder/name`, or `name-2`, `name-3`, ... where that is taken."""
        try:
            check_name(name)
        except ValueError as error:
            raise UserError(f"run name {name!r}: {error}") from None
        path = Path(folder) / name
        number = 1
        while True:
            try:
                return cls.create(path, config)
            except Taken:
                number += 1
                path = Path(folder) / f"{name}-{number}"

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        path = self.path / "config.toml"
        try:
            return read_toml(path)
        except (OSError, ValueError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"{path} cannot be read: {what}; restore a copy of it, or delete the run") from error

    @property
    def info(self) -> dict[str, Any]:
        """Versions and time of creation; empty where the file is missing."""
        return _read_facts(self.path / "info.json", INFO)

    @property
    def state(self) -> dict[str, Any]:
        """Where training stood at the newest checkpoint; empty before the first."""
        steps = self.steps()
        return read_state(self.checkpoint(steps[-1])) if steps else {}

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, ascending."""
        names = (path.name.removeprefix("step-") for path in self.checkpoints.glob("step-*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}"

    def pointed(self, name: str) -> int | None:
        """The step that the small file `best` or `last` names, where that checkpoint exists."""
        try:
            step = read_bytes(self.path / name, POINTER).decode("utf-8").strip().removeprefix("step-")
            return int(step) if step.isdecimal() and self.checkpoint(int(step)).is_dir() else None
        except (OSError, ValueError):
            return None

    def point(self, name: str, step: int) -> None:
        if self.pointed(name) != step:
            write(self.path / name, f"step-{step}\n")

    def prune(self, keep: int) -> None:
        """Delete all checkpoints but the last `keep` and the best."""
        best = self.pointed("best")
        with writing(self.checkpoints):
            for step in self.steps()[:-keep]:
                if step != best:
                    self.stage("prune")
                    discard(self.checkpoint(step))

    def rewind(self, step: int) -> None:
        """Go back to a checkpoint: later rows are dropped, later checkpoints (damaged ones) set aside."""
        self.metrics.rewind(step)
        with writing(self.checkpoints):
            for later in (found for found in self.steps() if found > step):
                aside = self.checkpoints / f"damaged-{later}"
                remove(aside)
                os.rename(self.checkpoint(later), aside)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the run's only writer. The kernel lets go of the lock however the process ends."""
        with ExitStack() as stack:
            with writing(self.path / "lock"):
                handle = open_regular(self.path / "lock", os.O_RDWR | os.O_CREAT)
                file = stack.enter_context(os.fdopen(handle, "r+"))
            with writing(self.path):
                if not _locked(file):
                    file.seek(0)
                    owner = file.read().strip() or "unknown"
                    raise UserError(
                        f"{self.path} is being trained by process {owner}; wait for it, stop it, or start another run"
                    )
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
            with writing(self.checkpoints):
                if self.checkpoints.is_symlink():  # old checkpoints are deleted there
                    raise OSError(errno.ELOOP, "it is a symbolic link", str(self.checkpoints))
            with writing(self.path):
                recover(self.path)
                recover(self.checkpoints)
            yield

    @property
    def busy(self) -> bool:
        """Whether some process trains it now."""
        try:
            with os.fdopen(open_regular(self.path / "lock")) as file:
                return not _locked(file)
        except OSError:
            return False


@dataclass(frozen=True)
class Summary:
    """A run in one line of a table."""

    name: str
    steps: int
    epochs: int
    minutes: float
    score: str  # the watched score's name; empty without validation
    best: float | None
    created: str
    busy: bool
    problem: str = field(default="", compare=False)  # why the files of the run cannot be read, in a sentence


def summary(run: Run) -> Summary:
    """Read what a table says of a run; files that training cannot have written are told as its `problem`."""
    try:
        run.config  # noqa: B018  (a property that reads)
        state, created, problem = run.state, run.info.get("created", ""), ""
        run.metrics.rows()
    except UserError as error:
        state, created, problem = {}, "", str(error)
    best = state.get("best") or {}
    return Summary(
        name=run.name,
        steps=state.get("step", 0),
        epochs=state.get("epoch", 0),
        minutes=state.get("minutes", 0.0),
        score=best.get("name", ""),
        best=best.get("value"),
        created=created,
        busy=run.busy,
        problem=problem,
    )


def find(folder: Path | str) -> list[Run]:
    """All runs directly inside a folder, the oldest first."""
    runs = [Run(path.parent) for path in Path(folder).glob("*/config.toml") if path.is_file()]
    return sorted(runs, key=lambda run: (_created(run), run.name))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state.json of a checkpoint, with the types that training writes."""
    path = checkpoint / "state.json"
    state = _read_facts(path, STATE)
    _check_types(path, state.get("best") or {}, BEST)
    return state


def _created(run: Run) -> str:
    try:
        return run.info.get("created", "")
    except UserError:
        return ""


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _info() -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("headwise", "torch", "numpy", "safetensors")}
        | {"python": platform.python_version()},
        "platform": platform.platform(),
    }


def _read_facts(path: Path, types: Mapping[str, type]) -> dict[str, Any]:
    """A small JSON object whose values have these types; empty where the file is missing."""
    try:
        facts = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {what}; restore a copy or delete it") from error
    if not isinstance(facts, dict):
        raise UserError(f"{path}: it is no JSON object; restore a copy or delete it")
    _check_types(path, facts, types)
    return facts


def _check_types(path: Path, facts: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, wanted in types.items():
        value = facts.get(key, wanted())
        found = float if wanted is float and type(value) is int else type(value)  # 3 is a number of minutes, too
        if found is not wanted:
            raise UserError(f"{path}: {key} is {shorten(value)}; restore a copy or delete the file")
