from rich.console import Console

from headwise.train import progress
from headwise.train.progress import Bar, Lines

ROW = {"step": 7, "loss": 2.25, "rate": 1e-3, "tokens_per_second": 5000.0}


def test_without_a_terminal_progress_is_a_line_now_and_then(capsys):
    assert isinstance(progress.make_progress(), Lines)
    with Lines(seconds=0.0) as lines:
        lines.log(ROW)
        lines.show(0.25, 7, 1)
        lines.log({"step": 7, "valid": {"ser": 0.5}})
    with Lines(seconds=60.0) as patient:
        patient.show(0.25, 7, 1)
        patient.seconds = 0.0
        patient.show(0.75, 9, 1)
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.splitlines() == [
        " 25%  step 7  epoch 1  loss 2.250  rate 1.0e-03  5,000 tokens/s  ? left",
        "step 7  valid ser 0.5",
        " 75%  step 9  epoch 1    0:00 left",
    ]


def test_the_bar_shows_step_loss_rate_and_time_left():
    bar = Bar()
    bar.bar.live.console = console = Console(force_terminal=True, width=150, record=True)
    with bar:
        bar.show(0.0, 0, 0)
        bar.log(ROW)
        bar.log({"step": 7, "valid": {"[red]ser": 0.5}})
        bar.show(0.5, 7, 1)
    text = console.export_text()
    for part in ("step 7  epoch 1", "50%", "loss 2.250", "5,000 tokens/s", "0:00 left", "valid [red]ser 0.5"):
        assert part in text
