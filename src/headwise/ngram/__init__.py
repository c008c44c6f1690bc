"""n-gram language models: counting, smoothing, back-off, ARPA files."""

from headwise.ngram.arpa import from_arpa, to_arpa
from headwise.ngram.backoff import Backoff
from headwise.ngram.model import Ngram

__all__ = ["Backoff", "Ngram", "from_arpa", "to_arpa"]
