"""Masks: −∞ is added to the scores that must not be seen, before the softmax (Vaswani et al. 2017, section 3.2.3).

A token may look at itself (j = i). A row in which nothing may be seen has no softmax; Headwise defines its
weights as zeros, so that it contributes nothing, instead of NaN (−∞) or an average of everything (−10⁹).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from headwise.config.base import Config
from headwise.explain.source import Numbers, expect, matrix
from headwise.explain.story import Matrix, Step, Story

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class MaskExample(Config):
    """Square scores, and which tokens are real (`keep`; all of them when it is not given)."""

    scores: Numbers
    tokens: tuple[str, ...] = ()
    keep: tuple[bool, ...] = ()

    @model_validator(mode="after")
    def _shapes_fit(self) -> MaskExample:
        length, columns = matrix("scores", self.scores).shape
        expect("scores", "columns", columns, length, "as many as rows")
        for name in ("tokens", "keep"):
            if found := getattr(self, name):
                expect(name, "entries", len(found), length, "one for each row of scores")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return self.tokens or tuple(f"x{i + 1}" for i in range(len(self.scores)))

    @property
    def seen(self) -> dict[str, Bools]:
        """What each mask lets through, (queries, keys): True may be seen."""
        length = len(self.scores)
        causal = np.tri(length, dtype=bool)
        padding = np.broadcast_to(np.array(self.keep or (True,) * length), (length, length))
        return {"none": np.ones_like(causal), "causal": causal, "padding": padding, "both": causal & padding}


@dataclass(frozen=True, eq=False)
class Masked:
    """A score matrix under a mask, before and after the softmax."""

    seen: Bools
    scores: Floats
    weights: Floats

    def to_json(self) -> dict[str, Any]:
        """Plain data; a masked score is None, for JSON has no infinity."""
        scores = [[value if np.isfinite(value) else None for value in row] for row in self.scores.tolist()]
        return {"seen": self.seen.tolist(), "scores": scores, "weights": self.weights.tolist()}


def masked(scores: Floats, seen: Bools) -> Masked:
    """Mask, then softmax; a row that sees nothing gets zeros.

    >>> masked(np.zeros((2, 2)), np.array([[False, False], [True, True]])).weights.tolist()
    [[0.0, 0.0], [0.5, 0.5]]
    """
    hidden = np.where(seen, scores, -np.inf)
    largest = np.max(hidden, axis=-1, keepdims=True, initial=np.finfo(float).min)
    powers = np.exp(hidden - largest)  # exp(−∞) is exactly 0
    total = powers.sum(axis=-1, keepdims=True)
    return Masked(seen, hidden, np.divide(powers, total, out=np.zeros_like(powers), where=total > 0))


def to_json(example: MaskExample) -> dict[str, Any]:
    """Everything `story` tells, as plain data."""
    scores = np.array(example.scores)
    views = {name: masked(scores, seen).to_json() for name, seen in example.seen.items()}
    return {"tokens": example.names, **views}


def story(example: MaskExample) -> Story:
    """No mask, the causal one, padding, both, and a row that sees nothing."""
    steps = (
        _step(
            example,
            "none",
            "Without a mask everybody sees everybody",
            "Each row of scores becomes weights over all columns. An encoder works like this.",
        ),
        _step(
            example,
            "causal",
            "The causal mask hides the future",
            "Where column j comes after row i the score becomes −∞, whose exponential is exactly 0: row i only "
            "sees j ≤ i, itself included. A decoder trained like this on all positions at once can later write "
            "one token after the other.",
        ),
        _step(
            example,
            "padding",
            "The padding mask hides what is no token",
            "Texts of a batch are padded to one length. Nobody may look at padding, so its columns become −∞ in "
            "every row, and the result is the same as without padding.",
        ),
        _step(
            example,
            "both",
            "Both masks together",
            "A weight survives where both masks allow it. A token before which there is only padding, and which "
            "is padding itself, sees nothing at all.",
        ),
    )
    return Story(
        "Masks with numbers",
        "A mask decides who may look at whom. It is added to the scores before the softmax: 0 where one may "
        "look, −∞ where one may not.",
        (*steps, _nothing(example)),
    )


def _step(example: MaskExample, name: str, title: str, prose: str) -> Step:
    seen = example.seen[name]
    result = masked(np.array(example.scores), seen)
    names = example.names
    before = Matrix("scores", example.scores, names, names)
    after = Matrix("weights", result.weights, names, names, 4, "weights")
    if name == "none":
        return Step(title, prose, ((before, "→", after),))
    mask = Matrix(f"{name} mask" if name != "both" else "mask", np.where(seen, 0.0, -np.inf), columns=names)
    hidden = Matrix("masked scores", result.scores, columns=names)
    return Step(title, prose, ((before, "+", mask, "="), (hidden, "→", after)))


def _nothing(example: MaskExample) -> Step:
    scores = np.array(example.scores[:1], dtype=np.float32)
    with np.errstate(invalid="ignore"):
        infinite = _naive(scores + np.float32(-np.inf))
    large = _naive(scores + np.float32(-1e9))
    ours = masked(scores.astype(float), np.zeros(scores.shape, dtype=bool)).weights
    rows = tuple(
        (Matrix(how, row, columns=example.names, digits=4, look="weights"),)
        for how, row in (
            ("−∞, plain softmax", infinite),
            ("−10⁹, plain softmax (float32)", large),
            ("Headwise", ours),
        )
    )
    return Step(
        "A row that may see nothing gives zeros",
        "Softmax of a row of −∞ is 0/0, NaN, and one NaN poisons the whole model. With −10⁹ instead of −∞ the "
        "scores drown in rounding and the row becomes the mean of everything it must not see. Headwise gives "
        "zeros: the row contributes nothing.",
        rows,
    )


def _naive(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The textbook softmax, without a rule for rows that see nothing."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
