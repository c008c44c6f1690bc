"""`headwise list` and `headwise show`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.tree import Tree

    from headwise.catalog import ModelInfo
    from headwise.models.summary import Node, Summary


def list_models(*what: str, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """List every model of the catalogue, or some of them.

    Parameter counts are exact: they are those of the assembled models.

    For example:

        headwise list
        headwise list vision
        headwise list bert classify-images
        headwise list --json | jq -r '.[].name'

    Parameters
    ----------
    what
        Only models of these names, families or tasks.
    json_
        Print one JSON array instead of a table.
    """
    from rich.console import Console

    from headwise.catalog import read_index
    from headwise.errors import UserError, nearest

    traits = {name: {name, info.family, *info.tasks} for name, info in read_index().items()}
    for each in what:
        if each not in (known := set().union(*traits.values())):
            raise UserError(f"no model, family or task is called '{each}'; {nearest(each, known)}")
    chosen = {name: info for name, info in read_index().items() if not what or traits[name].intersection(what)}
    rows: list[dict[str, Any]] = [
        {
            "name": f"{info.name}-{size}",
            "entry": info.name,
            "paper": info.paper,
            "year": info.year,
            "family": info.family,
            "tasks": ", ".join(info.tasks),
            "vocab": of_size.vocab,
            "parameters": of_size.parameters,
            "published": of_size.published,
            "oracle": info.oracle,
        }
        for info in chosen.values()
        for size, of_size in info.sizes.items()
    ]
    if json_:
        print(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for name, info in chosen.items():
        console.print(f"[bold]{name}[/]  {info.paper} ({info.year})")
        console.print(f"  [dim]{info.family}: {', '.join(info.tasks)}; checked against {info.oracle}[/]")
        for row in (row for row in rows if row["entry"] == name):
            count = f"{row['parameters']:,}" if row["parameters"] else "-"
            published = f"   published {row['published']}" if row["published"] else ""
            words = f"{row['vocab']:>7,} words" if row["vocab"] else f"{info.outputs:>7,} outputs"
            console.print(f"  [cyan]{row['name']:<28}[/]{count:>16}   {words}{published}")


def show(
    name: str,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    vocab: int = 0,
    length: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show one model: the assembled tree with shapes, parameters, FLOPs per token and memory.

    For example:

        headwise show transformer-base
        headwise show transformer-small --set positions=rotary --set activation=swiglu

    Parameters
    ----------
    name
        A name that `headwise list` prints, with or without a size.
    set_
        Change a key of the model, as in an experiment file's [model] table: --set wiring=pre, or model.wiring=pre
    vocab
        Words in the vocabulary; 0 takes the published number.
    length
        Tokens of source and target for which FLOPs and activations are counted; 0: 64, or as many as fit.
    json_
        Print one JSON object.
    """
    from headwise import catalog
    from headwise.models.summary import read_summary

    architecture, size = catalog.resolve(name)  # a wrong name is told before torch is imported
    info = catalog.read_index()[architecture]
    if set_ or vocab or length:
        summary = _summarise(architecture, size, set_ or [], vocab, length)
    else:
        summary = read_summary(f"{architecture}-{size}")
    if summary.cost is None:
        _print_settings(summary, info, json_)
    else:
        _print_cost(summary, info, vocab or info.sizes[size].vocab, json_)


def _summarise(architecture: str, size: str, changed: list[str], vocab: int, length: int) -> Summary:
    """Count a model that is not stored: with other settings, another vocabulary or another length."""
    from headwise.catalog import CATALOG
    from headwise.config.base import merge
    from headwise.experiment.config import parse_changes
    from headwise.models.cost import summarise

    settings = parse_changes(changed)
    if isinstance(settings.get("model"), dict):  # as --set of an experiment has it
        settings = merge(settings, settings.pop("model"), later=False)
    return summarise(CATALOG[architecture], size, vocab=vocab, length=length, settings=settings)


def _print_cost(summary: Summary, info: ModelInfo, vocab: int, json_: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console

    from headwise.compare.render import format_si

    assert summary.cost is not None
    cost, top = summary.cost, summary.tree
    if json_:
        report = {"name": top.name, "paper": info.paper, "cost": asdict(cost), "tree": top.to_json()}
        print(json.dumps(report, indent=1))
        return
    console = Console()
    console.print(_drawn(top))
    if summary.image:
        side = " x ".join(map(str, summary.image[1:]))
        words, unit, each = f"{info.outputs:,} outputs", f"image of {side} pixels", "image"
    else:
        words, unit, each = f"{vocab:,} words", f"pair of tokens ({cost.length} a side)", "pair of texts"
    console.print(
        f"\n{info.paper} ({info.year})\n"
        f"parameters       {cost.parameters:,} with {words}\n"
        f"FLOPs            {format_si(cost.flops_per_token)} forward for each {unit}\n"
        f"training memory  {_bytes(cost.training_bytes)} weights, gradients and Adam\n"
        f"                 {_bytes(cost.activation_bytes)} activations for each {each}\n"
        f"decoding memory  {_bytes(cost.decoding_bytes)} weights\n"
        f"                 {_bytes(cost.cache_bytes_per_token)} cache for each target token",
        highlight=False,
    )


def _print_settings(summary: Summary, info: ModelInfo, json_: bool) -> None:
    """A model without parameters has no size before it has read a text."""
    if json_:
        print(json.dumps({"name": summary.name, "paper": info.paper, "settings": summary.settings}, indent=1))
        return
    print(f"{summary.name}: learns by a fit of its own; its tables grow with the text")
    for key, value in summary.settings.items():
        print(f"  {key} = {json.dumps(value)}")
    print(f"\n{info.paper} ({info.year})")


def _drawn(node: Node) -> Tree:
    from rich.markup import escape
    from rich.tree import Tree

    drawn = Tree(_label(node))

    def add(branch: Tree, below: Node) -> None:
        for name, shape in below.tensors.items():
            branch.add(f"[dim]{escape(name)} {' x '.join(map(str, shape))}[/]")
        for child in below.children:
            add(branch.add(_label(child)), child)

    add(drawn, node)
    return drawn


def _label(node: Node) -> str:
    times = f"[bold]{node.repeats} x[/] " if node.repeats > 1 else ""
    return f"{times}{node.name} [cyan]{node.kind}[/] [green]{node.parameters:,}[/]"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"
