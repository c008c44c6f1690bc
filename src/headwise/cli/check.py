"""`headwise check`: the conformance suite on one's own parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.common import Json, log_to_stderr

if TYPE_CHECKING:
    from headwise.testing.verdicts import Verdict


def check(file: Path, *kinds: str, json_: Json = False) -> None:
    """Check the parts of a file, as `headwise.testing` checks the built-in ones: a line for each verdict.

    Mixers and feed-forward networks: shapes, every property that they claim or deny (causality by gradients and edits,
    padding, packed documents, the KV cache against one pass, ...), gradients, saving and loading, alone and in small
    models. Norms, positions and score mods: in small models. Models: with each of their tasks. Tasks: a training of
    some steps on made-up data. It takes less than a minute; the exit status is 1 if a check fails.

    For example:

        headwise check fading_mean.py
        headwise check my_parts.py fading_mean
        headwise check my_parts.py --json

    Parameters
    ----------
    file
        A Python file that adds parts to the tables.
    kinds
        Only these parts of the file.
    """
    log_to_stderr()
    from headwise.testing.parts_file import judge_file

    verdicts: list[tuple[str, Verdict]] = []
    for kind, verdict in judge_file(file, kinds):
        if not json_:
            if kind not in (seen for seen, _ in verdicts):
                print(kind)
            print(f"  {format_verdict(verdict)}", flush=True)
        verdicts.append((kind, verdict))
    failed = sum(not verdict.passed for _, verdict in verdicts)
    if json_:
        print(json.dumps([{"kind": kind, **verdict.to_dict()} for kind, verdict in verdicts], indent=1))
    else:
        print(f"{len(verdicts)} checks, {failed} failed" if failed else f"{len(verdicts)} checks passed")
    if failed:
        raise SystemExit(1)


def format_verdict(verdict: Verdict) -> str:
    """A verdict as one line: a mark, what was checked, and the reason."""
    text = " ".join((verdict.problem or verdict.note).split())
    return f"{'✓' if verdict.passed else '✗'} {verdict.subject}: {verdict.check}" + (f"  {text}" if text else "")
