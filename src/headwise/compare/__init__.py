"""Variants of one experiment, trained over seeds and compared: values here, rendering and drawing apart."""

from headwise.compare.estimate import Estimate, estimate, paired
from headwise.compare.run import compare
from headwise.compare.values import Arm, Comparison, Outcome

__all__ = ["Arm", "Comparison", "Estimate", "Outcome", "compare", "estimate", "paired"]
