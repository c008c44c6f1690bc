"""Scaled dot-product attention by hand (Vaswani et al. 2017, equation 1): softmax(Q Kᵀ / √d) V.

The shipped example has three tokens; `rounded` holds its weights rounded by hand, as on lecture slides.
DISCREPANCY: the slides print 0.063 as 0.0, so these rows are not a correct rounding to one decimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from headwise.config.base import Config
from headwise.explain.source import Numbers, check_matrix, check_size
from headwise.explain.story import Matrix, Step, Story, format_number

Floats = NDArray[np.float64]


class AttentionExample(Config):
    """Inputs (tokens × width) and the Q, K and V projections (width × head_width)."""

    inputs: Numbers
    query: Numbers
    key: Numbers
    value: Numbers
    tokens: tuple[str, ...] = ()
    rounded: Numbers = ()

    @model_validator(mode="after")
    def _check_shapes(self) -> AttentionExample:
        inputs, query, key, value = (
            check_matrix(name, getattr(self, name)) for name in ("inputs", "query", "key", "value")
        )
        length, width = inputs.shape
        for name, weights in (("query", query), ("key", key), ("value", value)):
            check_size(name, "rows", len(weights), width, "one for each column of inputs")
        check_size("key", "columns", key.shape[1], query.shape[1], "as many as query, to be compared with it")
        if self.tokens:
            check_size("tokens", "entries", len(self.tokens), length, "one for each row of inputs")
        if self.rounded:
            shape = check_matrix("rounded", self.rounded).shape
            check_size("rounded", "rows", shape[0], length, "one for each row of inputs")
            check_size("rounded", "columns", shape[1], length, "one for each row of inputs")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return self.tokens or tuple(f"x{i + 1}" for i in range(len(self.inputs)))


@dataclass(frozen=True, eq=False)
class Attention:
    """Every intermediate value of one head."""

    inputs: Floats
    queries: Floats
    keys: Floats
    values: Floats
    scores: Floats
    weights: Floats
    outputs: Floats

    def to_json(self) -> dict[str, Any]:
        return {name: array.tolist() for name, array in vars(self).items()}


def softmax(scores: Floats) -> Floats:
    """Rows of positive weights that sum to one."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attend(example: AttentionExample, scaled: bool = True) -> Attention:
    """One head of self-attention with all intermediate values."""
    inputs = np.array(example.inputs)
    queries, keys, values = (inputs @ np.array(w) for w in (example.query, example.key, example.value))
    scores = queries @ keys.T / (np.sqrt(queries.shape[1]) if scaled else 1.0)  # (T, D) @ (D, T) -> (T, T)
    weights = softmax(scores)
    return Attention(inputs, queries, keys, values, scores, weights, weights @ values)


def to_json(example: AttentionExample) -> dict[str, Any]:
    """All values of the story, as plain data."""
    unscaled = attend(example, scaled=False)
    data = {"tokens": example.names, "unscaled": unscaled.to_json(), "scaled": attend(example).to_json()}
    if example.rounded:
        outputs = np.array(example.rounded) @ unscaled.values
        data["rounded"] = {"weights": example.rounded, "outputs": outputs.tolist()}
    return data


def build_story(example: AttentionExample) -> Story:
    """The steps from inputs to outputs."""
    unscaled = attend(example, scaled=False)
    steps = [_projection_step(example, unscaled), _score_step(example, unscaled), _softmax_step(example, unscaled)]
    steps += [_output_step(example, unscaled)]
    if example.rounded:
        steps.append(_rounded_step(example, unscaled))
    return Story(
        "Self-attention with numbers",
        f"{len(example.inputs)} tokens of width {len(example.inputs[0])} go through one attention head of width "
        f"{unscaled.queries.shape[1]}. Each token asks a question (query), each offers an answer to it (key) and "
        "something to say (value). The three projection matrices are learnt; everything else follows.",
        (*steps, _scaled_step(example, attend(example))),
    )


def _projection_step(example: AttentionExample, head: Attention) -> Step:
    def row(letter: str, weights: Numbers, result: Floats) -> tuple[Matrix | str, ...]:
        inputs = Matrix("X", head.inputs, example.names)
        return inputs, "×", Matrix(f"W_{letter}", weights), "=", Matrix(letter, result, example.names)

    first = " + ".join(
        f"{_format_short(x)}·{_format_short(w[0])}" for x, w in zip(head.inputs[0], example.query, strict=True)
    )
    return Step(
        "Project every input three times",
        "Queries, keys and values are the same inputs seen through three matrices: Q~=~X~W_Q, K~=~X~W_K, "
        "V~=~X~W_V. Row i belongs to token i.",
        (
            row("Q", example.query, head.queries),
            row("K", example.key, head.keys),
            row("V", example.value, head.values),
        ),
        (f"first entry of Q:  {first} = {_format_short(head.queries[0, 0])}",),
    )


