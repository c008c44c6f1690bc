"""Worked examples with real numbers: attention, positions, masks, gradients, depth and shifted windows.

Each topic computes NumPy values and builds a `Story` of steps, which is rendered as text or as a picture.
"""

from headwise.explain.attention import Attention, AttentionExample, attend
from headwise.explain.mask import MaskedScores, MaskExample, apply_mask
from headwise.explain.positions import PositionSettings, sinusoid
from headwise.explain.story import Matrix, Step, Story

__all__ = [
    "Attention",
    "AttentionExample",
    "MaskExample",
    "MaskedScores",
    "Matrix",
    "PositionSettings",
    "Step",
    "Story",
    "apply_mask",
    "attend",
    "sinusoid",
]
