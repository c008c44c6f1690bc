"""A suite with a main table as one table: the rows of the main one, and a column for the score of each other table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headwise.compare import render
from headwise.compare.analysis import describe_analysis
from headwise.compare.estimate import estimate_score
from headwise.compare.values import Comparison


class Column(NamedTuple):
    """A score of one of the tables."""

    title: str
    comparison: Comparison
    score: str

    def format(self, arm: str) -> str:
        """The score of an arm, with a star if it is the best by the ranking score of its table."""
        if arm not in self.comparison.arms:
            return ""
        text = render.format_estimate(estimate_score(self.comparison, arm, self.score))
        best = self.score == self.comparison.score and arm == render.best_arm(self.comparison)
        return text + (" *" if text and best else "")

    def format_published(self, arm: str) -> str:
        if arm not in self.comparison.arms:
            return ""
        published = self.comparison.arms[arm].published
        return render.format_figure(published, self.score) if self.score in published.scores else ""


def list_columns(comparisons: Mapping[str, Comparison], main: str) -> list[Column]:
    """All scores of the main table; of each other one the ranking score, and those of its analysis."""
    columns = [Column(score, comparisons[main], score) for score in comparisons[main].scores]
    for name, each in comparisons.items():
        if name != main:
            scores = dict.fromkeys(score for score in (each.score, *each.analysis.published) if score in each.scores)
            columns += [Column(f"{name}: {score}", each, score) for score in scores]
    return columns


def build_rows(comparisons: Mapping[str, Comparison], main: str) -> list[list[str]]:
    """The header, and a row per arm of the main table: its costs and scores, then the scores of the other tables, each
    with the published figure beside it; empty columns are dropped."""
    first, columns = comparisons[main], list_columns(comparisons, main)
    costs = [name.format(unit=first.unit) for name in render.MEAN_COLUMNS]
    rows = [["arm", "seeds", *costs, *(title for column in columns for title in (column.title, "published"))]]
    for name, arm in first.arms.items():
        scores = [text for column in columns for text in (column.format(name), column.format_published(name))]
        rows.append([name, render.format_seeds(arm), *render.format_costs(arm), *scores])
    used = [number for number in range(len(rows[0])) if any(row[number] for row in rows[1:])]
    return [[row[number] for number in used] for row in rows]


def build_notes(comparisons: Mapping[str, Comparison], main: str) -> list[str]:
    """The notes below the table: those of the main table, then title, analysis and failures of each other one."""
    notes = ["* best of its column", *render.build_notes(comparisons[main])]
    for name, each in comparisons.items():
        if name != main:
            seeds = sorted({seed for arm in each.arms.values() for seed in arm.outcomes})
            suffix = f" (seeds {', '.join(map(str, seeds))})" if seeds else ""
            notes.append(f"{name}: {each.title}{suffix}")
            lines = describe_analysis(each) if each.outcomes else ["nothing has finished yet"]
            notes += [f"{name}: {line}" for line in lines + render.describe_runs(each)]
    return notes
