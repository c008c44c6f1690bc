"""The tables of `headwise compare`, rebuilt from the outcomes in their run folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headwise.compare.cell import OUTCOME
from headwise.compare.config import SHIPPED, AnalysisConfig, ComparisonConfig, Published, Suite
from headwise.compare.estimate import Estimate, estimate_score
from headwise.compare.render import build_notes, build_rows
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.errors import UserError, nearest
from headwise.runs import Run
from headwise.studio.run_history import to_json_number
from headwise.utils.files import read_json

PATTERNS = ("*", "*/*", "*/*/*")  # runs inside a table, a folder of tables, or the parent of `compare`


def find_tables(paths: Sequence[Path]) -> dict[str, Path]:
    """Folders of compared runs by name. If two have the same name, the second gets its parent's name as a prefix."""
    folders: dict[str, Path] = {}
    for folder in dict.fromkeys(_folders(paths)):
        name = folder.name if folder.name not in folders else f"{folder.parent.name}-{folder.name}"
        folders.setdefault(name, folder)
    return folders


def describe_table(paths: Sequence[Path], name: str, score: str = "") -> dict[str, Any]:
    """A table: the rows that `headwise compare` prints, and the values of its dot plot."""
    folders = find_tables(paths)
    if name not in folders:
        raise UserError(f"there is no comparison '{name}' here; {nearest(name, folders)}")
    comparison = read_comparison(folders[name], score)
    header, *body = build_rows(comparison)
    return {
        "name": name,
        "title": comparison.title,
        "score": comparison.score,
        "scores": comparison.scores,
        "lower_is_better": comparison.lower,
        "header": header,
        "rows": body,
        "notes": build_notes(comparison),
        "arms": [_describe_arm(comparison, arm) for arm in comparison.arms.values()]
        + [_describe_published(published, comparison) for published in comparison.published],
    }


def read_comparison(folder: Path, score: str = "") -> Comparison:
    """The comparison of the runs in a folder. Title, order and published figures are known for tables that come with
    Headwise; for others only the names of the runs."""
    config = read_shipped_tables().get(folder.name)
    cells: dict[str, dict[int, Outcome]] = {arm.name: {} for arm in config.arm} if config else {}
    slugs = {arm.slug: arm.name for arm in config.arm} if config else {}
    for file in sorted(folder.glob(f"*/{OUTCOME}"), key=lambda file: file.stat().st_mtime):
        if (cell := read_cell(file)) is not None:
            slug, seed, outcome = cell
            cells.setdefault(slugs.get(slug, slug), {})[seed] = outcome  # of two runs of a cell the later one counts
    published = {arm.name: arm.published for arm in config.arm} if config else {}
    arms = {
        name: Arm(name, outcomes, published=published.get(name, Published()))
        for name, outcomes in cells.items()
        if outcomes
    }
    title = (config.title or config.name) if config else folder.name
    comparison = Comparison(
        title, arms, config.published if config else (), analysis=config.analysis if config else AnalysisConfig()
    )
    score_name = config.score if config and config.score in comparison.scores else ""
    return comparison.rank_by(score or score_name, config.lower if config and not score else None)


def read_cell(file: Path) -> tuple[str, int, Outcome] | None:
    """Arm, seed and outcome of a run, whatever its table contains by now; None if it is damaged."""
    try:
        config = Run(file.parent).config
        seed = int(config.get("seed", 0))
        arm = str(config.get("name", file.parent.name)).removesuffix(f"-{seed}")
        outcome = Outcome.load(file, read_json(file)["key"])
        return None if outcome is None else (arm, seed, outcome)
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None


def _describe_arm(comparison: Comparison, arm: Arm) -> dict[str, Any]:
    """One arm of the dot plot."""
    score = comparison.score
    values = {
        str(seed): outcome.scores[score].value for seed, outcome in arm.outcomes.items() if score in outcome.scores
    }
    estimate = estimate_score(comparison, arm.name, score) if score else None
    return {
        "name": arm.name,
        "seeds": {seed: to_json_number(value) for seed, value in values.items()},
        "estimate": _describe_estimate(estimate),
        "published": _describe_figure(arm.published, score),
    }


@cache
def read_shipped_tables() -> dict[str, ComparisonConfig]:
    """All tables that come with Headwise, those of suites included."""
    tables: dict[str, ComparisonConfig] = {}
    for file in (file for folder in SHIPPED for file in sorted(folder.glob("*.toml"))):
        for config in Suite.read(file).tables.values():
            tables.setdefault(config.name, config)
    return tables


def _folders(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        for pattern in PATTERNS:
            yield from (file.parent.parent.resolve() for file in sorted(path.glob(f"{pattern}/{OUTCOME}")))


def _describe_published(published: Published, comparison: Comparison) -> dict[str, Any]:
    figure = _describe_figure(published, comparison.score)
    return {"name": published.name, "seeds": {}, "estimate": None, "published": figure}


def _describe_figure(published: Published, score: str) -> dict[str, Any] | None:
    value = published.scores.get(score)
    return None if value is None else {"value": to_json_number(value), "source": published.source}


def _describe_estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    numbers = {name: to_json_number(getattr(estimate, name)) for name in ("mean", "low", "high")}
    return {**numbers, "count": estimate.count, "over": estimate.over}
