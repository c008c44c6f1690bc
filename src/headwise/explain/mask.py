"""Attention masks: −∞ is added to masked scores before the softmax (Vaswani et al. 2017, section 3.2.3).

A token may attend to itself (j = i). The softmax of a row that is masked entirely is undefined; Headwise sets its
weights to zero instead of NaN (with −∞) or the mean of all values (with −10⁹).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from headwise.config.base import Config
from headwise.explain.source import Numbers, check_matrix, check_size
from headwise.explain.story import Matrix, Step, Story

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class MaskExample(Config):
    """Square scores, and the padding mask `keep` (True = real token; by default all)."""

    scores: Numbers
    tokens: tuple[str, ...] = ()
    keep: tuple[bool, ...] = ()

    @model_validator(mode="after")
    def _check_shapes(self) -> MaskExample:
        length, columns = check_matrix("scores", self.scores).shape
        check_size("scores", "columns", columns, length, "as many as rows")
        for name in ("tokens", "keep"):
            if entries := getattr(self, name):
                check_size(name, "entries", len(entries), length, "one for each row of scores")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return self.tokens or tuple(f"x{i + 1}" for i in range(len(self.scores)))

    @property
    def masks(self) -> dict[str, Bools]:
        """Each mask as (queries, keys): True = visible."""
        length = len(self.scores)
        causal = np.tri(length, dtype=bool)
        padding = np.broadcast_to(np.array(self.keep or (True,) * length), (length, length))
        return {"none": np.ones_like(causal), "causal": causal, "padding": padding, "both": causal & padding}


@dataclass(frozen=True, eq=False)
class MaskedScores:
    """Scores and softmax weights under a mask."""

    allowed: Bools
    scores: Floats
    weights: Floats

    def to_json(self) -> dict[str, Any]:
        """Plain data; a masked score is None, since JSON has no infinity."""
        scores = [[value if np.isfinite(value) else None for value in row] for row in self.scores.tolist()]
        return {"allowed": self.allowed.tolist(), "scores": scores, "weights": self.weights.tolist()}


def apply_mask(scores: Floats, allowed: Bools) -> MaskedScores:
    """Mask, then softmax; a row that is masked entirely gets zeros.

    >>> apply_mask(np.zeros((2, 2)), np.array([[False, False], [True, True]])).weights.tolist()
    [[0.0, 0.0], [0.5, 0.5]]
    """
    masked = np.where(allowed, scores, -np.inf)
    largest = np.max(masked, axis=-1, keepdims=True, initial=np.finfo(float).min)
    powers = np.exp(masked - largest)  # exp(−∞) is exactly 0
    total = powers.sum(axis=-1, keepdims=True)
    return MaskedScores(allowed, masked, np.divide(powers, total, out=np.zeros_like(powers), where=total > 0))


def to_json(example: MaskExample) -> dict[str, Any]:
    """All values of the story, as plain data."""
    scores = np.array(example.scores)
    views = {name: apply_mask(scores, allowed).to_json() for name, allowed in example.masks.items()}
    return {"tokens": example.names, **views}


def build_story(example: MaskExample) -> Story:
    """No mask, causal mask, padding mask, both, and a row that is masked entirely."""
    steps = (
        _mask_step(
            example,
            "none",
            "Without a mask every token attends to all",
            "Each row of scores becomes weights over all columns. An encoder works like this.",
        ),
        _mask_step(
            example,
            "causal",
            "The causal mask hides the future",
            "Where column j comes after row i the score becomes −∞, whose exponential is exactly 0: row i only "
            "sees j ≤ i, itself included. A decoder trained like this on all positions at once can later write "
            "one token after the other.",
        ),
        _mask_step(
            example,
            "padding",
            "The padding mask hides padding",
            "Texts of a batch are padded to one length. No token may attend to padding, so its columns become −∞ "
            "in every row, and the result is the same as without padding.",
        ),
        _mask_step(
            example,
            "both",
            "Both masks together",
            "A key is visible if both masks allow it. A padding token with only padding before it sees nothing at all.",
        ),
    )
    return Story(
        "Masks with numbers",
        "A mask decides which keys each query may attend to. It is added to the scores before the softmax: 0 where "
        "attention is allowed, −∞ where it is not.",
        (*steps, _empty_row_step(example)),
    )


def _mask_step(example: MaskExample, name: str, title: str, prose: str) -> Step:
    allowed = example.masks[name]
    result = apply_mask(np.array(example.scores), allowed)
    names = example.names
    before = Matrix("scores", example.scores, names, names)
    after = Matrix("weights", result.weights, names, names, 4, "weights")
    if name == "none":
        return Step(title, prose, ((before, "→", after),))
    mask = Matrix(f"{name} mask" if name != "both" else "mask", np.where(allowed, 0.0, -np.inf), columns=names)
    hidden = Matrix("masked scores", result.scores, columns=names)
    return Step(title, prose, ((before, "+", mask, "="), (hidden, "→", after)))


def _empty_row_step(example: MaskExample) -> Step:
    scores = np.array(example.scores[:1], dtype=np.float32)
    with np.errstate(invalid="ignore"):
        infinite = _plain_softmax(scores + np.float32(-np.inf))
    large = _plain_softmax(scores + np.float32(-1e9))
    ours = apply_mask(scores.astype(float), np.zeros(scores.shape, dtype=bool)).weights
    rows = tuple(
        (Matrix(how, row, columns=example.names, digits=4, colours="weights"),)
        for how, row in (
            ("−∞, plain softmax", infinite),
            ("−10⁹, plain softmax (float32)", large),
            ("Headwise", ours),
        )
    )
    return Step(
        "A row that is masked entirely gives zeros",
        "Softmax of a row of −∞ is 0/0 = NaN, and one NaN spreads through the whole model. With −10⁹ instead of −∞ the "
        "scores are lost in rounding and the row becomes the mean of everything it must not see. Headwise "
        "gives zeros.",
        rows,
    )


def _plain_softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The textbook softmax, without a rule for rows that are masked entirely."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
