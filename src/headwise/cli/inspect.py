"""`headwise inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, DataRoot, Json, load_model, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.inference.maps import Maps
    from headwise.inference.trained_model import TrainedModel
    from headwise.inspect.spectrum import Spectrum

POSITIVE = validators.Number(gte=1)
TextView = Literal["alignment", "heads", "exact"]
ChainView = Literal["distances", "confidence", "errors", "structure", "torsions", "states"]
View = Literal[TextView, ChainView, "filters", "positions", "distance", "frequency", "rollout", "layers", "queries"]
TextKind = Literal["encoder", "decoder", "cross", "outputs"]
Kind = Literal[TextKind, "rows", "columns", "starting", "ending", "points"]


def inspect(
    run: Path,
    text: str = "",
    *,
    out: Annotated[
        Path | None,
        Parameter(help="Output: .svg, .png, or an .html page; by default attention.html, of a chain folding.html."),
    ] = None,
    target: Annotated[
        str,
        Parameter(help="Force this output instead of the model's own; of an alignment, its query's true structure."),
    ] = "",
    view: Annotated[
        View | None,
        Parameter(
            help="Texts: one map, all heads, or an efficient mixer's implied map beside exact softmax. Images: patch "
            "filters, positions, attention distance, frequencies, rollout, all layers, all heads, object queries. "
            "Chains: distances, confidence, aligned errors, structure, layers of the structure module, all heads, one "
            "map, and of AlphaFold 1 torsions and states."
        ),
    ] = None,
    kind: Annotated[
        Kind | None,
        Parameter(
            help="Which attention; by default cross-attention if there is any. Chains: rows or columns of the "
            "alignment, triangles around the starting or the ending node, points of the structure module."
        ),
    ] = None,
    layer: Annotated[
        int | None, Parameter(validator=POSITIVE, help="From 1; by default the last; for an image, all.")
    ] = None,
    head: Annotated[int | None, Parameter(validator=POSITIVE, help="From 1; by default the mean.")] = None,
    line: Annotated[
        int | None,
        Parameter(
            validator=POSITIVE, help="For a chain, the residue or row of the alignment, from 1, whose map is drawn."
        ),
    ] = None,
    at: Annotated[
        tuple[int, int] | None,
        Parameter(negative="", help="For an image, pixel x y of the query patch; by default the class token."),
    ] = None,
    beside: Annotated[Path | None, Parameter(help="Another run, whose last layer is drawn to the right.")] = None,
    spectrum: Annotated[
        bool,
        Parameter(
            negative="", help="Singular values of an encoder's attention maps; without a text, on held-out texts."
        ),
    ] = False,
    experts: Annotated[
        bool, Parameter(negative="", help="Load of the experts in each layer, on the validation split.")
    ] = False,
    json_: Json = False,
    data_root: DataRoot = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw attention maps of a run for a text, an image or a protein chain.

    An .html page shows every layer and head, with weights under the pointer; it is one file and works offline.

    For example:

        headwise inspect runs/demo transformer --out alignment.svg
        headwise inspect runs/demo transformer --view heads --kind encoder --out heads.png
        headwise inspect runs/demo transformer --out attention.html
        headwise inspect runs/shakespeare-gpt "To be, or not to be" --view heads --out heads.svg
        headwise inspect runs/performer-gpt "To be, or not to be" --view exact --layer 1 --head 2 --out exact.svg
        headwise inspect runs/g2p-bahdanau transformer --beside runs/demo --out both.svg
        headwise inspect runs/bert --spectrum --out spectrum.svg
        headwise inspect runs/switch-t5 --experts --out experts.svg
        headwise inspect runs/fashion-vit shoe.png
        headwise inspect runs/fashion-vit shoe.png --view rollout --out rollout.svg
        headwise inspect runs/fashion-vit --view distance --out distance.svg
        headwise inspect runs/fashion-swin shoe.png --view layers --at 14 20 --out windows.svg
        headwise inspect runs/scenes-detr scene.png --view queries --out slots.svg
        headwise inspect runs/chains-alphafold2
        headwise inspect runs/chains-alphafold2 query.a3m --target query.pdb --view distances --out distances.svg
        headwise inspect runs/chains-alphafold2 3 --view heads --kind starting --line 12 --out triangles.svg

    Parameters
    ----------
    run
        A run folder or a Hugging Face folder.
    text
        A text in quotes, an image file, or for a run that folds chains an alignment, a sequence or a structure file,
        or the number of a test chain, by default 1.
    """
    from headwise.inspect.files import check_ending

    selects = bool(target) or any(option is not None for option in (view, kind, layer, head, line, at, beside))
    if spectrum and selects:
        raise UserError("--spectrum: shows all layers and heads; leave out options that select maps")
    if experts and (text or selects):
        raise UserError(
            "--experts: shows all layers on the validation split; leave out the text and options that select maps"
        )
    if out and (spectrum or experts or beside is not None):
        check_ending(out, ".svg", ".png")
    if beside is not None and (view not in (None, "alignment") or kind not in (None, "cross") or head is not None):
        # two runs may have different numbers of heads
        raise UserError("--beside: draws the mean of the heads of cross-attention; leave out --view, --kind and --head")
    loaded, name = load_model(run, checkpoint, "cpu", data_root=data_root), run.resolve().name
    if spectrum:
        _show_spectrum(loaded, text, out, json_, name)
    elif experts:
        _show_expert_load(loaded, out, json_, name)
    elif loaded.experiment.task.reads == "chains":
        if at is not None or beside is not None:
            raise UserError("--at, --beside: are for images and texts, and this run reads chains; leave them out")
        from headwise.cli.inspect_folds import inspect_fold, open_chain
        from headwise.inspect.fold_views import AttentionChoice

        choice = AttentionChoice(kind, layer, head, line)
        inspect_fold(open_chain(loaded, text, target), choice, view, out, json_, name)
    elif line is not None or kind not in (None, *get_args(TextKind)):
        raise UserError("--line, --kind: these are for chains, and this run reads none; leave them out")
    elif _reads_images(loaded):
        if target or kind is not None or beside is not None:
            raise UserError("--target, --kind, --beside: are for texts, and this run reads images; leave them out")
        from headwise.cli.inspect_images import inspect_image
        from headwise.inspect.image_inspection import ImageInspection

        scene = ImageInspection(loaded, text or None, layer, head, at)
        inspect_image(scene, view, out, json_, Path(text).name if text else name)
    else:
        if json_:
            raise UserError("--json: attention is drawn, not printed; add --spectrum or --experts, or leave it out")
        if at is not None or view not in (None, *get_args(TextView)):
            raise UserError("--at, --view: are for images here, and this run reads texts; leave them out")
        maps = loaded.inspect(text, target)
        if beside is not None:
            other = load_model(beside, checkpoint, "cpu").inspect(text, target)
            _draw_beside(maps, other, (name, beside.resolve().name), layer, out or Path("attention.svg"))
            return
        _draw_maps(maps, text, view or "alignment", kind, (layer, head), out or Path("attention.html"))


