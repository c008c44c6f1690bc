"""`headwise bench attention` and `headwise bench length`: single layers over sequence length."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import Json, say
from headwise.utils.console import make_console

if TYPE_CHECKING:
    from headwise.bench.length import Timing

Lengths = Annotated[list[int] | None, Parameter(negative="", consume_multiple=True)]
Repeats = Annotated[int, Parameter(help="Number of timings; medians are shown.")]
CLOCKS: tuple[Literal["seconds", "cpu"], ...] = ("seconds", "cpu")


def attention(
    *,
    lengths: Lengths = None,
    mixers: Annotated[
        list[str] | None,
        Parameter(negative="", consume_multiple=True, help="Kinds, or tables such as '{kind=\"lsh\", rounds=2}'."),
    ] = None,
    heads: int = 8,
    head_width: int = 64,
    causal: Annotated[bool, Parameter(negative="", help="Causal, if the mixer can be.")] = False,
    tokens: int = 0,
    spread: float = 1.0,
    threads: int = 1,
    repeats: Repeats = 3,
    seconds: float = 60.0,
    memory: float = 8.0,
    cpu: Annotated[bool, Parameter(negative="", help="Measure CPU time, for a busy machine.")] = False,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Compare mixers with exact attention over sequence length: time, memory and approximation error.

    A layer has projections, mixing and output projection. Errors are relative, on random queries, keys and values.
    Exponents are fitted to the minimum times of the longer half of the lengths. Packages from PyPI are measured with
    the same settings, if installed.

    For example:

        headwise bench attention --out costs.svg
        headwise bench attention --mixers performer linformer --lengths 1024 4096 --json
        headwise bench attention --mixers plain --lengths 8 16 32 64 128 256 --tokens 1024 --causal

    Parameters
    ----------
    lengths
        In tokens; 512, 1,024 ... 16,384 if none is given.
    heads
        Number of heads.
    head_width
        Width of each head.
    tokens
        Tokens per batch: shorter texts are in larger batches; 0: one text.
    spread
        The standard deviation of queries, keys and values.
    threads
        Threads of each mixer.
    seconds
        Leave out measurements that would take longer.
    memory
        Leave out measurements that would need more gigabytes.
    out
        Also write a picture: a name that ends in .svg or .png.
    """
    from headwise.bench.attention import BASE, LENGTHS, Limits, build_jobs, measure
    from headwise.bench.attention_report import build_tables, draw_report, to_json
    from headwise.inspect.files import check_ending, save

    if out is not None:
        check_ending(out, ".svg", ".png")
    shape = {"heads": heads, "head_width": head_width, "causal": causal, "tokens": tokens, "spread": spread}
    setting: dict[str, Any] = {**shape, "threads": threads}
    lengths = sorted(set(lengths or LENGTHS))
    limits = Limits(seconds, memory * 1e9, "cpu" if cpu else "seconds")
    rows = measure(build_jobs(mixers or (), **setting), lengths, repeats, limits, say)
    kind = f"{', causal' if causal else ''}{', processor time' if cpu else ''}"
    note = f"{heads} heads of {head_width}{kind}, threads {threads}, medians of {repeats}"
    if out is not None:
        say(f"wrote {save(draw_report(rows, note), out)}")
    if json:
        setting |= {"clock": limits.clock, "lengths": lengths, "repeats": repeats}
        print(json_format.dumps({**setting, "results": to_json(rows)}, indent=1))
        return
    for title, columns, cells in build_tables(rows, lengths):
        print_table(f"{title}; {note}", columns, cells)
    print(f"ahead from: the length from which it is faster than {BASE}, torch's fused exact attention")
    for row in rows:
        if row.missing:
            print(f"{row.name}: {row.missing}")


def length(
    *,
    width: int = 256,
    rows: int = 1,
    lengths: Lengths = None,
    threads: int = 1,
    repeats: Repeats = 5,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Compare recurrent layers with attention over sequence length: sequential matrix products, and wall time.

    For example:

        headwise bench length --out length.svg
        headwise bench length --width 512 --lengths 32 128 512 --json

    Parameters
    ----------
    width
        Width of every layer.
    rows
        Batch size, in sequences.
    lengths
        In tokens; 16, 32, 64 ... 1024 if none is given.
    threads
        Threads for torch.
    out
        Also write a picture: a name that ends in .svg or .png.
    """
    import torch

    from headwise.bench.length import LENGTHS, build_chart, measure
    from headwise.explain.chart import draw_chart
    from headwise.inspect.files import check_ending, save

    if out is not None:
        check_ending(out, ".svg", ".png")
    torch.set_num_threads(threads)
    timings = measure(lengths or LENGTHS, width, rows, repeats)
    note = f"one layer forward and backward, width {width}, rows {rows}, threads {threads}, medians of {repeats}"
    if out is not None:
        say(f"wrote {save(draw_chart(build_chart(timings, 'Time over length'), note), out)}")
    if json:
        every = [timing.to_json(row["attention"]) for row in timings for timing in row.values()]
        print(json_format.dumps({"width": width, "rows": rows, "threads": threads, "results": every}, indent=1))
        return
    columns = ("length", "rnn ms", "lstm ms", "att ms", "rnn/att", "CPU", "lstm/att", "CPU", "steps", "att")
    print_table(note, columns, [_format_row(row) for row in timings])
    print("steps: sequential matrix products, of a recurrent layer and of attention (att)")


def _format_row(row: Mapping[str, Timing]) -> list[str]:
    """A row of the table: times of all layers at one length, ratios, and sequential steps."""
    attention = row["attention"]
    # time relative to attention, the inverse of attention's speedup
    ratios = [attention.ratio(row[name], clock) for name in ("rnn", "lstm") for clock in CLOCKS]
    times = [f"{timing.milliseconds:.2f}" for timing in row.values()]
    return [str(attention.length), *times, *map("{:.2f}".format, ratios), str(row["lstm"].chain), str(attention.chain)]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table with a left-aligned first column."""
    from rich.table import Table

    shown = Table(box=None, header_style="bold")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    print(title)  # not as the table's title, which is cut to its width
    make_console(width=None if sys.stdout.isatty() else 120).print(shown)  # a file has room for all columns
