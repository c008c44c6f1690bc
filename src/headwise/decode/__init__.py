"""Decoding: greedy search, beam search and sampling over any model with `start` and `step`."""
