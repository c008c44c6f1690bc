"""Run folders: what training writes and everything else reads."""

from headwise.runs.run import Run, Summary, find, summary

__all__ = ["Run", "Summary", "find", "summary"]
