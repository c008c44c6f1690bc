import json

from headwise.runs.metrics import Metrics


def test_a_torn_line_is_passed_over_and_cleared(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert metrics.rows() == []
    for step in (1, 2, 3):
        metrics.append({"step": step, "loss": 1.0 / step})
    whole = metrics.path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1]) + 1):
        metrics.path.write_bytes(whole[:-cut])
        assert [row["step"] for row in metrics.rows()] == [1, 2]
    metrics.rewind(2)
    metrics.append({"step": 3})
    assert [row["step"] for row in metrics.rows()] == [1, 2, 3]


def test_rewinding_forgets_what_came_later(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    for step in range(6):
        metrics.append({"step": step})
    metrics.rewind(3)
    assert [row["step"] for row in metrics.rows()] == [0, 1, 2, 3]


def test_numbers_that_json_does_not_know_become_null(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.append({"step": 1, "valid": {"nll": float("nan")}, "loss": float("inf")})
    row = json.loads(metrics.path.read_text(), parse_constant=lambda name: 1 / 0)
    assert row == {"step": 1, "valid": {"nll": None}, "loss": None}
