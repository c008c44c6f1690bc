"""Conformance checks for parts and models, yours included: what a part claims must hold, what it denies must fail.

    from headwise.testing import check_part

    def test_fading_mean():
        check_part(FadingMeanConfig())

    check_part     a part, or its config, against the `Properties` that it declares
    check_model    a model: causality, padding, batches, KV cache, packed documents, losses and gradients
    assert_...     single assertions that hold on every CPU, whatever the rounding

Failures are plain `AssertionError`s; nothing here needs pytest.
"""

from headwise.testing.assertions import (
    assert_causal,
    assert_causal_in_embeddings,
    assert_independent,
    assert_parity,
    perturb_parameters,
    probe_embeddings,
    rounding,
)
from headwise.testing.model import check_model
from headwise.testing.part import check_part

__all__ = [
    "assert_causal",
    "assert_causal_in_embeddings",
    "assert_independent",
    "assert_parity",
    "check_model",
    "check_part",
    "perturb_parameters",
    "probe_embeddings",
    "rounding",
]
