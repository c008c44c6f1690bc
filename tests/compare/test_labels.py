"""Names of points that lie close together stay readable."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from headwise.compare.labels import add_label, place_labels


def test_no_name_covers_another_or_a_point():
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = [(1.0, 2.0), (1.0, 2.0), (1.01, 2.0), (1.02, 1.99), (3.0, 3.0), (3.0, 0.0), (0.0, 3.0)]
    axes.plot(*zip(*points, strict=True), "o")
    axes.margins(0.1)
    names = [add_label(axes, f"a long name {number}", point, "black") for number, point in enumerate(points)]
    figure.draw_without_rendering()
    before = boxes(names)
    assert any(one.overlaps(other) for one, other in combinations(before, 2))
    place_labels(axes, names)
    figure.draw_without_rendering()
    after = boxes(names)
    assert not any(one.overlaps(other) for one, other in combinations(after, 2))
    assert all(axes.bbox.fully_contains(*corner) for box in after for corner in box.get_points())
    dots = axes.transData.transform(points)
    assert not any(box.contains(*dot) for box in after for dot in dots)


def boxes(names):
    return [Text.get_window_extent(each).frozen() for each in names]
