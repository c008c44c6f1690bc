"""Run folders: written by training, read by everything else."""

from headwise.runs.run import Run, Summary, find_runs, summarize_run

__all__ = ["Run", "Summary", "find_runs", "summarize_run"]
