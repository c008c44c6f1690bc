"""`check_part` has a check for every property that a part can declare."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import torch
from torch import Tensor

from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.testing import check_part
from headwise.testing.part import CHECKS, OF_STATES


def test_every_property_has_a_check() -> None:
    assert {*CHECKS, *OF_STATES} == {field.name for field in fields(Properties)}


class Noisy(Part):
    """Adds noise in evaluation mode, too."""

    def __init__(self, exact: bool):
        super().__init__()
        self.exact = exact

    @property
    def properties(self) -> Properties:
        return Properties(exact=self.exact)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return stream.x + torch.randn_like(stream.x)


def test_a_part_may_deny_to_be_exact() -> None:
    check_part(Noisy(exact=False))


def test_the_part_that_is_given_is_not_changed() -> None:
    part = torch.nn.Linear(8, 8)

    class Projection(Part):
        by_token = True

        def __init__(self) -> None:
            super().__init__()
            self.project = part

        @property
        def properties(self) -> Properties:
            return Properties(causal=True, steppable=True, packing=True)

        def transform(self, stream: Stream, ctx: Context) -> Tensor:
            return self.project(stream.x)

    before = part.weight.clone()
    check_part(Projection())
    assert part.weight.dtype == torch.float32 and torch.equal(part.weight, before)


def test_pytest_is_not_needed() -> None:
    code = "import sys, headwise.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