def _score_step(example: AttentionExample, head: Attention) -> Step:
    names = example.names
    last = len(names) - 1
    product = " + ".join(
        f"{_format_short(q)}·{_format_short(k)}" for q, k in zip(head.queries[0], head.keys[last], strict=True)
    )
    return Step(
        "Compare every query with every key",
        "The score of two tokens is the dot product of the one's query with the other's key: S~=~Q~Kᵀ. "
        "Row i holds the scores of token i with all tokens, itself included.",
        (
            (
                Matrix("Q", head.queries, names),
                "×",
                Matrix("Kᵀ", head.keys.T, columns=names),
                "=",
                Matrix("S", head.scores, names, names),
            ),
        ),
        (f"{names[0]} about {names[last]}:  {product} = {_format_short(head.scores[0, last])}",),
    )


def _softmax_step(example: AttentionExample, head: Attention) -> Step:
    row = head.scores[0]
    powers = np.exp(row - row.max())  # subtract the maximum: the same weights without overflow
    shares = ", ".join(f"{power:.4f}" for power in powers)
    return Step(
        "Turn each row of scores into weights",
        "Softmax makes every row positive with sum one: a_j~=~exp(s_j)~/~Σ~exp(s_k). A difference of a few "
        "points is already decisive. No weight is ever exactly 0.",
        (
            (
                Matrix("S", head.scores, example.names, example.names),
                "→",
                Matrix("A = softmax(S)", head.weights, example.names, example.names, 6, "weights"),
            ),
        ),
        (
            f"{example.names[0]}:  exp(s − {_format_short(row.max())}) = {shares}, which sum to {powers.sum():.4f}",
            f"{example.names[0]} about {example.names[0]}:  "
            f"{powers[0]:.4f} / {powers.sum():.4f} = {head.weights[0, 0]:.6f}",
        ),
    )


def _output_step(example: AttentionExample, head: Attention) -> Step:
    first = " + ".join(f"{w:.6f}·{_format_short(v)}" for w, v in zip(head.weights[0], head.values[:, 0], strict=True))
    return Step(
        "Average the values with these weights",
        "Each output is a weighted mean of the rows of V, Y~=~A~V, so it lies between the smallest and the "
        "largest value of each column: for fixed weights attention is linear in V.",
        (
            (
                Matrix("A", head.weights, example.names, digits=6, colours="weights"),
                "×",
                Matrix("V", head.values),
                "=",
                Matrix("Y", head.outputs, example.names, digits=6),
            ),
        ),
        (f"first entry of Y:  {first} = {head.outputs[0, 0]:.6f}",),
    )


def _rounded_step(example: AttentionExample, head: Attention) -> Step:
    rounded = np.array(example.rounded)
    return Step(
        "As on the slides: weights rounded by hand",
        "On slides one calculates with rounded weights. They are not always correctly rounded (the largest "
        f"change here is {np.abs(rounded - head.weights).max():.3f}), and the outputs move by up to "
        f"{np.abs(rounded @ head.values - head.outputs).max():.3f}.",
        (
            (
                Matrix("A rounded", rounded, example.names, digits=1, colours="weights"),
                "×",
                Matrix("V", head.values),
                "=",
                Matrix("Y rounded", rounded @ head.values, example.names, digits=1),
            ),
        ),
    )


def _scaled_step(example: AttentionExample, head: Attention) -> Step:
    width = head.queries.shape[1]
    return Step(
        f"Divide by √{width} first, as the Transformer does",
        f"A dot product of {width} unit-normal pairs has variance {width}; divided by √{width} = "
        f"{np.sqrt(width):.4f} it has variance 1 whatever the width, so softmax neither saturates nor loses its "
        "gradient in wide heads. The weights become softer.",
        (
            (
                Matrix(f"S / √{width}", head.scores, example.names, digits=4),
                "→",
                Matrix("A scaled", head.weights, example.names, digits=6, colours="weights"),
            ),
            (
                Matrix("A scaled", head.weights, example.names, digits=6, colours="weights"),
                "×",
                Matrix("V", head.values),
                "=",
                Matrix("Y scaled", head.outputs, example.names, digits=6),
            ),
        ),
    )


def _format_short(value: float) -> str:
    """A number in a worked line; whole numbers without decimals."""
    return format_number(value, 0 if float(value).is_integer() else 4)
