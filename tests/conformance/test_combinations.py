"""Every two values of the parts' settings meet in one of these models, and each keeps all promises."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from pairwise import build_covering_rows, list_pairs

import headwise
from headwise import UserError
from headwise.testing import check_model, perturb_parameters
from headwise.testing.generative import check_overfit, check_round_trip

CHOICES: dict[str, tuple[Any, ...]] = {
    "positions": ("none", "sinusoid", "learned", "rotary", "alibi", "t5", "shaw", "deberta", "transformer_xl"),
    "activation": ("relu", "gelu", "glu", "geglu", "reglu", "swiglu", "liglu"),
    "score": ("scaled", "dot", "general", "additive", "cosine", "location"),
    "kernel": ("auto", "plain", "sdpa", "chunked"),
    "tie": ("all", "target", "none"),
    "wiring": ("post", "pre", "admin", "reversible", "rezero", "fixup"),
    "norm": ("layer", "rms"),
    "shared": (False, True),
    "biases": (False, True),
    "key_value_heads": (0, 1),
    "recurrent": ("", "rnn", "lstm", "gru", "gru_cho"),  # before each self-attention; both ways in the encoder
}


def is_possible(row: dict[str, Any]) -> bool:
    """The fused kernel knows dot products alone and never forms the scores that some positions add to."""
    unfused = row.get("positions") in ("shaw", "deberta", "transformer_xl") or row.get("score") in (
        "additive",
        "location",
    )
    return not (unfused and row.get("kernel") == "sdpa")


ROWS = build_covering_rows(CHOICES, is_possible)


def build(row: dict[str, Any], width: int = 8, depth: int = 2) -> Any:
    attention, mlp = {"kind": "attention", "kernel": row["kernel"], "score": row["score"]}, {"kind": "mlp"}
    ahead = [{"kind": row["recurrent"], "hidden": 6}] if row["recurrent"] else []
    both = [{**part, "bidirectional": True} for part in ahead]
    torch.manual_seed(0)
    return headwise.build(
        "transformer-tiny",
        vocab=11,
        outputs=0 if row["tie"] == "all" else 13,
        width=width,
        heads=2,
        hidden=width,
        dropout=0.0,
        encoder={"depth": depth, "shared": row["shared"], "layers": [[*both, attention, mlp]]},
        decoder={
            "depth": depth,
            "shared": row["shared"],
            "layers": [[*ahead, attention, {**attention, "attend_to": "memory"}, mlp]],
        },
        key_value_heads=row["key_value_heads"],
        attention_bias=row["biases"],
        mlp_bias=row["biases"],
        output_bias=row["biases"],
        wiring={"kind": "reversible", "join": "mean"} if row["wiring"] == "reversible" else row["wiring"],
        **{key: row[key] for key in ("positions", "activation", "tie", "norm")},
    )


def format_row(row: dict[str, Any]) -> str:
    return "-".join(str(value) for value in row.values())


def test_the_selection_covers_every_pair() -> None:
    met = {pair for row in ROWS for pair in list_pairs(row)}
    for (a, ones), (b, twos) in product(CHOICES.items(), repeat=2):
        for one, two in product(ones, twos):
            if a != b and is_possible({a: one, b: two}):
                assert (a, one, b, two) in met or (b, two, a, one) in met
    assert len(ROWS) < 1.3 * 63  # nine positions and seven activations alone need 63


@pytest.mark.parametrize("row", ROWS, ids=format_row)
def test_does_what_its_parts_declare(row: dict[str, Any], tmp_path: Path) -> None:
    check_model(build(row))
    check_round_trip(perturb_parameters(build(row)), build(row).double().eval(), tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "row", build_covering_rows({key: CHOICES[key] for key in ("positions", "wiring")}), ids=format_row
)
def test_overfits_a_batch(row: dict[str, Any]) -> None:
    rest = {
        "activation": "swiglu",
        "score": "scaled",
        "kernel": "auto",
        "tie": "all",
        "norm": "rms",
        "shared": False,
        "biases": True,
        "key_value_heads": 0,
    }
    check_overfit(build({**rest, "recurrent": "", **row}, width=16, depth=1))


def build_chain(kind: str, width: int) -> Any:
    """Recurrent layers without residuals or norms, as before 2015, and one look at the source from above them."""
    torch.manual_seed(0)
    ahead, above = {"kind": kind}, {"kind": "attention", "attend_to": "memory"}
    return headwise.build(
        "transformer-tiny",
        vocab=11,
        width=width,
        heads=2,
        dropout=0.0,
        wiring="none",
        positions="none",
        encoder={"depth": 2, "layers": [[{**ahead, "bidirectional": True, "hidden": width // 2}], [ahead]]},
        decoder={"depth": 2, "layers": [[ahead], [ahead, above]]},
    )


@pytest.mark.parametrize("kind", [kind for kind in CHOICES["recurrent"] if kind])
def test_a_recurrent_chain_does_what_its_parts_declare_and_learns(kind: str, tmp_path: Path) -> None:
    check_model(build_chain(kind, width=8))
    check_round_trip(
        perturb_parameters(build_chain(kind, width=8)),
        build_chain(kind, width=8).double().eval(),
        tmp_path / "model.safetensors",
    )
    check_overfit(build_chain(kind, width=16))


def test_the_fused_kernel_refuses_a_score_mod_that_needs_the_scores() -> None:
    model = build({**ROWS[0], "positions": "shaw", "kernel": "sdpa", "score": "scaled"})
    with pytest.raises(UserError, match="'sdpa' cannot take Shaw"):
        model(torch.tensor([[5]]), torch.tensor([[5]]))
