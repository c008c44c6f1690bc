"""Recorded attention maps with their tokens: the input of every plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwise.utils.notebook import render

KINDS = ("outputs", "encoder", "decoder", "cross")  # the last one present is shown first


@dataclass(frozen=True, eq=False)
class Maps:
    """Attention weights of one source and one target, per kind of attention.

    `weights[kind]` is (layers, heads, queries, keys) with rows that sum to one (or to zero if all keys are masked); for
    mixers that approximate or replace attention it is the implied map, of any sign and sum. Heads that a layer does not
    have are NaN, and maps of pooled tokens are expanded to all tokens. `exact[kind]`, if present, is softmax attention
    with the same queries and keys.

    The row of a target token is that of the step that predicts it, when the decoder has read the tokens before it: the
    columns of its self-attention are `start` and all but the last. `latents` attend to the source (cross) and to each
    other (encoder), and each position of the source then attends to them (outputs).

    >>> maps = Maps({"cross": np.full((1, 2, 1, 2), 0.5)}, ("h", "i"), ("HH",))
    >>> maps.rows("cross"), maps.columns("cross"), maps.matrix("cross").tolist()
    (('HH',), ('h', 'i'), [[0.5, 0.5]])
    """

    weights: Mapping[str, NDArray[np.floating]]
    source_tokens: tuple[str, ...] = ()
    target_tokens: tuple[str, ...] = ()
    start: str = "<bos>"
    exact: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    latents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("maps: no attention was recorded")
        for kind, array in (*self.weights.items(), *self.exact.items()):
            if kind not in KINDS:
                raise ValueError(f"no attention is called '{kind}'; known: {', '.join(KINDS)}")
            expected = (len(self.rows(kind)), len(self.columns(kind)))
            if array.ndim != 4 or array.shape[2:] != expected:
                raise ValueError(f"{kind}: expected (layers, heads, {expected}), got {array.shape}")

    def _repr_html_(self) -> str:
        return render("maps", self)

    @property
    def main(self) -> str:
        """The kind shown first: cross-attention, or else the self-attention of the one text."""
        return next(kind for kind in reversed(KINDS) if kind in self.weights)

    def rows(self, kind: str) -> tuple[str, ...]:
        """The tokens of the queries."""
        if self.latents:
            return self.source_tokens if kind == "outputs" else self.latents
        return self.source_tokens if kind == "encoder" else self.target_tokens

    def columns(self, kind: str) -> tuple[str, ...]:
        """The tokens of the keys."""
        if self.latents:
            return self.source_tokens if kind == "cross" else self.latents
        return (self.start, *self.target_tokens[:-1]) if kind == "decoder" else self.source_tokens

    def heads(self, kind: str, layer: int | None = None) -> int:
        """The number of heads of a layer; without one, the largest of all layers."""
        weights = self.weights[kind] if layer is None else self.weights[kind][[layer]]
        return int((~np.isnan(weights)).any(axis=(0, 2, 3)).sum())

    def matrix(
        self, kind: str, layer: int | None = None, head: int | None = None, exact: bool = False
    ) -> NDArray[np.floating]:
        """One map (queries, keys): of one head, or the mean over the layers or heads that are not given."""
        weights = (self.exact if exact else self.weights)[kind]
        weights = weights if layer is None else weights[[layer]]
        weights = weights if head is None else weights[:, [head]]
        present = ~np.isnan(weights).all(axis=(2, 3))
        return weights[present].mean(axis=0)  # (layers, heads, T, S) -> (maps, T, S) -> (T, S)
