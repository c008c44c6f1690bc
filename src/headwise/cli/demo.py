"""`headwise demo`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import say, warnings_to_stderr
from headwise.utils.cpu import count_busy_cores, count_cores

SHOWN = 20
PICTURED = "transformer"


def demo(
    *,
    minutes: Annotated[float, Parameter(help="How long to train.")] = 2.5,
    runs: Annotated[Path, Parameter(help="Where the run folder is made.")] = Path("runs"),
) -> None:
    """Train a small Transformer of 2017 on the CMU dictionary and look inside.

    It learns to pronounce English from spelling, is scored on words it never saw, and shows where it looked.

    For example:

        headwise demo
        headwise demo --minutes 10
    """
    warnings_to_stderr()
    from headwise.experiment.config import Experiment

    free = max(1, count_cores() - count_busy_cores())
    settings = [f"train.minutes={minutes}", f"train.threads={free}"]
    experiment = Experiment.read(Path(str(files("headwise.cli") / "demo.toml")), settings)

    from headwise.blocks.stack import count_parameters
    from headwise.experiment.load import load
    from headwise.experiment.run import train_experiment
    from headwise.inspect import export

    say(f"training a small Transformer on the CMU dictionary, spelling to phonemes, for {minutes:g} minutes")
    if free < count_cores():
        say(
            f"other programs keep {count_cores() - free} of {count_cores()} processors busy: "
            "it learns less in the same time"
        )
    run, result = train_experiment(experiment, runs, announce=say)
    if result.interrupted:
        say(f"stopped after {result.step} steps; to go on: headwise train --resume {run.path}")
        raise SystemExit(130)
    loaded = load(run.path)
    say(
        f"{count_parameters(loaded.model):,} parameters, {result.step:,} steps, {result.minutes:.1f} minutes; "
        "scoring ...\n"
    )
    found = loaded.evaluate()
    rows = list(zip(found.sources, found.outputs, found.references, strict=True))
    print(f"{SHOWN} of {len(rows):,} words it never saw:\n")
    for word, output, listed in rows[:: max(1, len(rows) // SHOWN)][:SHOWN]:
        mark = "+" if output in listed else "-"
        truth = "" if output in listed else f"   truth: {listed[0]}"
        print(f"  {mark} {word:18} {output}{truth}")
    print()
    for score in found.scores:
        print(score)
    picture = export(loaded.inspect(PICTURED), run.path / "alignment.svg", PICTURED)
    print(f"\nwhere it looked while writing '{PICTURED}': {picture}")
    print(f"""
next:
  headwise translate {run.path} headwise attention       your own words
  headwise inspect {run.path} headwise --out heads.html  every head, in a browser
  headwise evaluate {run.path} --beams 5                 a wider search
  headwise explain attention                         the arithmetic, step by step
  headwise fit pairs.tsv --minutes 10                your own data""")
