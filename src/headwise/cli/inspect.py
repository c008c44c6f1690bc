"""`headwise inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, With, opened, say
from headwise.errors import UserError

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
    kind: Annotated[
        Literal["encoder", "decoder", "cross"] | None, Parameter(help="Which attention; without it, cross if any.")
    ] = None,
    layer: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; without it, the last.")] = None,
    head: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; without it, their mean.")] = None,
    beside: Annotated[
        Path | None, Parameter(help="Another run, whose last layer is drawn to the right of this one's.")
    ] = None,
    checkpoint: Checkpoint = "best",
    with_: With = None,
) -> None:
    """Draw a run's attention for one text.

    A page shows every layer and head with the weights under the pointer; it is one file and needs no network.

    For example:

        headwise inspect runs/demo transformer --out alignment.svg
        headwise inspect runs/demo transformer --view heads --kind encoder --out heads.png
        headwise inspect runs/demo transformer --out attention.html
        headwise inspect runs/shakespeare-gpt "To be, or not to be" --view heads --out heads.svg
        headwise inspect runs/g2p-bahdanau transformer --beside runs/demo --out both.svg
    """
    from headwise.inspect.export import export

    if beside is not None:
        _check_beside(out, view, kind, head)
    maps = opened(run, checkpoint, "cpu", parts=with_).inspect(text, target)
    if beside is not None:
        from headwise.inspect.files import save
        from headwise.inspect.pictures import beside as drawn

        other = opened(beside, checkpoint, "cpu").inspect(text, target)
        print(save(drawn(maps, other, (run.resolve().name, beside.resolve().name), ((layer or 0) - 1, -1)), out))
        return
    numbers = {"layer": layer, "head": head}
    chosen = {name: number - 1 for name, number in numbers.items() if number is not None}
    export(maps, out, text, view, kind or maps.main, **chosen)
    say("  ->  ".join(" ".join(side) for side in (maps.source_tokens, maps.target_tokens) if side))
    print(out)


def _check_beside(out: Path, view: str, kind: str | None, head: int | None) -> None:
    """Two runs have the meaning of their cross-attention in common, not the number of their heads."""
    from headwise.inspect.files import check_ending

    check_ending(out, ".svg", ".png")
    if view != "alignment" or kind not in (None, "cross") or head is not None:
        raise UserError("--beside: draws the mean of the heads of cross-attention; leave out --view, --kind and --head")
