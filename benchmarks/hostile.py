"""Give malicious files and folders to the commands that read them, and show that they cannot hurt.

    python benchmarks/hostile.py
    python benchmarks/hostile.py --only gguf --show

`hostile_corpus/` generates the files. Each command runs in a process of its own, forked from this one, which has
imported torch and every command: with a limit of address space, a limit of time, and an audit hook that reports
executed programs and code, unpickled objects, connections, and files written outside the case's folder. A canary, which
every executable payload of the corpus writes, and a folder outside are looked at after each command.

Status 1 unless there are 0 executions, 0 writes outside, 0 tracebacks, 0 hangs, less than 1 GB of memory (peak resident
memory of a process; torch and all other imports count), and every refusal is one sentence with status 2. A command
hangs if it takes more than 10 s of processor time, or has not ended after 30 s.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile_corpus import Case, Sandbox, list_cases
from hostile_corpus.base import build_base

MEMORY = 2**30  # bytes of resident memory that a command may use
ADDRESS_SPACE = 2**31  # bytes that a command may map beyond what its parent has mapped
PATIENCE = 3  # times the limit of processor time: the limit by the clock, on a machine that others use
MAX_SENTENCE = 1500  # characters of a refusal: it repeats paths and lists the keys that are known
COMMAND_MODULES = (
    *(
        "act",
        "answer",
        "augment",
        "classify",
        "compare",
        "compare_structures",
        "detect",
        "embed",
        "evaluate",
        "explain",
    ),
    *("fit", "generate", "inspect", "interop", "models", "runs", "scaling", "search", "tag", "train", "translate"),
)


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int  # negative: killed by this signal
    seconds: float
    memory: int  # bytes of peak resident memory
    err: str
    events: tuple[str, ...]  # of the audit hook
    faults: tuple[str, ...] = ()


def preload() -> None:
    """Import what commands import, so that forked processes need not."""
    from importlib import import_module

    for name in COMMAND_MODULES:
        import_module(f"headwise.cli.{name}")
    for name in (
        *("headwise.autofit", "headwise.experiment.run", "headwise.experiment.convert", "headwise.compare.suites"),
        *("headwise.interop.hf.read", "headwise.interop.gguf_llama", "headwise.interop.timm", "headwise.worlds.logs"),
        *("headwise.data.readers.arrow", "headwise.vision.corpora", "headwise.proteins.structure_sets"),
        *("headwise.inspect.pictures", "headwise.models.build", "matplotlib.pyplot", "torch._dynamo", "tokenizers"),
    ):
        import_module(name)


def watch(folder: Path, report: int) -> None:
    """Report on a descriptor what a process does beyond reading and writing inside its folder."""
    inside = (str(folder), "/dev/null", "/proc/self")
    code = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn")
    write_flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def hook(event: str, arguments: Sequence[Any]) -> None:
        if event in code or event.startswith("socket.connect"):
            os.write(report, f"executes: {event} {str(arguments)[:200]}\n".encode())
        elif event == "pickle.find_class":
            os.write(report, f"unpickles: {arguments[0]}.{arguments[1]}\n".encode())
        elif event == "open" and isinstance(arguments[0], str | bytes) and (arguments[2] or 0) & write_flags:
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith(inside):
                os.write(report, f"writes: {path}\n".encode())

    sys.addaudithook(hook)


def run_command(words: Sequence[str], sandbox: Sandbox, seconds: float) -> Outcome:
    """Run a command in a forked process."""
    out, err, events = (sandbox.folder / name for name in ("out", "err", "events"))
    child = os.fork()
    if child == 0:
        try:
            become_command(words, sandbox, out, err, events, seconds)
        finally:
            os._exit(99)
    status, usage, killed = wait(child, time.monotonic() + PATIENCE * seconds)
    outcome = Outcome(
        os.waitstatus_to_exitcode(status),
        PATIENCE * seconds if killed else usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        err.read_text(errors="replace"),
        tuple(events.read_text(errors="replace").splitlines()),
    )
    return Outcome(*list(vars(outcome).values())[:-1], tuple(find_faults(outcome, sandbox, seconds)))


def become_command(words: Sequence[str], sandbox: Sandbox, out: Path, err: Path, events: Path, seconds: float) -> None:
    """In the forked process: set the limits, redirect the streams, run the command and exit."""
    os.setsid()
    os.chdir(sandbox.work)
    os.environ |= {"HOME": str(sandbox.work), "XDG_CACHE_HOME": str(sandbox.folder / "cache"), "TMPDIR": "/nonexistent"}
    for number, (path, flags) in enumerate(
        [(Path(os.devnull), os.O_RDONLY), (out, os.O_WRONLY | os.O_CREAT), (err, os.O_WRONLY | os.O_CREAT)]
    ):
        os.dup2(os.open(path, flags | (os.O_TRUNC if number else 0), 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", 1, errors="backslashreplace")  # noqa: SIM115
    report = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1,) * 2)
    tempfile.tempdir = str(sandbox.work)
    watch(sandbox.folder, report)
    from headwise.cli.main import main

    status = 0
    try:
        main([str(word) for word in words])
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(bool(leave.code))
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait(child: int, deadline: float) -> tuple[int, resource.struct_rusage, bool]:
    """Wait for a process; kill its session at the deadline, and what is left of it afterwards."""
    killed = False
    while True:
        finished, status, usage = os.wait4(child, os.WNOHANG)
        if finished:
            break
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            killed = True
            break
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # grandchildren
    return status, usage, killed


def find_faults(outcome: Outcome, sandbox: Sandbox, seconds: float) -> list[str]:
    """What a command did that it must not."""
    faults = [event for event in outcome.events if not event.startswith("executes: subprocess.Popen ('/proc")]
    if sandbox.canary.exists():
        faults.append("executes: the canary")
        sandbox.canary.unlink()
    if changes := sandbox.list_changes():
        faults.append(f"writes: {changes} outside")
    if outcome.seconds >= seconds:
        return [*faults, f"hangs: {outcome.seconds:.0f} s"]
    if "Traceback (most recent call last)" in outcome.err:
        faults.append(f"traceback: {outcome.err.strip().splitlines()[-1][:200]}")
    elif outcome.status not in (0, 2):
        faults.append(f"status {outcome.status}")
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    if outcome.status == 2 and not (lines and lines[-1].startswith("headwise: ") and len(lines[-1]) < MAX_SENTENCE):
        faults.append(f"sentence: {lines[-1][:200] if lines else 'none'}")
    if outcome.memory > MEMORY:
        faults.append(f"memory: {outcome.memory / 2**20:,.0f} MB")
    return faults


def make_files(case: Case, sandbox: Sandbox) -> list[list[str]]:
    """Make the files of a case in a forked process, so that their contents do not count as memory of commands."""
    path = sandbox.folder / "commands"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            path.write_text(json.dumps([[str(word) for word in words] for words in case.make(sandbox)]))
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"{case.family}/{case.name}: its files cannot be made")
    commands: list[list[str]] = json.loads(path.read_text())
    path.unlink()
    return commands


def run_case(case: Case, sandbox: Sandbox, seconds: float, show: bool) -> list[Outcome]:
    """Make the files of a case and give them to their commands."""
    commands = make_files(case, sandbox)
    sandbox.remember()
    outcomes = []
    for words in commands:
        outcome = run_command(words, sandbox, seconds)
        if case.refused and outcome.status == 0:
            outcome = Outcome(*list(vars(outcome).values())[:-1], (*outcome.faults, "accepts: status 0"))
        outcomes.append(outcome)
        command = " ".join(map(str, words)).replace(str(sandbox.folder), "")
        for fault in outcome.faults:
            print(f"FAULT {case.family}/{case.name}: headwise {command[:160]}\n      {fault}", flush=True)
        if show or (outcome.faults and case.refused and outcome.status == 0):
            err = outcome.err.strip().replace(str(sandbox.folder), "")
            print(
                f"{case.family}/{case.name}: {command[:120]} -> {outcome.status}, {outcome.seconds:.1f} s: {err[:400]}"
            )
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="families or cases whose names contain this")
    parser.add_argument("--seconds", type=float, default=10.0, help="of processor time, after which a command hangs")
    parser.add_argument("--show", action="store_true", help="print what each command says")
    options = parser.parse_args()
    start = time.monotonic()
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "Agg", "NO_COLOR": "1"}
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    results: dict[str, list[Outcome]] = defaultdict(list)
    files: dict[str, int] = defaultdict(int)
    try:
        base = build_base(root / "base")
        preload()
        print(f"prepared in {time.monotonic() - start:.0f} s", flush=True)
        for number, case in enumerate(list_cases()):
            if options.only not in f"{case.family}/{case.name}":
                continue
            sandbox = Sandbox(root / f"case-{number}", base)
            files[case.family] += 1
            results[case.family] += run_case(case, sandbox, options.seconds, options.show)
            shutil.rmtree(sandbox.folder, ignore_errors=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(print_table(files, results, time.monotonic() - start))


def print_table(files: dict[str, int], results: dict[str, list[Outcome]], seconds: float) -> int:
    """Print counts for each family; the exit status."""
    kinds = ("executes", "unpickles", "writes", "traceback", "hangs", "memory", "status", "sentence", "accepts")
    head = f"{'family':<14}{'files':>6}{'commands':>9}{'refused':>8}" + "".join(f"{kind:>10}" for kind in kinds)
    print(f"\n{head}{'max s':>8}{'max MB':>8}")
    rows = {**results, "all": [outcome for outcomes in results.values() for outcome in outcomes]}
    for family, outcomes in rows.items():
        count = files[family] if family in files else sum(files.values())
        refused = sum(outcome.status == 2 for outcome in outcomes)
        counts = [sum(fault.startswith(kind) for o in outcomes for fault in o.faults) for kind in kinds]
        slowest = max((outcome.seconds for outcome in outcomes), default=0)
        largest = max((outcome.memory for outcome in outcomes), default=0) / 2**20
        numbers = "".join(f"{number:>10}" for number in counts)
        print(f"{family:<14}{count:>6}{len(outcomes):>9}{refused:>8}{numbers}{slowest:>8.1f}{largest:>8.0f}")
    faults = sum(bool(outcome.faults) for outcome in rows["all"])
    print(f"{sum(files.values())} files, {len(rows['all'])} commands, {faults} with faults, {seconds:.0f} s")
    return int(bool(faults) or not files)


if __name__ == "__main__":
    main()
