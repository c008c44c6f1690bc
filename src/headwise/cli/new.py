"""`headwise new`: a file to begin a part of one's own from."""

from __future__ import annotations

import keyword
import os
import re
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headwise.cli.common import say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.config.base import Table

PartKind = Literal["mixer", "feedforward", "norm", "position", "task", "model"]
SETTINGS: dict[PartKind, str] = {  # how an experiment chooses it
    "mixer": "model.mixer",
    "feedforward": "model.feedforward",
    "norm": "model.norm",
    "position": "model.positions",
    "task": "task",
    "model": "model.kind",
}


def new(
    kind: PartKind,
    name: str,
    *,
    out: Annotated[Path | None, Parameter(help="The file to write; NAME.py by default.")] = None,
) -> None:
    """Write a small file with a part of your own, which works at once: read its comments, and change what it computes.

    The path of the file is printed on stdout.

    For example:

        headwise new mixer fading_mean
        headwise check fading_mean.py
        headwise train my.toml --with fading_mean.py --set model.mixer=fading_mean

    Parameters
    ----------
    kind
        A token mixer, a feed-forward network, a norm, positions, a task or a model.
    name
        Its `kind` in experiments: a Python name that is still free.
    """
    check_name(name, find_table(kind))
    path = out or Path(f"{name}.py")
    write_new(path, render_template(kind, name))
    file = quote(str(path))
    say(f"to check it:      headwise check {file}")
    say(f"to train with it: headwise train my.toml --with {file} --set {SETTINGS[kind]}={name}")
    print(path)


def render_template(kind: str, name: str) -> str:
    """The template of a kind of part, for a part of this name."""
    template = resources.files("headwise.cli").joinpath("templates", f"{kind}.py.txt").read_text("utf-8")
    camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    return re.sub(r"\bmy_name\b", name, re.sub(r"\bMyName(?=Config\b|\b)", camel, template))


def find_table(kind: PartKind) -> Table:
    """The table that a part of this kind is added to."""
    from headwise.blocks.tables import NORMS, PARTS, POSITIONS
    from headwise.catalog import MODELS
    from headwise.tasks.tables import TASKS

    tables = {"norm": NORMS, "position": POSITIONS, "task": TASKS, "model": MODELS}
    return tables.get(kind, PARTS)


def check_name(name: str, table: Table) -> None:
    """Refuse a name that is no identifier, or is taken."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or not name.strip("_"):
        raise UserError(f"{name}: is not a Python name; use letters, digits and _, as in fading_mean")
    if name in table:
        raise UserError(f"{name}: there is a {table.what} of this name already; choose another")


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    if path.suffix != ".py":
        raise UserError(f"--out {path}: is not the name of a Python file; it must end in .py")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path}: exists already; choose another name, or another file with --out") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another folder with --out") from None
