"""`headwise list` and `headwise show`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headwise.cli.common import say
from headwise.utils.console import make_console

if TYPE_CHECKING:
    from rich.tree import Tree

    from headwise.catalog import ModelInfo
    from headwise.models.summary import Node, Summary


def list_models(*what: str, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """List every model of the catalogue, or some of them.

    Parameter counts are exact: counted on the built models.

    For example:

        headwise list
        headwise list vision
        headwise list bert classify-images
        headwise list --json | jq -r '.[].name'

    Parameters
    ----------
    what
        Only models with these names, families or tasks.
    json_
        Print one JSON array instead of a table.
    """
    from headwise.errors import UserError, nearest
    from headwise.models.own import read_full_index

    index = read_full_index()
    traits = {name: {name, info.family, *info.tasks} for name, info in index.items()}
    for word in what:
        if word not in (known := set().union(*traits.values())):
            raise UserError(f"no model, family or task is called '{word}'; {nearest(word, known)}")
    chosen = {name: info for name, info in index.items() if not what or traits[name].intersection(what)}
    rows: list[dict[str, Any]] = [
        {
            "name": f"{info.name}-{size}",
            "entry": info.name,
            "paper": info.paper,
            "year": info.year,
            "family": info.family,
            "tasks": ", ".join(info.tasks),
            "vocab": counts.vocab,
            "parameters": counts.parameters,
            "published": counts.published,
            "oracle": info.oracle,
        }
        for info in chosen.values()
        for size, counts in info.sizes.items()
    ]
    if json_:
        print(json.dumps(rows, indent=1))
        return
    console = make_console(highlight=False, soft_wrap=True)
    for name, info in chosen.items():
        checked = f"; checked against {info.oracle}" if info.oracle else ""
        console.print(f"[bold]{name}[/]  {_cite(info)}")
        console.print(f"  [dim]{info.family}: {', '.join(info.tasks)}{checked}[/]")
        for row in (row for row in rows if row["entry"] == name):
            count = f"{row['parameters']:,}" if row["parameters"] else "-"
            published = f"   published {row['published']}" if row["published"] else ""
            outputs = f"vocabulary {row['vocab']:>7,}" if row["vocab"] else f"outputs {info.outputs:>10,}"
            console.print(f"  [cyan]{row['name']:<28}[/]{count:>16}   {outputs}{published}")


def _cite(info: ModelInfo) -> str:
    return f"{info.paper} ({info.year})" if info.year else info.paper


def show(
    name: str,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    vocab: int = 0,
    length: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show a model: its tree of modules with shapes, parameters, FLOPs per token and memory.

    For example:

        headwise show transformer-base
        headwise show transformer-small --set positions=rotary --set activation=swiglu
        headwise show t5-base --set output_layer=mixture

    Parameters
    ----------
    name
        A name that `headwise list` prints, with or without a size.
    set_
        Change a setting of the model, as in the [model] table of an experiment: --set wiring=pre, or model.wiring=pre
    vocab
        Vocabulary size; 0: the published one.
    length
        Tokens for which FLOPs and activations are counted; 0: 64, or the maximum length if that is less.
    json_
        Print one JSON object.
    """
    from headwise import catalog
    from headwise.models.own import read_full_index
    from headwise.models.summary import read_summary

    architecture, size = catalog.resolve(name)  # a wrong name is an error before torch is imported
    info = read_full_index()[architecture]
    if set_ or vocab or length or info.family == catalog.OWN_FAMILY:
        summary = _summarise(architecture, size, set_ or [], vocab, length)
    else:
        summary = read_summary(f"{architecture}-{size}")
    if summary.cost is None:
        _print_settings(summary, info, json_)
    else:
        _print_cost(summary, info, vocab or info.sizes[size].vocab, json_)
        if set_ and (scaled := catalog.CATALOG[architecture].scale_hidden(size, parse_settings(set_))):
            say(f"hidden = {scaled['hidden']}, in proportion to the width; --set hidden=N sets another one")


