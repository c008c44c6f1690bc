import pytest

from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, save
from headwise.runs.plot import plot_runs


@pytest.fixture
def runs(tmp_path):
    runs = [Run.create(tmp_path / name, {}) for name in ("first", "second <b>")]
    for run in runs:
        for step in (10, 20):
            run.metrics.append({"step": step, "minutes": step / 60, "epoch": 0, "loss": 30 / step})
            run.metrics.append({"step": step, "minutes": step / 60, "epoch": 0, "valid": {"ser": 1 / step}})
        run.metrics.append({"step": 30, "minutes": 0.5, "epoch": 0, "loss": None})
        save(run, Checkpoint({"step": 20, "best": {"name": "ser", "value": 0.05, "step": 20}}, {}))
    return runs


@pytest.mark.parametrize("over", ["step", "minutes"])
def test_curves_of_several_runs_name_each_run(runs, tmp_path, over):
    svg = plot_runs(runs, tmp_path / "pictures" / "curves.svg", over).read_text()
    assert "first: ser" in svg
    assert "second &lt;b&gt;" in svg
    assert over in svg
    assert plot_runs(runs, tmp_path / "curves.png", over).read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused(runs, tmp_path):
    with pytest.raises(UserError, match=r"\.png or \.svg"):
        plot_runs(runs, tmp_path / "curves.gif")
    with pytest.raises(UserError, match="step, minutes, epoch, not over 'tokens'"):
        plot_runs(runs, tmp_path / "curves.png", over="tokens")
