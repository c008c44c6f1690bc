"""Scores over source length, on outputs whose scores are known."""

import json
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.evaluate.bleu import bleu
from headwise.evaluate.error_rates import sequence_error_rate
from headwise.evaluate.score import Score
from headwise.inspect.by_length import plot_by_length, score_by_length
from headwise.tasks.base import Evaluation


def evaluation(lengths: list[int], limit: int, score: str = "SER") -> Evaluation:
    """Sources of these many words; outputs are right up to `limit` words."""
    sources = [" ".join(f"w{j}" for j in range(length)) for length in lengths]
    outputs = [source if length <= limit else "x" for source, length in zip(sources, lengths, strict=True)]
    return Evaluation(sources, outputs, [[source] for source in sources], [Score(score, 0, 0, 0)])


LENGTHS = [1, 2, 5, 9, 10, 11, 15, 19, 20, 40]


def test_every_source_falls_into_its_bin() -> None:
    rows = score_by_length(evaluation(LENGTHS, 10), bins=(1, 10, 20, 30))
    assert [(row.low, row.high, row.count) for row in rows] == [(1, 9, 4), (10, 19, 4), (20, 29, 1), (30, 40, 1)]
    assert [row.score.value for row in rows] == [0, 75, 100, 100]
    assert rows[1].mean == pytest.approx(13.75)
    assert rows[1].score.low <= 75 <= rows[1].score.high and rows[1].score.name == "SER"
    assert json.loads(json.dumps(rows[1].to_json()))["score"]["value"] == 75


def test_sources_below_the_first_bin_and_empty_bins_are_left_out() -> None:
    rows = score_by_length(evaluation(LENGTHS, 10), bins=(10, 21, 30, 50))
    assert [(row.low, row.high, row.count) for row in rows] == [(10, 20, 5), (30, 49, 1)]


def test_a_number_of_bins_gives_bins_of_similar_size() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 600).tolist()
    rows = score_by_length(evaluation(lengths, 30), bins=5)
    assert sum(row.count for row in rows) == 600 and (rows[0].low, rows[-1].high) == (min(lengths), max(lengths))
    assert all(100 <= row.count <= 140 for row in rows)
    assert [row.score.value for row in rows] == sorted(row.score.value for row in rows)
    assert len(score_by_length(evaluation([7] * 10, 5), bins=5)) == 1  # equal lengths cannot be parted


def test_bleu_is_computed_on_each_bin_as_a_corpus() -> None:
    lengths = [6, 7, 8, 20, 21, 22]
    evaluated = evaluation(lengths, 8, "BLEU")
    outputs = [*evaluated.outputs[:3], *(source.rsplit(" ", 10)[0] for source in evaluated.sources[3:])]
    evaluated = Evaluation(evaluated.sources, outputs, evaluated.references, evaluated.scores)
    short, long = score_by_length(evaluated, bins=(1, 10))
    assert short.score.value == pytest.approx(100)
    assert long.score.value == pytest.approx(bleu(outputs[3:], evaluated.references[3:]).value)
    assert long.score.value == pytest.approx(100 * np.exp(1 - 63 / 33))  # all precise, too short


def test_single_words_are_measured_in_characters() -> None:
    evaluated = Evaluation(["ab", "abcdef"], ["AB", "x"], [["AB"], ["A B C"]], [Score("SER", 50, 0, 100)])
    assert [(row.low, row.score.value) for row in score_by_length(evaluated, bins=(1, 4))] == [(1, 0), (4, 100)]


def test_a_custom_score_replaces_the_first() -> None:
    evaluated = evaluation([3, 30], 10, "accuracy")
    with pytest.raises(
        UserError, match="score 'accuracy' cannot be computed by length; known: BLEU, CER, PER, SER, WER"
    ):
        score_by_length(evaluated)
    rows = score_by_length(
        evaluated, (1, 10), lambda outputs, references: sequence_error_rate(outputs, references, resamples=10)
    )
    assert [row.score.value for row in rows] == [0, 100]


def test_several_runs_are_plotted_in_one_figure(tmp_path: Path) -> None:
    runs = {name: score_by_length(evaluation(LENGTHS, limit)) for name, limit in (("cho", 5), ("<b> $x", 20))}
    svg = plot_by_length(runs, tmp_path / "new" / "x.svg").read_text()
    assert "length of the source" in svg and "SER (%)" in svg and "cho" in svg and "&lt;b&gt;" in svg
    assert plot_by_length(runs, tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_invalid_plots_and_bins_are_refused(tmp_path: Path) -> None:
    rows = score_by_length(evaluation(LENGTHS, 5))
    other = score_by_length(evaluation(LENGTHS, 5, "BLEU"))
    with pytest.raises(UserError, match="one score, not BLEU and SER"):
        plot_by_length({"a": rows, "b": other}, tmp_path / "x.svg")
    with pytest.raises(UserError, match=r"ends in '.gif'"):
        plot_by_length({"a": rows}, tmp_path / "x.gif")
    with pytest.raises(UserError, match="lengths must grow, as in 1, 10, 20, not 5, 1"):
        score_by_length(evaluation(LENGTHS, 5), (5, 1))
    with pytest.raises(UserError, match="at least one, not 0"):
        score_by_length(evaluation(LENGTHS, 5), 0)
    with pytest.raises(UserError, match="test set is empty"):
        score_by_length(evaluation([], 5))
