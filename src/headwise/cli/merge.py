"""`headwise merge`."""

from __future__ import annotations

from pathlib import Path

from headwise.cli.common import Checkpoint, With, opened, say
from headwise.errors import UserError


def merge(run: Path, new: Path, *, checkpoint: Checkpoint = "best", with_: With = None) -> None:
    """Make an ordinary run of one that was fine-tuned with low-rank maps: they are folded into its weights.

    Using a run does not need this, which merges whenever it loads. Training further with all weights does. The new
    folder's path is printed on stdout.

    For example:

        headwise merge runs/polarity-lora runs/polarity

    Parameters
    ----------
    run
        A run trained with [tuning] lora.
    new
        The run folder to make.
    """
    from headwise.runs import Run
    from headwise.runs.differences import flatten

    if not flatten(Run.open(run).config).get("tuning.lora.rank"):
        raise UserError(f"{run} has no low-rank maps: it was trained without tuning.lora; use it as it is")
    opened(run, checkpoint, device="cpu", parts=with_).save(new)
    say(f"to train it further: headwise train --resume {new}, or init_from = '{new}' in an experiment")
    print(new)
