"""Scaling laws: a ladder of language models, trained, and their loss as power laws of N, D and C."""
