"""Experiments as frozen values; importable without torch."""
