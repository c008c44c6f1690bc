"""`train.tokens` ends a run after so many target tokens, also when it is resumed between two rows of metrics."""

from headwise.compare.config import ComparisonConfig
from headwise.experiment.run import resume, train_experiment


def test_a_token_budget_is_exact_and_survives_a_stop(config: ComparisonConfig, tmp_path):
    base = config.build_experiment(config.arm[1], seed=1)

    def budget(**changes):
        return base.replace(train=base.train.replace(**{"steps": 0, "tokens": 1000, "log_every": 1000} | changes))

    whole, result = train_experiment(budget(), tmp_path / "whole")
    tokens = whole.state["tokens"]
    assert result.reason == "tokens"
    one_less, _ = train_experiment(budget(tokens=0, steps=result.step - 1), tmp_path / "less")
    assert one_less.state["tokens"] < 1000 <= tokens

    stopped, _ = train_experiment(budget(steps=3), tmp_path / "stopped")
    file = stopped.path / "config.toml"
    file.write_text(file.read_text().replace("\nsteps = 3\n", "\nsteps = 0\n"))
    _, again = resume(stopped.path)
    assert (again.reason, again.step, stopped.state["tokens"]) == ("tokens", result.step, tokens)
