"""Recorded attention maps with the tokens they belong to: what every picture takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

KINDS = ("outputs", "encoder", "decoder", "cross")  # the last that is there is looked at first


@dataclass(frozen=True, eq=False)
class Maps:
    """Attention weights of one source and one target, per kind of attention.

    `weights[kind]` is (layers, heads, queries, keys), rows summing to one (or to zero where all is masked); of mixers
    that approximate attention or replace it, the map that they imply, which may have any sign and sum. A head that a
    layer does not have is NaN. `exact[kind]`, where there is one, has what softmax attention would do with the same
    queries and keys.

    `target_tokens` are the tokens as they were written; at each of them the decoder had read one token less,
    so the columns of its self-attention are `start` and all but the last. Where there are `latents`, they look at the
    source (cross) and at each other (encoder), and then each place of the source looks at them (outputs).

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
            raise ValueError("no attention was recorded")
        for kind, array in (*self.weights.items(), *self.exact.items()):
            if kind not in KINDS:
                raise ValueError(f"no attention is called '{kind}'; known: {', '.join(KINDS)}")
            expected = (len(self.rows(kind)), len(self.columns(kind)))
            if array.ndim != 4 or array.shape[2:] != expected:
                raise ValueError(f"{kind}: expected (layers, heads, {expected}), got {array.shape}")

    @property
    def main(self) -> str:
        """What one looks at first: the alignment of two texts, or the one text's own."""
        return next(kind for kind in reversed(KINDS) if kind in self.weights)

    def rows(self, kind: str) -> tuple[str, ...]:
        """The tokens that ask (queries)."""
        if self.latents:
            return self.source_tokens if kind == "outputs" else self.latents
        return self.source_tokens if kind == "encoder" else self.target_tokens

    def columns(self, kind: str) -> tuple[str, ...]:
        """The tokens that are looked at (keys)."""
        if self.latents:
            return self.source_tokens if kind == "cross" else self.latents
        return (self.start, *self.target_tokens[:-1]) if kind == "decoder" else self.source_tokens

    def heads(self, kind: str, layer: int | None = None) -> int:
        """How many heads a layer has; without one, the most of any."""
        chosen = self.weights[kind] if layer is None else self.weights[kind][[layer]]
        return int((~np.isnan(chosen)).any(axis=(0, 2, 3)).sum())

    def matrix(
        self, kind: str, layer: int | None = None, head: int | None = None, exact: bool = False
    ) -> NDArray[np.floating]:
        """One map (queries, keys): of one head, or the mean over the layers or heads not named."""
        chosen = (self.exact if exact else self.weights)[kind]
        chosen = chosen if layer is None else chosen[[layer]]
        chosen = chosen if head is None else chosen[:, [head]]
        there = ~np.isnan(chosen).all(axis=(2, 3))
        return chosen[there].mean(axis=0)  # (layers, heads, T, S) -> (maps, T, S) -> (T, S)
