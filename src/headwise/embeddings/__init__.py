"""Words as vectors: learnt from text, looked up, exchanged as text files, and put into other models."""

from headwise.embeddings.initialise import initialise
from headwise.embeddings.vectors import Vectors

__all__ = ["Vectors", "initialise"]