def _summarise(architecture: str, size: str, changed: list[str], vocab: int, length: int) -> Summary:
    """Count a model with other settings, vocabulary or length than the stored ones."""
    from headwise.catalog import CATALOG
    from headwise.models.cost import summarise

    return summarise(CATALOG[architecture], size, vocab=vocab, length=length, settings=parse_settings(changed))


def parse_settings(changed: list[str]) -> dict[str, Any]:
    """The keys of `[model]` that `--set` changes."""
    from headwise.config.base import merge
    from headwise.experiment.config import parse_changes

    settings = parse_changes(changed)
    if isinstance(settings.get("model"), dict):  # as --set of an experiment has it
        settings = merge(settings, settings.pop("model"), later=False)
    return settings


def _print_cost(summary: Summary, info: ModelInfo, vocab: int, json_: bool) -> None:
    from dataclasses import asdict

    from headwise.compare.render import format_si

    assert summary.cost is not None
    cost, top = summary.cost, summary.tree
    if json_:
        report = {"name": top.name, "paper": info.paper, "cost": asdict(cost), "tree": top.to_json()}
        print(json.dumps(report, indent=1))
        return
    console = make_console()
    console.print(_draw_tree(top))
    if summary.image:
        pixels = " x ".join(map(str, summary.image[1:]))
        outputs, unit, example = f"{info.outputs:,} outputs", f"image of {pixels} pixels", "image"
    elif {child.name for child in top.children} >= {"encoder", "decoder"}:
        unit = f"source and target token, at {cost.length} tokens each"
        outputs, example = f"a vocabulary of {vocab:,}", "pair of texts"
    else:
        outputs, unit, example = f"a vocabulary of {vocab:,}", f"token, at {cost.length} tokens", "text"
    per_token = cost.cache_bytes_per_token
    cache = f"\n                 {_format_bytes(per_token)} KV cache per target token" if per_token else ""
    shown_again = f"{top.tied_parameters:,} more in the tree"
    tied = f"                 tied weights, {shown_again}, are counted once\n" if top.tied_parameters else ""
    console.print(
        f"\n{_cite(info)}\n"
        f"parameters       {cost.parameters:,} with {outputs}\n"
        f"{tied}FLOPs            {format_si(cost.flops_per_token)} per {unit} (forward)\n"
        f"training memory  {_format_bytes(cost.training_bytes)} weights, gradients and Adam moments\n"
        f"                 {_format_bytes(cost.activation_bytes)} activations per {example}\n"
        f"inference memory {_format_bytes(cost.decoding_bytes)} weights{cache}",
        highlight=False,
    )


def _print_settings(summary: Summary, info: ModelInfo, json_: bool) -> None:
    """Print the settings of a model whose tables depend on the training data, such as an n-gram model."""
    if json_:
        print(json.dumps({"name": summary.name, "paper": info.paper, "settings": summary.settings}, indent=1))
        return
    print(f"{summary.name}: is fitted by counting; its size depends on the training text")
    for key, value in summary.settings.items():
        print(f"  {key} = {json.dumps(value)}")
    print(f"\n{_cite(info)}")


def _draw_tree(node: Node) -> Tree:
    from rich.markup import escape
    from rich.tree import Tree

    drawn = Tree(_format_node(node))

    def add(branch: Tree, below: Node) -> None:
        for name, shape in below.tensors.items():
            branch.add(f"[dim]{escape(name)} {' x '.join(map(str, shape))}[/]")
        for child in below.children:
            add(branch.add(_format_node(child)), child)

    add(drawn, node)
    return drawn


def _format_node(node: Node) -> str:
    times = f"[bold]{node.repeats} x[/] " if node.repeats > 1 else ""
    return f"{times}{node.name} [cyan]{node.kind}[/] [green]{node.parameters:,}[/]"


def _format_bytes(number: float) -> str:
    """
    >>> _format_bytes(512), _format_bytes(1010 * 1024), _format_bytes(963.4 * 2**20)
    ('512 B', '0.986 MiB', '963 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"
