"""Names of points in a plot, beside their points and not on one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import BboxBase

# Where a name may stand, in points from its own: near before far, to the right before elsewhere.
PLACES = [
    (across * reach, up * reach)
    for reach in (6, 12, 20, 30, 42)
    for across, up in ((1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5), (0, 1.2), (0, -1.2))
]


def label(axes: Axes, text: str, point: tuple[float, float], colour: str) -> Annotation:
    """A name for a point, tied to it by a thin line, for `spread` to place."""
    tie = {"arrowstyle": "-", "color": colour, "alpha": 0.4, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
    return axes.annotate(text, point, PLACES[0], textcoords="offset points", fontsize=8, color=colour, arrowprops=tie)


def spread(axes: Axes, labels: Sequence[Annotation]) -> None:
    """Give each name the first place where it covers no other name and no point; where there is none it stays. Call it
    when all is drawn and laid out."""
    from matplotlib.transforms import Bbox

    points = axes.transData.transform([each.xy for each in labels])
    taken: list[BboxBase] = [Bbox([point - 8, point + 8]) for point in points]
    for each in labels:
        at = next((place for place in PLACES if _is_free(_moved(each, place), axes.bbox, taken)), PLACES[0])
        taken.append(_moved(each, at))


def _moved(label: Annotation, place: tuple[float, float]) -> BboxBase:
    """The rectangle of a name that was put somewhere else."""
    from matplotlib.text import Text

    across, up = place
    label.xyann = place
    label.set(ha="left" if across > 0 else "right" if across < 0 else "center", va="bottom" if up > 0 else "top")
    label.get_window_extent()  # sets the position; what it returns has the line in it
    return Text.get_window_extent(label)


def _is_free(box: BboxBase, page: BboxBase, taken: Sequence[BboxBase]) -> bool:
    inside = page.fully_contains(box.x0, box.y0) and page.fully_contains(box.x1, box.y1)
    return inside and not box.count_overlaps(taken)
