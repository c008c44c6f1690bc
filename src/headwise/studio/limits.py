"""Limits of one request."""

MAX_CHARACTERS = 20_000  # of an input text
MAX_TOKENS = 1024  # of an input text, and of its output
MAX_SCORED_TOKENS = 128  # output tokens whose log-probabilities are compared
