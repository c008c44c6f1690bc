"""From curves to laws: which points count, and the frontier's exponent where it is known."""

import numpy as np
import pytest

from headwise.scaling.plot import plot_scaling
from headwise.scaling.render import build_rows
from headwise.scaling.run import build_relations
from headwise.scaling.values import Rung, Scaling

A, B = 0.4, 0.3
SIZES = np.geomspace(1e4, 1e6, 9)
TOKENS = np.geomspace(1e4, 1e9, 60)


def ladder(floor=0.0, noise=0.0, length=60):
    """Learning curves of nine sizes, whose loss is a sum of two power laws; two seeds."""
    random = np.random.default_rng(0)
    return [
        Rung(
            f"s{number}",
            int(size),
            TOKENS[:length],
            (floor + (1e3 / int(size)) ** A + (1e4 / TOKENS[:length]) ** B)
            * np.exp(noise * random.standard_normal((2, length))),
        )
        for number, size in enumerate(SIZES)
    ]


@pytest.mark.parametrize(("form", "floor"), [("power law", 0.0), ("with a floor", 0.5)])
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_the_frontier_has_the_exponent_that_calculus_gives(form, floor, noise):
    """The least of a N^-A + b D^-B under N D = C / 6 goes as C^-(A B / (A + B))."""
    rungs = ladder(floor, noise)
    result = build_relations(rungs)["C"]
    exponent, low, high = result.fits[form].exponent
    assert exponent == pytest.approx(A * B / (A + B), rel=0.03) and low <= exponent <= high
    assert result.fits[form].floor[0] == pytest.approx(floor, abs=0.02)
    assert len(result.x) == len(SIZES) and (np.diff(result.x) > 0).all()
    assert result.x[0] > 2 * rungs[0].compute[0], "where the smallest model is alone, there is no frontier"


def test_sizes_are_compared_on_the_most_data_and_data_on_the_largest_size():
    long, short = ladder(), ladder(length=30)
    result = build_relations([*short, *long])
    assert result["N"].x.tolist() == [rung.parameters for rung in long]
    assert result["N"].loss == pytest.approx([rung.losses.mean() for rung in long])
    assert result["D"].x.tolist() == [short[-1].data, long[-1].data] and not result["D"].fits


def test_a_run_that_ends_early_with_its_rate_come_down_is_on_the_frontier():
    """A cosine run that stops at a tenth of the tokens beats the middle of a longer one, by 5 % here."""
    long = ladder()
    short = [Rung(each.size, each.parameters, each.tokens[40:41], 0.95 * each.nll[:, 40:41]) for each in long]
    result = build_relations([*short, *long])["C"]
    assert set(result.x) & {float(each.compute[0]) for each in short}


def test_table_and_plot_show_intervals(tmp_path):
    result = Scaling("made up", (rungs := ladder(0.5, 0.005)), build_relations(rungs))
    table = build_rows(result)
    assert {len(row) for row in table} == {8} and all(row[4].count("[") == 1 for row in table[1:])
    assert plot_scaling(result, tmp_path / "laws.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_counts_by_its_best_validation():
    rung = Rung("s", 10, np.array([1.0, 2.0, 3.0]), np.array([[3.0, 1.0, 2.0], [3.0, 2.0, 1.5]]))
    assert rung.losses.tolist() == [1.0, 1.5]
