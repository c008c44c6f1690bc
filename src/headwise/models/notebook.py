"""A model in a notebook: the tree of its modules with shapes and parameter counts."""

from __future__ import annotations

from html import escape

from torch import nn

from headwise.models.cost import build_tree
from headwise.models.summary import Node

INDENT = "margin-left: 1.2rem"
OPEN_DEPTH = 2  # levels that are unfolded at first


def render_model(model: nn.Module) -> str:
    """Render the tree as nested `details` elements, which need neither script nor style sheet."""
    tree = build_tree(model, type(model).__name__)
    note = f"Tied weights are counted once; the tree shows them at each place, {tree.tied_parameters:,} more."
    tied = f'<div style="opacity: .65">{note}</div>' if tree.tied_parameters else ""
    return f'<div style="font-family: monospace">{render_node(tree)}{tied}</div>'


def render_node(node: Node, depth: int = 0) -> str:
    """Render a module: its own tensors, then its children; equal layers stand once, with a count."""
    repeats = f" × {node.repeats}" if node.repeats > 1 else ""
    kind = f" {escape(node.kind)}" if node.kind != node.name else ""
    count = f"{node.parameters * node.repeats:,} parameters"
    line = f'<b>{escape(node.name)}</b>{kind}{repeats} <span style="opacity: .65">{count}</span>'
    tensors = "".join(
        f'<div style="{INDENT}; opacity: .8">{escape(name)} {" × ".join(map(str, shape))}</div>'
        for name, shape in node.tensors.items()
    )
    children = "".join(render_node(child, depth + 1) for child in node.children)
    style = f' style="{INDENT}"' if depth else ""
    if not tensors and not children:
        return f"<div{style}>{line}</div>"
    unfolded = " open" if depth < OPEN_DEPTH else ""
    return f"<details{unfolded}{style}><summary>{line}</summary>{tensors}{children}</details>"
