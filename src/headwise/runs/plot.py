"""Plot the curves of several runs."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from headwise.errors import UserError
from headwise.runs.run import Run
from headwise.utils.files import write, writing

AXES = ("step", "minutes", "epoch")


def plot_runs(runs: Sequence[Run], out: Path | str, over: str = "step") -> Path:
    """Draw training loss and validation score of each run over `step`, `minutes` or `epoch`.

    The ending of `out` decides the format: .png or .svg.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out = Path(out)
    if out.suffix not in (".png", ".svg"):
        raise UserError(f"{out}: pictures are written as .png or .svg; choose one of these endings")
    if over not in AXES:
        raise UserError(f"curves are drawn over {', '.join(AXES)}, not over '{over}'")
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, scores = figure.subplots(1, 2)
    for run in runs:
        rows = run.metrics.rows()
        score = (run.state.get("best") or {}).get("name", "")
        placed = [row for row in rows if row.get(over) is not None]
        trained = [(row[over], row["loss"]) for row in placed if row.get("loss") is not None]
        valid = [(row[over], row["valid"].get(score)) for row in placed if "valid" in row]
        losses.plot(*_to_columns(trained), label=run.name)
        scores.plot(*_to_columns(valid), marker=".", label=f"{run.name}: {score}" if score else run.name)
    for axes, title in ((losses, "training loss"), (scores, "validation")):
        axes.set(title=title, xlabel=over)
        axes.grid(alpha=0.3)
        if runs:
            axes.legend(fontsize="small")
    picture = BytesIO()
    figure.savefig(picture, format=out.suffix[1:])
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write(out, picture.getvalue())
    return out


def _to_columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [float("nan") if y is None else y for _, y in points]
