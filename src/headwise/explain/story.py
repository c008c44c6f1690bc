"""Explanations as data: steps of prose and rows of matrices, rendered as text by `render_text`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise.explain.chart import Chart
from headwise.inspect import colour

if TYPE_CHECKING:
    from rich.text import Text

SCALES = {"plain": (), "weights": colour.WEIGHTS, "signed": colour.SIGNED}
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Matrix:
    """A named matrix; `colours` selects a colour scale, `dense` shows shades instead of numbers."""

    name: str
    values: ArrayLike
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    digits: int = 2
    colours: str = "plain"  # plain, weights (0 to 1), signed (-1 to 1)
    dense: bool = False
    scientific: bool = False  # scientific notation for very small and large numbers

    @property
    def array(self) -> NDArray[np.float64]:
        return np.atleast_2d(np.asarray(self.values, dtype=np.float64))

    def format_cells(self) -> list[list[str]]:
        """Every number as text; without decimals if all are whole."""
        if self.scientific:
            return [[format_scientific(value, self.digits) for value in row] for row in self.array]
        finite = self.array[np.isfinite(self.array)]
        digits = 0 if np.array_equal(finite, finite.round()) else self.digits
        return [[format_number(value, digits) for value in row] for row in self.array]

    def pixels(self) -> colour.Pixels | None:
        """Cell colours, or None for a plain matrix."""
        low = -1.0 if self.colours == "signed" else 0.0
        scale = SCALES[self.colours]
        return colour.paint(np.nan_to_num(self.array, neginf=0.0), low, 1.0, scale) if scale else None


@dataclass(frozen=True)
class Step:
    """A title, an explanation, worked lines, and rows of matrices with operators between them.

    A chart is drawn in pictures only; the text version shows its numbers in a matrix.
    """

    title: str
    prose: str
    rows: tuple[tuple[Matrix | str, ...], ...] = ()
    worked: tuple[str, ...] = ()
    chart: Chart | None = None


@dataclass(frozen=True)
class Story:
    title: str
    intro: str
    steps: tuple[Step, ...]


def format_number(value: float, digits: int) -> str:
    """A number for a table.

    >>> [format_number(value, 2) for value in (-0.5, float("-inf"), float("nan"), -0.0001)]
    ['−0.50', '−∞', 'NaN', '0.00']
    """
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = round(float(value), digits) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:.{digits}f}".replace("-", "−")


def format_scientific(value: float, digits: int) -> str:
    """A number of any size for a table.

    >>> [format_scientific(value, 1) for value in (0.00026, 13780.6, 0.52, 0, np.inf)]
    ['2.6e−04', '1.4e+04', '0.52', '0', '∞']
    """
    if value == 0 or not np.isfinite(value) or 0.1 <= abs(value) < 1000:
        return format_number(value, digits + 1 if value else 0)
    return f"{value:.{digits}e}".replace("-", "−")


def render_text(story: Story, width: int = 80) -> Text:
    """The story as rich text with colours."""
    from rich.text import Text

    text = Text()
    text.append(f"{story.title}\n", "bold underline")
    text.append(f"{_wrap_lines(story.intro, width)}\n")
    for count, step in enumerate(story.steps, 1):
        text.append(f"\n{count}. {step.title}\n", "bold cyan")
        text.append(f"{_wrap_lines(step.prose, width)}\n")
        for row in step.rows:
            for line in _render_row(row, width):
                text.append("\n").append_text(line)
            text.append("\n")
        if step.worked:
            text.append("\n" + "".join(f"   {line}\n" for line in step.worked), "italic")
    return text


def wrap(prose: str, fits: Callable[[str], bool]) -> list[str]:
    """Break prose into lines that fit; `~` is a non-breaking space, as in TeX.

    >>> wrap("so S~=~QK holds", lambda line: len(line) <= 8)
    ['so', 'S = QK', 'holds']
    """
    lines: list[str] = []
    for word in prose.split(" "):
        if lines and fits(f"{lines[-1]} {word}"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line.replace("~", " ") for line in lines]


def _wrap_lines(prose: str, width: int) -> str:
    return "\n".join(wrap(prose, lambda line: len(line) <= min(width, 96)))


def _render_row(items: Sequence[Matrix | str], width: int) -> list[Text]:
    """Matrices and operators side by side; what does not fit in the width continues below."""
    from rich.text import Text

    lines: list[Text] = []
    has_columns = any(isinstance(item, Matrix) and item.columns for item in items)
    blocks = [_render_matrix(item, has_columns) if isinstance(item, Matrix) else [Text(item, "bold")] for item in items]
    while blocks:
        used = count = 0
        while count < len(blocks) and (count == 0 or used + blocks[count][0].cell_len + 2 <= width - 3):
            used += blocks[count][0].cell_len + 2
            count += 1
        lines += ([Text("")] if lines else []) + _join_blocks(blocks[:count])
        blocks = blocks[count:]
    return lines


def _join_blocks(blocks: Sequence[Sequence[Text]]) -> list[Text]:
    from rich.text import Text

    height = max(len(block) for block in blocks)
    lines = [Text("   ") for _ in range(height)]
    for block in blocks:
        width = max(line.cell_len for line in block)
        offset = (height + 1) // 2 if len(block) == 1 else 0  # centre an operator vertically
        for i, line in enumerate(lines):
            cell = block[i - offset].copy() if 0 <= i - offset < len(block) else Text("")
            cell.pad_right(width - cell.cell_len + 2)
            line.append_text(cell)
    for line in lines:
        line.rstrip()
    return lines


def _render_matrix(matrix: Matrix, has_columns: bool) -> list[Text]:
    """A matrix as lines of equal width: its name, a line of column labels if `headed`, its bracketed rows."""
    from rich.style import Style
    from rich.text import Text

    cells, pixels = matrix.format_cells(), matrix.pixels()
    labelled = [*cells, matrix.columns] if matrix.columns else cells
    widths = [max(len(text) for text in column) for column in zip(*labelled, strict=True)]
    margin = max((len(label) for label in matrix.rows), default=-1) + 1
    lines = []
    if has_columns:
        heads = " ".join(label.rjust(widths[j]) for j, label in enumerate(matrix.columns))
        lines.append(Text(" " * (margin + 2) + heads + "  ", "dim"))
    for i, row in enumerate(cells):
        label = matrix.rows[i] if matrix.rows else ""
        line = Text(label.rjust(margin - 1) + " " if margin else "", "dim")
        line.append(_bracket(i, len(cells), left=True) + ("" if matrix.dense else " "), "dim")
        for j, cell in enumerate(row):
            content = _shade_cell(matrix, i, j) if matrix.dense else cell.rjust(widths[j])
            style = Style()
            if pixels is not None:
                style = Style(color=colour.pick_text_colour(pixels[i, j]), bgcolor=colour.to_hex(pixels[i, j]))
            line.append(content, style)
            line.append("" if matrix.dense else " ")
        lines.append(line.append(_bracket(i, len(cells), left=False), "dim"))
    span = max([line.cell_len for line in lines] + [len(matrix.name)])
    for line in lines:
        line.pad_right(span - line.cell_len)
    return [Text(matrix.name.center(span), "bold"), *lines]


def _shade_cell(matrix: Matrix, i: int, j: int) -> str:
    low, span = (-1.0, 2.0) if matrix.colours == "signed" else (0.0, 1.0)
    where = (float(matrix.array[i, j]) - low) / span
    return SHADES[round(min(max(where, 0.0), 1.0) * (len(SHADES) - 1))]


def _bracket(row: int, rows: int, left: bool) -> str:
    if rows == 1:
        return "[" if left else "]"
    place = 0 if row == 0 else 2 if row == rows - 1 else 1
    return ("⎡⎢⎣" if left else "⎤⎥⎦")[place]
