"""`headwise inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Json, With, opened, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.inspect.spectrum import Spectrum
    from headwise.loaded import Loaded

POSITIVE = validators.Number(gte=1)


def inspect(
    run: Path,
    text: str = "",
    *,
    out: Annotated[
        Path | None, Parameter(help="The picture: .svg, .png, or a page with .html; without it, attention.html.")
    ] = None,
    target: Annotated[str, Parameter(help="Follow this output instead of the model's own.")] = "",
    view: Annotated[
        Literal["alignment", "heads", "exact"],
        Parameter(help="For pictures: one matrix, every head, or a mixer's implied map beside exact softmax's."),
    ] = "alignment",
    kind: Annotated[
        Literal["encoder", "decoder", "cross"] | None, Parameter(help="Which attention; without it, cross if any.")
    ] = None,
    layer: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; without it, the last.")] = None,
    head: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; without it, their mean.")] = None,
    beside: Annotated[
        Path | None, Parameter(help="Another run, whose last layer is drawn to the right of this one's.")
    ] = None,
    spectrum: Annotated[
        bool, Parameter(negative="", help="Singular values of an encoder's maps; without a text, of held-out ones.")
    ] = False,
    experts: Annotated[
        bool, Parameter(negative="", help="How busy the experts of each layer are, on the validation part.")
    ] = False,
    json_: Json = False,
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
        headwise inspect runs/performer-gpt "To be, or not to be" --view exact --layer 1 --head 2 --out exact.svg
        headwise inspect runs/g2p-bahdanau transformer --beside runs/demo --out both.svg
        headwise inspect runs/bert --spectrum --out spectrum.svg
        headwise inspect runs/switch-t5 --experts --out experts.svg
    """
    from headwise.inspect.export import export
    from headwise.inspect.files import check_ending

    chooses = bool(target) or view != "alignment" or any(given is not None for given in (kind, layer, head, beside))
    if spectrum:
        if chooses:
            raise UserError("--spectrum: is of every layer and head; leave out what chooses or compares maps")
        if out:
            check_ending(out, ".svg", ".png")
        _spectrum(opened(run, checkpoint, "cpu", parts=with_), text, out, json_, run.resolve().name)
        return
    if experts:
        if text or chooses:
            raise UserError("--experts: is of all layers and the validation part; leave out text and what chooses maps")
        if out:
            check_ending(out, ".svg", ".png")
        _experts(opened(run, checkpoint, "cpu", parts=with_), out, json_, run.resolve().name)
        return
    if json_:
        raise UserError("--json: attention is drawn, not printed; add --spectrum or --experts, or leave it out")
    out = out or Path("attention.html")
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


def _spectrum(loaded: Loaded, text: str, out: Path | None, as_json: bool, name: str) -> None:
    from headwise.inspect.spectrum import plot, spectrum

    found = spectrum(loaded, text)
    print(json.dumps(found.to_json()) if as_json else _table(found))
    if out:
        say(f"the picture is {plot(found, out, name)}")


def _experts(loaded: Loaded, out: Path | None, as_json: bool, name: str) -> None:
    from headwise.inspect.files import save
    from headwise.inspect.load import loads, picture, table, to_json

    found = loads(loaded)
    print(json.dumps(to_json(found)) if as_json else table(found))
    if out:
        say(f"the picture is {save(picture(found, name), out)}")


def _table(found: Spectrum) -> str:
    """The share that the largest quarter of the singular values has, in per cent: a line a layer, a column a head."""
    heads = [*(f"head {number}" for number in range(1, found.read.shape[1] + 1)), "  mean"]
    lines = ["  ".join(["layer", *heads])]
    for number, row in enumerate(found.read, 1):
        cells = (f"{100 * value:.1f}".rjust(len(head)) for value, head in zip((*row, row.mean()), heads, strict=True))
        lines.append("  ".join([f"{number:>5}", *cells]))
    return "\n".join(lines)
