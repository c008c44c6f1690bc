"""Labels of points in a plot, placed beside the points without overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import BboxBase

PADDING = (8, 1)  # pixels between two labels, across and up
FRAME = 6  # pixels between a label and the frame, which may move a little with the resolution of the file
# Candidate offsets of a label from its point, in typographic points: near before far, right before left.
OFFSETS = [
    (across * reach, up * reach)
    for reach in (6, 12, 20, 30, 42, 56, 72, 90, 110, 132)
    for across, up in ((1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5), (0, 1.2), (0, -1.2))
]


def add_label(axes: Axes, text: str, point: tuple[float, float], colour: str, size: float = 8) -> Annotation:
    """Add a label with a thin line to its point; `place_labels` moves it."""
    arrow = {"arrowstyle": "-", "color": colour, "alpha": 0.4, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
    label = axes.annotate(
        text, point, OFFSETS[0], textcoords="offset points", fontsize=size, color=colour, arrowprops=arrow
    )
    label.set_in_layout(False)  # it stays inside the axes; measuring its line for the layout is slow
    return label


def place_labels(axes: Axes, labels: Sequence[Annotation]) -> None:
    """Move each label to the first offset where it covers no other label and no point, if there is one. Call it after
    the layout is final."""
    from matplotlib.transforms import Bbox

    points = axes.transData.transform([annotation.xy for annotation in labels])
    occupied: list[BboxBase] = [Bbox([point - 8, point + 8]) for point in points]
    frame = axes.bbox.padded(-FRAME)
    for annotation in labels:
        offset = next(
            (candidate for candidate in OFFSETS if _is_free(_move_label(annotation, candidate), frame, occupied)),
            OFFSETS[0],
        )
        occupied.append(_move_label(annotation, offset).padded(*PADDING))


def _move_label(label: Annotation, place: tuple[float, float]) -> BboxBase:
    """Move a label and return its bounding box."""
    from matplotlib.text import Text

    across, up = place
    label.xyann = place
    label.set(ha="left" if across > 0 else "right" if across < 0 else "center", va="bottom" if up > 0 else "top")
    figure: Any = label.get_figure(root=True)
    label.update_positions(figure.canvas.get_renderer())
    return Text.get_window_extent(label)  # without the line


def _is_free(box: BboxBase, frame: BboxBase, occupied: Sequence[BboxBase]) -> bool:
    inside = frame.fully_contains(box.x0, box.y0) and frame.fully_contains(box.x1, box.y1)
    return inside and not box.count_overlaps(occupied)
