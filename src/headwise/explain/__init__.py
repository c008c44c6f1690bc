"""Worked examples with real numbers: attention, positions and masks as stories of small matrices.

A topic computes plain numpy values, tells them as a `Story`, and a story is shown as text or as a picture.
"""

from headwise.explain.attention import Attention, AttentionExample, attend
from headwise.explain.mask import Masked, MaskExample, masked
from headwise.explain.positions import Positions, sinusoid
from headwise.explain.story import Matrix, Step, Story

__all__ = [
    "Attention",
    "AttentionExample",
    "MaskExample",
    "Masked",
    "Matrix",
    "Positions",
    "Step",
    "Story",
    "attend",
    "masked",
    "sinusoid",
]
