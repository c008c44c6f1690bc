"""Headwise: the Transformer family in one toolkit.

    import headwise

    model = headwise.build("transformer-small", vocab=8000)      # a torch.nn.Module
    trained = headwise.fit("pairs.tsv", minutes=10)              # or a data frame: recognise, choose, train, score
    trained.translate(["hello"])                                 # use it; later: headwise.load("runs/pairs")
    with headwise.record() as maps:                              # look inside
        model(source, target)

Names resolve when they are used, so that importing the package stays quick and has no effects.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.autofit.fit import fit
    from headwise.blocks.record import record
    from headwise.config.plugins import use_parts
    from headwise.errors import UserError
    from headwise.experiment.convert import from_hf, to_hf
    from headwise.experiment.load import load
    from headwise.experiment.run import resume, train_experiment
    from headwise.models.build import build
    from headwise.tuning.swap import swap

__version__ = "0.1.0"

_HOMES = {
    "UserError": "headwise.errors",
    "build": "headwise.models.build",
    "fit": "headwise.autofit.fit",
    "from_hf": "headwise.experiment.convert",
    "load": "headwise.experiment.load",
    "record": "headwise.blocks.record",
    "resume": "headwise.experiment.run",
    "swap": "headwise.tuning.swap",
    "to_hf": "headwise.experiment.convert",
    "train_experiment": "headwise.experiment.run",
    "use_parts": "headwise.config.plugins",
}
__all__ = [
    "UserError", "build", "fit", "from_hf", "load", "record", "resume", "swap", "to_hf", "train_experiment",
    "use_parts",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwise' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
