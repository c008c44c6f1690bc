"""The tables of `headwise compare`, from what their runs left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headwise.compare.cell import OUTCOME
from headwise.compare.config import SHIPPED, ComparisonConfig, Published, Suite
from headwise.compare.estimate import Estimate, estimate
from headwise.compare.render import notes, rows
from headwise.compare.values import Arm, Comparison, Outcome
from headwise.errors import UserError, nearest
from headwise.runs import Run
from headwise.studio.run_history import finite
from headwise.utils.files import read_json

DEEP = ("*", "*/*", "*/*/*")  # where runs of a table are, from a folder on: itself, its tables, those of `compare`


def tables(paths: Sequence[Path]) -> dict[str, Path]:
    """Folders whose runs were compared, by name; of two with the same name the second is called by its folder, too."""
    found: dict[str, Path] = {}
    for folder in dict.fromkeys(_folders(paths)):
        name = folder.name if folder.name not in found else f"{folder.parent.name}-{folder.name}"
        found.setdefault(name, folder)
    return found


def table(paths: Sequence[Path], name: str, score: str = "") -> dict[str, Any]:
    """One of them: rows of text as `headwise compare` prints them, and the numbers of its dot plot."""
    known = tables(paths)
    if name not in known:
        raise UserError(f"there is no comparison '{name}' here; {nearest(name, known)}")
    found = compared(known[name], score)
    header, *body = rows(found)
    return {
        "name": name,
        "title": found.title,
        "score": found.score,
        "scores": found.scores,
        "lower": found.lower,
        "header": header,
        "rows": body,
        "notes": notes(found),
        "lanes": [lane(found, arm) for arm in found.arms.values()] + [_others(each, found) for each in found.published],
    }


def compared(folder: Path, score: str = "") -> Comparison:
    """What the runs in a folder came to. A table that comes with Headwise has a title, an order and published figures;
    of any other the names of the runs are all that is known."""
    config = shipped().get(folder.name)
    cells: dict[str, dict[int, Outcome]] = {arm.name: {} for arm in config.arm} if config else {}
    slugs = {arm.slug: arm.name for arm in config.arm} if config else {}
    for file in sorted(folder.glob(f"*/{OUTCOME}"), key=lambda file: file.stat().st_mtime):
        if (found := cell(file)) is not None:
            slug, seed, outcome = found
            cells.setdefault(slugs.get(slug, slug), {})[seed] = outcome  # of two runs of a cell, the later one
    told = {arm.name: arm.published for arm in config.arm} if config else {}
    arms = {name: Arm(name, own, published=told.get(name, Published())) for name, own in cells.items() if own}
    title = (config.title or config.name) if config else folder.name
    comparison = Comparison(title, arms, config.published if config else ())
    by = config.score if config and config.score in comparison.scores else ""
    return comparison.ranked_by(score or by, config.lower if config and not score else None)


def cell(file: Path) -> tuple[str, int, Outcome] | None:
    """Arm, seed and outcome of a run, whatever settings its table has by now; None: it is damaged."""
    try:
        settings = Run(file.parent).config
        seed = int(settings.get("seed", 0))
        arm = str(settings.get("name", file.parent.name)).removesuffix(f"-{seed}")
        outcome = Outcome.load(file, read_json(file)["key"])
        return None if outcome is None else (arm, seed, outcome)
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None


def lane(comparison: Comparison, arm: Arm) -> dict[str, Any]:
    """One line of the dot plot."""
    score = comparison.score
    values = {str(seed): each.scores[score].value for seed, each in arm.outcomes.items() if score in each.scores}
    found = estimate(comparison, arm.name, score) if score else None
    return {
        "name": arm.name,
        "seeds": {seed: finite(value) for seed, value in values.items()},
        "estimate": _plain(found),
        "published": _figure(arm.published, score),
    }


@cache
def shipped() -> dict[str, ComparisonConfig]:
    """Every table that comes with Headwise, those of suites included."""
    found: dict[str, ComparisonConfig] = {}
    for file in (file for folder in SHIPPED for file in sorted(folder.glob("*.toml"))):
        for config in Suite.read(file).tables.values():
            found.setdefault(config.name, config)
    return found


def _folders(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        for pattern in DEEP:
            yield from (file.parent.parent.resolve() for file in sorted(path.glob(f"{pattern}/{OUTCOME}")))


def _others(published: Published, comparison: Comparison) -> dict[str, Any]:
    figure = _figure(published, comparison.score)
    return {"name": published.name, "seeds": {}, "estimate": None, "published": figure}


def _figure(published: Published, score: str) -> dict[str, Any] | None:
    found = published.scores.get(score)
    return None if found is None else {"value": finite(found), "source": published.source}


def _plain(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    ends = {name: finite(getattr(found, name)) for name in ("mean", "low", "high")}
    return {**ends, "count": found.count, "over": found.over}
