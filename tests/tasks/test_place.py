"""Placement as a task: the objective, runs that resume with the same bits, fine-tuning, heuristics."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.experiment.load import load
from headwise.experiment.run import resume, train_experiment
from headwise.models.placement_heuristic import PlacementHeuristicConfig
from headwise.models.placement_policy import FoundPlacements
from headwise.runs.run import Run
from headwise.tasks.place import clip_objective, compute_rewards


def make_experiment(**changes):
    base = {
        "name": "place",
        "task": {"kind": "place", "rollouts": 8, "updates": 2},
        "data": {"random": 2, "nodes": 8, "cluster": {"devices": 2}},
        "model": {"kind": "go", "width": 16, "heads": 2, "depth": 1},
        "train": {
            "steps": 12, "validate_every": 6, "samples": 0, "checkpoint_every": 3, "keep_checkpoints": 9,
            "schedule": {"kind": "constant", "lr": 0.003},
        },
    }  # fmt: skip
    return validate(Experiment, base | changes, "test")


def test_the_objective_is_that_of_ppo():
    torch.manual_seed(0)
    new, old, gain, clip = torch.randn(4, 5).double(), torch.randn(4, 5).double(), torch.randn(4).double(), 0.2
    terms = []
    for row in range(4):
        for choice in range(5):
            ratio = float(torch.exp(new[row, choice] - old[row, choice]))
            bounded = min(max(ratio, 1 - clip), 1 + clip)
            terms.append(min(ratio * float(gain[row]), bounded * float(gain[row])))
    assert float(clip_objective(new, old, gain, clip)) == pytest.approx(np.mean(terms), rel=1e-12)


def test_clipped_choices_have_no_gradient():
    new = torch.tensor([[1.0, 0.0, -1.0]] * 2, requires_grad=True)
    clip_objective(new, torch.zeros(2, 3), torch.tensor([1.0, -1.0]), 0.2).backward()
    assert (new.grad != 0).tolist() == [[False, True, True], [True, True, False]]


def test_rewards_are_negative_roots_of_runtimes():
    assert compute_rewards(np.array([0.25, 1.0, np.inf]), 1.0).tolist() == [-0.5, -1.0, -10.0]


def test_the_best_placement_is_kept():
    found = FoundPlacements([("a", 3)])
    assert not found.has("a")
    found.update("a", np.array([[0, 1, 2]]), np.array([np.inf]), 1)
    assert found.has("a") and found.get("placement", "a").tolist() == [0, 1, 2]
    found.update("a", np.array([[1, 1, 1], [2, 2, 2]]), np.array([5.0, 4.0]), 2)
    found.update("a", np.array([[0, 0, 0]]), np.array([4.5]), 1)
    found.update("a", np.array([[0, 0, 0]]), np.array([np.inf]), 1)
    assert found.get("placement", "a").tolist() == [2, 2, 2] and float(found.get("runtime", "a")) == 4.0
    assert int(found.get("calls", "a")) == 5


@pytest.mark.parametrize("kind", ["go", "hdp"])
def test_a_run_resumes_with_the_same_bits(tmp_path, kind):
    """Also from a checkpoint between two updates on one set of rollouts."""
    run, _ = train_experiment(make_experiment(model={"kind": kind, "width": 16}), tmp_path)
    whole = load(run.path, which="last")
    shutil.copytree(run.path, tmp_path / "half")
    half = Run.open(tmp_path / "half")
    for step in half.steps():
        if step > 3:
            shutil.rmtree(half.checkpoint_path(step))
    resume(half.path)
    again = load(half.path, which="last")
    assert int(whole.model.found.get("calls", whole.task.encoder.graphs[0][0])) == 3 * 8
    pairs = zip(whole.model.state_dict().items(), again.model.state_dict().items(), strict=True)
    assert all(name == other and torch.equal(one, two) for (name, one), (other, two) in pairs)


def test_evaluation_reports_what_was_found(tmp_path):
    run, _ = train_experiment(make_experiment(), tmp_path)
    loaded = load(run.path)
    evaluation = loaded.evaluate()
    scores = {score.name: score for score in evaluation.scores}
    assert evaluation.sources == ["random-8-0", "random-8-1"]
    times = [float(output) for output in evaluation.outputs]
    assert scores["runtime"].value == pytest.approx(1000 * np.exp(np.mean(np.log(times))), rel=1e-4)
    assert scores["out of memory"].value == 0 and scores["calls"].value == 3 * 8
    assert scores["of one device"].value < 1  # one of 24 placements is better than one device


def test_a_policy_is_tuned_to_an_unseen_graph(tmp_path):
    run, _ = train_experiment(make_experiment(), tmp_path)
    data = {"random": 1, "nodes": 12, "seed": 9, "cluster": {"devices": 3}}
    new = make_experiment(name="tuned", data=data, init_from=str(run.path))
    tuned, _ = train_experiment(new, tmp_path)
    loaded = load(tuned.path)
    assert loaded.evaluate().sources == ["random-12-9"]
    old, after = load(run.path).model, loaded.model
    assert old.head.weight.shape == after.head.weight.shape
    assert torch.dist(old.head.weight, after.head.weight) < 1  # it began there


def test_an_unseen_graph_gets_the_most_probable_placement(tmp_path):
    run, _ = train_experiment(make_experiment(), tmp_path)
    loaded = load(run.path)
    other = make_experiment(data={"random": 1, "nodes": 9, "cluster": {"devices": 2}}).data.load().train
    assert loaded.task.choose_placement(loaded.model, other[0]).shape == (9,)


def test_heuristics_are_runs_too(tmp_path):
    best = {}
    for method in ("one-device", "heft", "brute-force"):
        model = PlacementHeuristicConfig(method=method)
        run, result = train_experiment(make_experiment(name=method, model=model), tmp_path)
        scores = {score.name: score.value for score in load(run.path).evaluate().scores}
        best[method] = scores["runtime"]
        assert result.best["name"] == "reward"
    assert best["brute-force"] <= best["heft"] <= best["one-device"]
    assert scores["calls"] > 2**7 - 1


LARGE = {"random": 1, "nodes": 30, "cluster": {"devices": 4}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": {"name": "rnnlm-3"}}, "did you mean"),
        ({"data": {"random": 1, "cluster": {"devices": 9}}}, "model.devices: the model knows 8 devices"),
        ({"model": {"kind": "placement-heuristic", "method": "heff"}}, "did you mean heft"),
        ({"model": {"kind": "placement-heuristic", "method": "brute-force"}, "data": LARGE}, "too many to try"),
        ({"data": {"random": 1, "train": "graph.json"}}, "give graphs in one way"),
    ],
)
def test_mistakes_are_told(tmp_path, changes, sentence):
    with pytest.raises(UserError, match=sentence) as refusal:
        train_experiment(make_experiment(**changes), tmp_path)
    assert "\n" not in str(refusal.value)
