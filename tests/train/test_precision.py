"""Mixed precision."""

import torch

from headwise.errors import UserError
from headwise.train.precision import autocast


def test_bfloat16_is_computed_or_refused_but_never_ignored():
    cpu = torch.device("cpu")
    try:
        with autocast("bfloat16", cpu):
            assert torch.nn.Linear(4, 4)(torch.ones(2, 4)).dtype == torch.bfloat16
    except UserError as error:
        assert "no bfloat16 arithmetic; use float32" in str(error)  # noqa: PT017
        assert not torch.cpu.get_capabilities().get("avx512_bf16", False)
    with autocast("float32", cpu):
        assert torch.nn.Linear(4, 4)(torch.ones(2, 4)).dtype == torch.float32
