"""Limits of one request."""

MAX_CHARACTERS = 20_000  # of an input text
MAX_TOKENS = 1024  # of an input text, and of its output
MAX_SCORED_TOKENS = 128  # output tokens whose log-probabilities are compared
MAX_ALIGNMENT_CHARACTERS = 2_000_000  # of an alignment
MAX_STEPS = 2000  # of an episode
MAX_RESIDUES = 256  # of a chain: the maps of triangle attention are cubic in them
