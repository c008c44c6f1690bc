"""Render a story as a picture: numbered steps, matrices as tables with coloured cells."""

from __future__ import annotations

from headwise.explain.story import Matrix, Step, Story, wrap
from headwise.inspect import colour
from headwise.inspect.svg import Drawing, Grid, Path, Rect, Shape, Text, text_width

MARGIN, CELL_HEIGHT, GAP = 36.0, 26.0, 14.0  # page margin, height of a cell, space around signs
DENSE_CELL = 9.0  # cell of a dense matrix
PROSE_SIZE, LABEL_SIZE = 13.0, 12.0


def draw_story(story: Story) -> Drawing:
    """The whole story on one page, as wide as its widest row of matrices."""
    rows = [_row_width(row) for step in story.steps for row in step.rows]
    charts = [step.chart.width for step in story.steps if step.chart]
    width = max(max(rows + charts) + 34, 760.0)
    shapes: list[Shape] = [Text(MARGIN, 50, story.title, 24, bold=True)]
    y = _draw_prose(shapes, story.intro, MARGIN, 80, width)
    for count, step in enumerate(story.steps, 1):
        y = _draw_step(shapes, step, count, y + 22, width)
    return Drawing(width + 2 * MARGIN, y + MARGIN - 8, tuple(shapes), story.title)


def _draw_step(shapes: list[Shape], step: Step, count: int, y: float, width: float) -> float:
    shapes.append(Path(((MARGIN, y), (MARGIN + width, y)), colour.FAINT))
    badge = Rect(MARGIN, y + 16, 24, 24, colour.WEIGHTS[-1], radius=12)
    shapes += [badge, Text(MARGIN + 12, y + 33, str(count), 13, colour.PAPER, "middle", bold=True)]
    shapes.append(Text(MARGIN + 34, y + 34, step.title, 16, bold=True))
    y = _draw_prose(shapes, step.prose, MARGIN + 34, y + 58, width - 34)
    if step.chart:
        shapes += step.chart.draw_at(MARGIN + 34, y + 4)
        y += step.chart.height + 10
    for row in step.rows:
        y = _draw_row(shapes, row, MARGIN + 34, y + 10)
    for line in step.worked:
        y = _draw_prose(shapes, line, MARGIN + 34, y + 8, width - 34, colour.ACCENT) - 6
    return y + 6


def _draw_prose(shapes: list[Shape], prose: str, x: float, y: float, width: float, ink: str = colour.SOFT) -> float:
    """Lines broken to the width; returns the y below them."""
    for text in wrap(prose, lambda line: text_width(line, PROSE_SIZE) <= width):
        shapes.append(Text(x, y + 8, text, PROSE_SIZE, ink))
        y += 20
    return y


def _draw_row(shapes: list[Shape], row: tuple[Matrix | str, ...], x: float, y: float) -> float:
    """Matrices side by side, signs at the middle of the tallest; returns the y below them."""
    tops = [_header_height(item) for item in row if isinstance(item, Matrix)]
    above = max(tops)
    tallest = max(_height(item) for item in row if isinstance(item, Matrix))
    for item in row:
        if isinstance(item, Matrix):
            _draw_matrix(shapes, item, x, y + above)
        else:
            middle = x + text_width(item, 18) / 2
            shapes.append(Text(middle, y + above + tallest / 2 + 6, item, 18, colour.SOFT, "middle"))
        x += _width(item) + GAP
    return y + above + tallest + 12


def _draw_matrix(shapes: list[Shape], matrix: Matrix, x: float, y: float) -> None:
    """One matrix whose cells begin at height `y`."""
    array, pixels = matrix.array, matrix.pixels()
    rows, columns = array.shape
    left = x + _label_width(matrix)
    cell_width, cell_height = _cell_size(matrix)
    middle = left + columns * cell_width / 2
    shapes.append(Text(middle, y - _header_height(matrix) + 16, matrix.name, PROSE_SIZE, anchor="middle", bold=True))
    if matrix.dense and pixels is not None:
        shapes += [
            Grid(left, y, DENSE_CELL, pixels),
            Rect(left, y, columns * cell_width, rows * cell_height, stroke=colour.FAINT),
        ]
        return
    for i, label in enumerate(matrix.rows):
        shapes.append(Text(left - 7, y + (i + 0.5) * cell_height + 4, label, LABEL_SIZE, colour.SOFT, "end"))
    for j, label in enumerate(matrix.columns):
        shapes.append(Text(left + (j + 0.5) * cell_width, y - 7, label, LABEL_SIZE, colour.SOFT, "middle"))
    for i, row in enumerate(matrix.format_cells()):
        for j, cell in enumerate(row):
            fill = colour.to_hex(pixels[i, j]) if pixels is not None else "#f5f6f9"
            ink = colour.pick_text_colour(pixels[i, j]) if pixels is not None else colour.INK
            if cell in ("−∞", "NaN"):
                fill, ink = "#fdf0e8", colour.WARM
            corner = left + j * cell_width, y + i * cell_height
            shapes.append(Rect(corner[0] + 1, corner[1] + 1, cell_width - 2, cell_height - 2, fill, radius=3))
            shapes.append(
                Text(corner[0] + cell_width / 2, corner[1] + cell_height / 2 + 4.3, cell, LABEL_SIZE, ink, "middle")
            )


def _cell_size(matrix: Matrix) -> tuple[float, float]:
    """Width and height of a cell, from its longest number or column label."""
    if matrix.dense:
        return DENSE_CELL, DENSE_CELL
    longest = max(text_width(text, LABEL_SIZE) for row in [*matrix.format_cells(), matrix.columns] for text in row)
    return max(34.0, longest + 14), CELL_HEIGHT


def _label_width(matrix: Matrix) -> float:
    return max((text_width(label, LABEL_SIZE) for label in matrix.rows), default=-8.0) + 8


def _width(item: Matrix | str) -> float:
    if isinstance(item, str):
        return text_width(item, 18)
    width = _label_width(item) + item.array.shape[1] * _cell_size(item)[0]
    return max(width, text_width(item.name, PROSE_SIZE))


def _row_width(row: tuple[Matrix | str, ...]) -> float:
    return sum(_width(item) + GAP for item in row)


def _height(matrix: Matrix) -> float:
    return matrix.array.shape[0] * _cell_size(matrix)[1]


def _header_height(item: Matrix) -> float:
    """Room above the cells: the name, and the column labels if there are any."""
    return 44.0 if item.columns and not item.dense else 26.0
