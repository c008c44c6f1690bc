"""The run folder: all results of one training run, and everything needed to resume it.

    runs/NAME/
      config.toml       the resolved experiment
      info.json         versions and time
      data.json         where the data were; size, time and SHA-256 of each file (data_record.py)
      tokenizer.json    (written by the tokenisers)
      parts/            copies of the user's parts files, manifest.json; absent where all parts are built in
      manifest.json     size and SHA-256 of config.toml, info.json, data.json and tokenizer.json
      metrics.jsonl     one row a line
      checkpoints/step-N/   model, optimizer, ema (safetensors), state.json, manifest.json
      best, last        each names a checkpoint
      lock              held by the process that trains

Nothing here imports torch; tensors are handled in `checkpoint.py`.
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
from types import MappingProxyType
from typing import IO, Any

import tomli_w

from headwise.errors import UserError
from headwise.runs import manifest
from headwise.runs.metrics import Metrics
from headwise.runs.parts import write_parts
from headwise.utils.cpu import describe_cpu
from headwise.utils.files import (
    Stage,
    check_name,
    discard,
    ignore_stage,
    open_regular,
    read_bytes,
    read_json,
    read_toml,
    recover,
    remove,
    write,
    writing,
)
from headwise.utils.notebook import render

# Types of the keys of info.json and of a checkpoint's state.json; other keys may hold anything.
INFO_TYPES = {"created": str}
COUNTS = ("step", "epoch", "index", "tokens", "validated", "stale", "skips")
MAX_COUNT = 2**63
STATE_TYPES = {**dict.fromkeys(COUNTS, int), "minutes": float, "best": dict}
BEST_TYPES = {"name": str, "value": float, "step": int}
NO_INFO: Mapping[str, Any] = MappingProxyType({})
MAX_POINTER_BYTES = 100  # bytes at most of `best` and `last`
SEALED = ("config.toml", "info.json", "data.json", "tokenizer.json")  # the files in the manifest of the run itself
NO_PARTS: Mapping[str, bytes] = {}


class RunExists(UserError):
    """The folder of a new run exists already."""


class Run:
    """One run folder. `stage` is called at each step of a save; tests use it to kill the process there."""

    def __init__(self, path: Path, stage: Stage = ignore_stage):
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
    def create(
        cls,
        path: Path | str,
        config: Mapping[str, Any],
        parts: Mapping[str, bytes] = NO_PARTS,
        info: Mapping[str, Any] = NO_INFO,
    ) -> Run:
        """A new run with its resolved config, and copies of the user's `parts` files; raises RunExists if the folder
        exists. `info` is added to info.json."""
        run = cls(Path(path))
        with writing(run.path):
            run.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                run.path.mkdir()  # atomic: of two processes only one creates it
            except FileExistsError:
                raise RunExists(f"{path} exists already; choose another name, or resume it") from None
            try:
                run.checkpoints.mkdir()
                write(run.path / "info.json", json.dumps({**_collect_info(), **info}, indent=1))
                write_parts(run.path, parts)
                run.write_config(config)
            except BaseException:
                remove(run.path)
                raise
        return run

    @classmethod
    def create_unique(
        cls,
        folder: Path | str,
        name: str,
        config: Mapping[str, Any],
        parts: Mapping[str, bytes] = NO_PARTS,
        info: Mapping[str, Any] = NO_INFO,
    ) -> Run:
        """A new run `folder/name`, or `name-2`, `name-3`, ... if it exists."""
        try:
            check_name(name)
        except ValueError as error:
            raise UserError(f"run name {name!r}: {error}") from None
        path = Path(folder) / name
        number = 1
        while True:
            try:
                return cls.create(path, config, parts, info)
            except RunExists:
                number += 1
                path = Path(folder) / f"{name}-{number}"

    @property
    def name(self) -> str:
        return self.path.name

    def _repr_html_(self) -> str:
        return render("run", self)

    @property
    def config(self) -> dict[str, Any]:
        path = self.path / "config.toml"
        try:
            return read_toml(path)
        except (OSError, ValueError) as error:
            what = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"{path} cannot be read: {what}; restore a copy of it, or delete the run") from error

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace config.toml, atomically."""
        with self.changing():
            write(self.path / "config.toml", tomli_w.dumps(dict(config)))

    def seal(self) -> None:
        """Write the manifest of the files that a run is rebuilt from."""
        with writing(self.path / manifest.NAME):
            manifest.write_manifest(self.path, [name for name in SEALED if (self.path / name).is_file()])

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change files of the manifest. A process killed meanwhile leaves a run without one, which is not checked."""
        path = self.path / manifest.NAME
        sealed = path.is_file()
        with writing(path):
            path.unlink(missing_ok=True)
        yield
        if sealed:
            self.seal()

    def verify(self) -> None:
        """Compare the files that a run is rebuilt from with its manifest: a flipped bit of a vocabulary or a setting
        would change outputs silently."""
        if not (self.path / manifest.NAME).exists():
            return
        try:
            manifest.verify_files(self.path, SEALED)
        except manifest.Damaged as error:
            remedy = f"restore a copy, or delete {manifest.NAME} if you have changed it yourself"
            raise UserError(f"{error.path} is damaged: {error.what}; {remedy}") from None

    @property
    def info(self) -> dict[str, Any]:
        """Versions and creation time; empty if the file is missing."""
        return read_object(self.path / "info.json", INFO_TYPES)

    @property
    def state(self) -> dict[str, Any]:
        """The training state at the newest checkpoint; empty before the first."""
        steps = self.steps()
        return read_state(self.checkpoint_path(steps[-1])) if steps else {}

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending."""
        names = (path.name.removeprefix("step-") for path in self.checkpoints.glob("step-*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def checkpoint_path(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}"

    def read_pointer(self, name: str) -> int | None:
        """The step named by the file `best` or `last`; None if that checkpoint does not exist."""
        try:
            step = read_bytes(self.path / name, MAX_POINTER_BYTES).decode("utf-8").strip().removeprefix("step-")
            return int(step) if step.isdecimal() and self.checkpoint_path(int(step)).is_dir() else None
        except (OSError, ValueError):
            return None

    def write_pointer(self, name: str, step: int) -> None:
        if self.read_pointer(name) != step:
            write(self.path / name, f"step-{step}\n")

    def prune(self, keep: int) -> None:
        """Delete all checkpoints but the last `keep` and the best."""
        best = self.read_pointer("best")
        with writing(self.checkpoints):
            for step in self.steps()[:-keep]:
                if step != best:
                    self.stage("prune")
                    discard(self.checkpoint_path(step))

    def rewind(self, step: int) -> None:
        """Go back to a checkpoint: drop later rows, and rename later checkpoints (damaged ones) to damaged-N."""
        self.metrics.rewind(step)
        with writing(self.checkpoints):
            for later in (existing for existing in self.steps() if existing > step):
                damaged = self.checkpoints / f"damaged-{later}"
                remove(damaged)
                os.rename(self.checkpoint_path(later), damaged)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for writing. The kernel releases the lock however the process ends."""
        with ExitStack() as stack:
            with writing(self.path / "lock"):
                handle = open_regular(self.path / "lock", os.O_RDWR | os.O_CREAT)
                file = stack.enter_context(os.fdopen(handle, "r+"))
            with writing(self.path):
                if not _try_lock(file):
                    file.seek(0)
                    owner = file.read().strip() or "unknown"
                    raise UserError(
                        f"{self.path} is being trained by process {owner}; wait for it, stop it, or start another run"
                    )
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
            with writing(self.checkpoints):
                if self.checkpoints.is_symlink():  # pruning would delete files elsewhere
                    raise OSError(errno.ELOOP, "it is a symbolic link", str(self.checkpoints))
            with writing(self.path):
                recover(self.path)
                recover(self.checkpoints)
            yield

    @property
    def busy(self) -> bool:
        """Whether a process is training it now."""
        try:
            with os.fdopen(open_regular(self.path / "lock")) as file:
                return not _try_lock(file)
        except OSError:
            return False


@dataclass(frozen=True)
class Summary:
    """A run as one row of a table."""

    name: str
    steps: int
    epochs: int
    minutes: float
    score: str  # name of the validation score; empty without validation
    best: float | None
    created: str
    busy: bool
    problem: str = field(default="", compare=False)  # why the files of the run cannot be read


def summarize_run(run: Run) -> Summary:
    """Summarise a run; files that cannot be read or are not valid are reported as its `problem`."""
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


def find_runs(folder: Path | str) -> list[Run]:
    """All runs directly inside a folder, the oldest first."""
    runs = [Run(path.parent) for path in Path(folder).glob("*/config.toml") if path.is_file()]
    return sorted(runs, key=lambda run: (_creation_time(run), run.name))


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state.json of a checkpoint, with the types that training writes."""
    path = checkpoint / "state.json"
    state = read_object(path, STATE_TYPES)
    _check_types(path, state.get("best") or {}, BEST_TYPES)
    return state


def _creation_time(run: Run) -> str:
    try:
        return run.info.get("created", "")
    except UserError:
        return ""


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_versions() -> dict[str, str]:
    """The versions of the packages that results depend on."""
    packages = {name: version(name) for name in ("headwise", "torch", "numpy", "safetensors")}
    return packages | {"python": platform.python_version()}


def _collect_info() -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": find_versions(),
        "platform": platform.platform(),
        "cpu": describe_cpu(),
    }


def read_object(path: Path, types: Mapping[str, type]) -> dict[str, Any]:
    """Read a JSON object and check the types of its values; empty if the file is missing."""
    try:
        data = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {what}; restore a copy or delete it") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: it is not a JSON object; restore a copy or delete it")
    _check_types(path, data, types)
    return data


def _check_types(path: Path, data: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, expected in types.items():
        value = data.get(key, expected())
        actual = float if expected is float and type(value) is int else type(value)  # an int is a valid float
        if actual is not expected or (key in COUNTS and not 0 <= value < MAX_COUNT):
            raise UserError(f"{path}: {key} is {shorten(value)}; restore a copy or delete the file")