def _draw_maps(
    maps: Maps, text: str, view: str, kind: str | None, numbers: tuple[int | None, int | None], out: Path
) -> None:
    from headwise.inspect.export import export

    chosen = {name: number - 1 for name, number in zip(("layer", "head"), numbers, strict=True) if number is not None}
    export(maps, out, text, view, kind or maps.main, **chosen)
    say("  ->  ".join(" ".join(side) for side in (maps.source_tokens, maps.target_tokens) if side))
    print(out)


def _draw_beside(maps: Maps, other: Maps, names: tuple[str, str], layer: int | None, out: Path) -> None:
    from headwise.inspect.files import save
    from headwise.inspect.pictures import compare_alignments

    print(save(compare_alignments(maps, other, names, ((layer or 0) - 1, -1)), out))


def _reads_images(loaded: TrainedModel) -> bool:
    from headwise.vision.pixels import Pixels

    return isinstance(loaded.tokenisers.source, Pixels)


def _show_spectrum(loaded: TrainedModel, text: str, out: Path | None, as_json: bool, name: str) -> None:
    from headwise.inspect.spectrum import compute_spectrum, plot

    if _reads_images(loaded):
        raise UserError("--spectrum: is for text encoders, and this run reads images; leave it out")
    found = compute_spectrum(loaded, text)
    print(json.dumps(found.to_json()) if as_json else _format_table(found))
    if out:
        say(f"picture: {plot(found, out, name)}")


def _show_expert_load(loaded: TrainedModel, out: Path | None, as_json: bool, name: str) -> None:
    from headwise.inspect.expert_load import draw_expert_load, format_table, measure_expert_load, to_json
    from headwise.inspect.files import save

    found = measure_expert_load(loaded)
    print(json.dumps(to_json(found)) if as_json else format_table(found))
    if out:
        say(f"picture: {save(draw_expert_load(found, name), out)}")


def _format_table(found: Spectrum) -> str:
    """The share that the largest quarter of the singular values has, in per cent: a line a layer, a column a head."""
    heads = [*(f"head {number}" for number in range(1, found.at_quarter.shape[1] + 1)), "  mean"]
    lines = ["  ".join(["layer", *heads])]
    for number, row in enumerate(found.at_quarter, 1):
        cells = (f"{100 * value:.1f}".rjust(len(head)) for value, head in zip((*row, row.mean()), heads, strict=True))
        lines.append("  ".join([f"{number:>5}", *cells]))
    return "\n".join(lines)
