"""Word vectors: training (skip-gram), lookup, word2vec text files, and initialisation of other models."""

from headwise.embeddings.initialise import initialise
from headwise.embeddings.vectors import Vectors

__all__ = ["Vectors", "initialise"]
