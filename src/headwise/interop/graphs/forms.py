"""The graphs of a model, by what it offers: a forward pass, hidden states of texts, or decoding steps.

Letters: B rows, T length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.stream import Context
from headwise.errors import UserError
from headwise.interop.graphs.graph import Graph, PartWatcher
from headwise.interop.graphs.steps import list_step_graphs
from headwise.models.generative import GenerativeModel
from headwise.text import EOS, PAD, UNK

ATTRIBUTES = (  # of a model that commands read, kept where a model has them
    "max_length", "mask_id", "start_id", "end_id", "vocab", "continues_prompt", "unbounded",
)  # fmt: skip
SIZES = ((2, 6), (3, 9), (1, 4))  # rows and tokens of the examples


@dataclass(frozen=True)
class Form:
    """The graphs of a model, and the attributes of it that commands read."""

    kind: str  # forward, states, or steps: which model of `engine` runs them
    graphs: list[Graph]
    attributes: dict[str, Any]

    @property
    def table(self) -> dict[str, Any]:
        """What `open_model` needs beside the files."""
        return {"kind": self.kind, "attributes": self.attributes}


def list_graphs(model: nn.Module, states: bool, image: tuple[int, ...], vocab: int, option: str) -> Form:
    """The graphs of a model whose inputs are images of a shape (C, H, W), or texts over a vocabulary; with `states`,
    those of its encoder."""
    draw = draw_images(image) if image else draw_texts(vocab)
    attributes = {name: getattr(model, name) for name in ATTRIBUTES if hasattr(model, name)}
    if isinstance(model, GenerativeModel) and not states:
        attributes["prefix"] = 0 if model.decoder.prefix_id is None else 1  # tokens that the first step reads before
        parts = PartWatcher(model)
        with parts.watch():
            try:
                return Form("steps", list_step_graphs(model, [draw(*size) for size in SIZES]), attributes)
            except UserError:
                raise
            except Exception as error:  # a cache of another kind than that of graphs
                raise UserError(f"{option}: {parts.explain(error)}") from error
    examples = tuple({"pixels" if image else "ids": draw(*size)} for size in SIZES)
    if states:
        encoder: Any = model.encoder
        attributes["max_length"] = encoder.embed.positions.max_length
        attributes["prefix_ids"] = [] if encoder.prefix_id is None else [encoder.prefix_id]
        return Form("states", [Graph("model", HiddenStates(encoder), examples, ("x", "keep"))], attributes)
    with torch.no_grad():
        outputs = model(*examples[0].values())
    names = tuple(field.name for field in fields(outputs)) if is_dataclass(outputs) else ("logits",)
    return Form("forward", [Graph("model", Forward(model), examples, names)], attributes)


def draw_inputs(image: tuple[int, ...], vocab: int, rows: int, length: int) -> Tensor:
    """Random images, or random texts of `length` tokens."""
    return (draw_images(image) if image else draw_texts(vocab))(rows, length)


Draw = Callable[[int, int], Tensor]


def draw_texts(vocab: int) -> Draw:
    """A function that draws ids (B, T) with EOS and padding."""

    def draw(rows: int, length: int) -> Tensor:
        generator = torch.Generator().manual_seed(rows)
        ids = torch.randint(min(UNK + 1, vocab - 1), vocab, (rows, length), generator=generator)
        ids[:, -1] = EOS
        ids[0, -3], ids[0, -2:] = EOS, PAD
        return ids

    return draw


def draw_images(shape: tuple[int, ...]) -> Draw:
    """A function that draws normalised images (B, C, H, W)."""
    return lambda rows, *_: torch.randn(rows, *shape, generator=torch.Generator().manual_seed(rows))


class Forward(nn.Module):
    """The forward pass."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model(*inputs)
        return tuple(getattr(outputs, field.name) for field in fields(outputs)) if is_dataclass(outputs) else (outputs,)


class HiddenStates(nn.Module):
    """The last hidden states of texts (B, T, C) and their padding mask (B, T)."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        stream = self.encoder(inputs[0], Context())
        keep = stream.keep if stream.keep is not None else torch.ones(stream.x.shape[:2], dtype=torch.bool)
        return stream.x, keep
