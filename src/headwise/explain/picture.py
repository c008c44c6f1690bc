"""A story as a picture: numbered steps down the page, matrices as tables with coloured cells."""

from __future__ import annotations

from headwise.explain.story import Matrix, Step, Story, wrap
from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Grid, Path, Rect, Shape, Text, text_width

MARGIN, HIGH, GAP = 36.0, 26.0, 14.0  # page margin, height of a cell, space around signs
DOT = 9.0  # cell of a dense matrix
PROSE, SMALL = 13.0, 12.0


def draw(story: Story) -> Drawing:
    """The whole story on one page, as wide as its widest row of matrices."""
    rows = [_row_width(row) for step in story.steps for row in step.rows]
    charts = [step.chart.width for step in story.steps if step.chart]
    inner = max(max(rows + charts) + 34, 760.0)
    shapes: list[Shape] = [Text(MARGIN, 50, story.title, 24, bold=True)]
    y = _prose(shapes, story.intro, MARGIN, 80, inner)
    for count, step in enumerate(story.steps, 1):
        y = _step(shapes, step, count, y + 22, inner)
    return Drawing(inner + 2 * MARGIN, y + MARGIN - 8, tuple(shapes), story.title)


def _step(shapes: list[Shape], step: Step, count: int, y: float, inner: float) -> float:
    shapes.append(Path(((MARGIN, y), (MARGIN + inner, y)), colour.FAINT))
    badge = Rect(MARGIN, y + 16, 24, 24, colour.WEIGHTS[-1], radius=12)
    shapes += [badge, Text(MARGIN + 12, y + 33, str(count), 13, colour.PAPER, "middle", bold=True)]
    shapes.append(Text(MARGIN + 34, y + 34, step.title, 16, bold=True))
    y = _prose(shapes, step.prose, MARGIN + 34, y + 58, inner - 34)
    if step.chart:
        shapes += step.chart.shapes(MARGIN + 34, y + 4)
        y += step.chart.height + 10
    for row in step.rows:
        y = _row(shapes, row, MARGIN + 34, y + 10)
    for line in step.worked:
        y = _prose(shapes, line, MARGIN + 34, y + 8, inner - 34, colour.ACCENT) - 6
    return y + 6


def _prose(shapes: list[Shape], prose: str, x: float, y: float, width: float, ink: str = colour.SOFT) -> float:
    """Lines broken to the width; returns the y below them."""
    for text in wrap(prose, lambda line: text_width(line, PROSE) <= width):
        shapes.append(Text(x, y + 8, text, PROSE, ink))
        y += 20
    return y


def _row(shapes: list[Shape], row: tuple[Matrix | str, ...], x: float, y: float) -> float:
    """Matrices side by side, signs at the middle of the tallest; returns the y below them."""
    tops = [_top(item) for item in row if isinstance(item, Matrix)]
    above = max(tops)
    tallest = max(_height(item) for item in row if isinstance(item, Matrix))
    for item in row:
        if isinstance(item, Matrix):
            _matrix(shapes, item, x, y + above)
        else:
            middle = x + text_width(item, 18) / 2
            shapes.append(Text(middle, y + above + tallest / 2 + 6, item, 18, colour.SOFT, "middle"))
        x += _width(item) + GAP
    return y + above + tallest + 12


def _matrix(shapes: list[Shape], matrix: Matrix, x: float, y: float) -> None:
    """One matrix whose cells begin at height `y`."""
    array, pixels = matrix.array, matrix.pixels()
    rows, columns = array.shape
    left = x + _label_width(matrix)
    wide, high = _cell(matrix)
    middle = left + columns * wide / 2
    shapes.append(Text(middle, y - _top(matrix) + 16, matrix.name, PROSE, anchor="middle", bold=True))
    if matrix.dense and pixels is not None:
        shapes += [Grid(left, y, DOT, pixels), Rect(left, y, columns * wide, rows * high, stroke=colour.FAINT)]
        return
    for i, label in enumerate(matrix.rows):
        shapes.append(Text(left - 7, y + (i + 0.5) * high + 4, label, SMALL, colour.SOFT, "end"))
    for j, label in enumerate(matrix.columns):
        shapes.append(Text(left + (j + 0.5) * wide, y - 7, label, SMALL, colour.SOFT, "middle"))
    for i, row in enumerate(matrix.cells()):
        for j, cell in enumerate(row):
            fill = colour.name(pixels[i, j]) if pixels is not None else "#f5f6f9"
            ink = colour.ink_on(pixels[i, j]) if pixels is not None else colour.INK
            if cell in ("−∞", "NaN"):
                fill, ink = "#fdf0e8", colour.WARM
            at = left + j * wide, y + i * high
            shapes.append(Rect(at[0] + 1, at[1] + 1, wide - 2, high - 2, fill, radius=3))
            shapes.append(Text(at[0] + wide / 2, at[1] + high / 2 + 4.3, cell, SMALL, ink, "middle"))


def _cell(matrix: Matrix) -> tuple[float, float]:
    """Width and height of a cell, from its longest number or column label."""
    if matrix.dense:
        return DOT, DOT
    longest = max(text_width(text, SMALL) for row in [*matrix.cells(), matrix.columns] for text in row)
    return max(34.0, longest + 14), HIGH


def _label_width(matrix: Matrix) -> float:
    return max((text_width(label, SMALL) for label in matrix.rows), default=-8.0) + 8


def _width(item: Matrix | str) -> float:
    if isinstance(item, str):
        return text_width(item, 18)
    own = _label_width(item) + item.array.shape[1] * _cell(item)[0]
    return max(own, text_width(item.name, PROSE))


def _row_width(row: tuple[Matrix | str, ...]) -> float:
    return sum(_width(item) + GAP for item in row)


def _height(matrix: Matrix) -> float:
    return matrix.array.shape[0] * _cell(matrix)[1]


def _top(item: Matrix) -> float:
    """Room above the cells: the name, and the column labels if there are any."""
    return 44.0 if item.columns and not item.dense else 26.0
