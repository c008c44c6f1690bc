"""`headwise inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, With, say, warnings_to_stderr

POSITIVE = validators.Number(gte=1)


def inspect(
    run: Path,
    text: str,
    *,
    out: Annotated[Path, Parameter(help="The picture: .svg, .png, or a page with .html.")] = Path("attention.html"),
    target: Annotated[str, Parameter(help="Follow this output instead of the model's own.")] = "",
    view: Annotated[
        Literal["alignment", "heads"], Parameter(help="For pictures: one matrix, or every head.")
    ] = "alignment",
    kind: Annotated[Literal["encoder", "decoder", "cross"], Parameter(help="Which attention.")] = "cross",
    layer: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; without it, the last.")] = None,
    head: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; without it, their mean.")] = None,
    checkpoint: Checkpoint = "best",
    with_: With = None,
) -> None:
    """Draw a run's attention for one text.

    A page shows every layer and head with the weights under the pointer; it is one file and needs no network.

    For example:

        headwise inspect runs/demo transformer --out alignment.svg
        headwise inspect runs/demo transformer --view heads --kind encoder --out heads.png
        headwise inspect runs/demo transformer --out attention.html
    """
    warnings_to_stderr()
    from headwise.inspect.export import export
    from headwise.loaded import load
    from headwise.plugins import add_parts

    add_parts(with_ or ())
    maps = load(run, which=checkpoint).inspect(text, target)
    numbers = {"layer": layer, "head": head}
    chosen = {name: number - 1 for name, number in numbers.items() if number is not None}
    export(maps, out, text, view, kind, **chosen)
    say(" ".join(maps.source_tokens) + "  ->  " + " ".join(maps.target_tokens))
    print(out)
