"""`headwise demo`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwise.cli.common import log_to_stderr, say
from headwise.utils.cpu import count_busy_cores, count_cores

EXAMPLES = 20  # test words that are printed
DRAWN_WORD = "transformer"


def demo(
    *,
    minutes: Annotated[float, Parameter(help="Training time.")] = 2.5,
    runs: Annotated[Path, Parameter(help="The folder for the new run.")] = Path("runs"),
) -> None:
    """Train a small Transformer (Vaswani et al. 2017) on the CMU pronouncing dictionary and plot its attention.

    It learns English pronunciation from spelling, is evaluated on held-out words, and its cross-attention is drawn.

    For example:

        headwise demo
        headwise demo --minutes 10
    """
    log_to_stderr()
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
            f"other programs keep {count_cores() - free} of {count_cores()} cores busy: "
            "fewer steps fit into the same time"
        )
    run, result = train_experiment(experiment, runs, announce=say)
    if result.interrupted:
        say(f"stopped after {result.step} steps; to resume: headwise train --resume {run.path}")
        raise SystemExit(130)
    loaded = load(run.path)
    say(
        f"{count_parameters(loaded.model):,} parameters, {result.step:,} steps, {result.minutes:.1f} minutes; "
        "evaluating ...\n"
    )
    evaluation = loaded.evaluate()
    rows = list(zip(evaluation.sources, evaluation.outputs, evaluation.references, strict=True))
    print(f"{EXAMPLES} of {len(rows):,} held-out words:\n")
    for word, output, listed in rows[:: max(1, len(rows) // EXAMPLES)][:EXAMPLES]:
        mark = "+" if output in listed else "-"
        reference = "" if output in listed else f"   reference: {listed[0]}"
        print(f"  {mark} {word:18} {output}{reference}")
    print()
    for score in evaluation.scores:
        print(score)
    picture = export(loaded.inspect(DRAWN_WORD), run.path / "alignment.svg", DRAWN_WORD)
    print(f"\nattention map of '{DRAWN_WORD}': {picture}")
    print(f"""
next:
  headwise translate {run.path} headwise attention       your own words
  headwise inspect {run.path} headwise --out heads.html  all heads, in a browser
  headwise evaluate {run.path} --beams 5                 beam search
  headwise explain attention                         the arithmetic, step by step
  headwise fit pairs.tsv --minutes 10                your own data""")
