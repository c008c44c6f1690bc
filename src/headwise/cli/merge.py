"""`headwise merge`."""

from __future__ import annotations

from pathlib import Path

from headwise.cli.common import Checkpoint, load_model, say
from headwise.errors import UserError


def merge(run: Path, new: Path, *, checkpoint: Checkpoint = "best") -> None:
    """Merge the LoRA matrices of a fine-tuned run into its weights, as a new run.

    Needed only to train all weights further: for inference they are merged when the run is loaded. The path of the new
    run is printed on stdout.

    For example:

        headwise merge runs/polarity-lora runs/polarity

    Parameters
    ----------
    run
        A run trained with [tuning] lora.
    new
        The new run folder.
    """
    from headwise.runs import Run
    from headwise.runs.differences import flatten

    if not flatten(Run.open(run).config).get("tuning.lora.rank"):
        raise UserError(f"{run} has no LoRA matrices: it was trained without tuning.lora; use it as it is")
    load_model(run, checkpoint, device="cpu").save(new)
    say(f"to train it further: headwise train --resume {new}, or init_from = '{new}' in an experiment")
    print(new)
