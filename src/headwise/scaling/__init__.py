"""Scaling laws: a ladder of language models, trained, and their loss as power laws of N, D and C."""

from headwise.scaling.fit import Law, floored, straight
from headwise.scaling.run import relations, scaling
from headwise.scaling.values import Fit, Relation, Rung, Scaling

__all__ = ["Fit", "Law", "Relation", "Rung", "Scaling", "floored", "relations", "scaling", "straight"]
