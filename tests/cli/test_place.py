"""`headwise place`: a placement file and a timeline; and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from headwise.cli.main import main
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.placement.cluster import Cluster
from headwise.placement.graph import Node, OperatorGraph, read_graph
from headwise.placement.random_graphs import generate_graph
from headwise.placement.simulator import Simulator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    generate_graph(12, 0).save(Path("graph.json"))
    cycle = [{"id": "a", "inputs": ["b"]}, {"id": "b", "inputs": ["a"]}]
    Path("cycle.json").write_text(json.dumps({"format": "headwise-operator-graph", "version": 1, "nodes": cycle}))
    OperatorGraph.from_nodes("wide", [Node("big", "mm", 1, 10**10)]).save(Path("wide.json"))
    return tmp_path


def test_a_placement_and_its_timeline(folder, capsys):
    main(["place", "graph.json", "--devices", "3", "--out", "mine.json", "--method", "annealing", "--calls", "64"])
    out, err = capsys.readouterr()
    assert out.split() == ["mine.json", "mine.svg"] and "x one device" in err
    placed = json.loads(Path("mine.json").read_text())
    graph = read_graph(Path("graph.json"))
    assert list(placed["placement"]) == [node.id for node in graph.nodes] and placed["fits"]
    simulator = Simulator(graph, Cluster(devices=3))
    seconds = simulator.measure(np.array([list(placed["placement"].values())]))[0]
    assert placed["seconds"] == seconds
    ET.fromstring(Path("mine.svg").read_text())


def test_a_graph_of_headwise_as_json(folder, capsys):
    main(["place", "rnnlm-2", "--json", "--plot", "step.png", "--links", "50GB/s,5us"])
    described = json.loads(capsys.readouterr().out)
    assert described["cluster"]["devices"] == 2 and described["cluster"]["bandwidth"] == 5e10
    assert Path("step.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.filterwarnings("ignore")  # of torch about its own export
def test_a_model_of_the_catalogue(folder, capsys):
    main(["place", "lstm-tiny", "--rows", "4", "--length", "3", "--graph", "traced.json", "--devices", "2"])
    assert "tracing lstm-tiny" in capsys.readouterr().err
    assert len(read_graph(Path("traced.json"))) == len(json.loads(Path("placement.json").read_text())["placement"])


@pytest.mark.parametrize("method", ["go", "hdp"])
def test_learned_methods(folder, capsys, method):
    main(["place", "graph.json", "--devices", "2", "--method", method, "--calls", "64", "--json"])
    described = json.loads(capsys.readouterr().out)
    assert described["method"] == method and described["seconds"] <= described["seconds_on_one_device"]


def test_a_run_places_an_unseen_graph(folder, capsys):
    table = {
        "task": {"kind": "place", "rollouts": 4, "updates": 1},
        "data": {"random": 1, "nodes": 6, "cluster": {"devices": 2}},
        "model": {"kind": "go-tiny"},
        "train": {"steps": 2},
    }
    run, _ = train_experiment(parse_experiment(table | {"model": {"kind": "go", "width": 16}}), "runs")
    main(["place", "graph.json", "--devices", "2", "--method", str(run.path), "--json"])
    assert json.loads(capsys.readouterr().out)["fits"]
    with pytest.raises(SystemExit, match="2"):
        main(["place", "graph.json", "--devices", "9", "--method", str(run.path)])
    assert "its policy knows 8 devices" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["cycle.json"], "has a cycle, a -> b -> a"),
        (["wide.json"], "operator 'big' needs 10 GB, more than the 8 GB of a device"),
        (["graph.json", "--method", "heff"], "--method heff: there is no such method, nor a run; did you mean heft"),
        (["graph.json", "--devices", "0"], "--devices: there must be at least one, not 0"),
        (["graph.json", "--devices", "5000"], "--devices: there can be 1,024 at most"),
        (["graph.json", "--memory", "16XB"], "--memory: '16XB' is no size of memory; write it as 16GB"),
        (["graph.json", "--links", "fast"], "--links: 'fast' is no speed of links"),
        (["graph.json", "--method", "one-device", "--memory", "500MB"], "device 0 would need"),
        (["graph.json", "--method", "brute-force", "--devices", "9"], "too many to try all"),
        (["graph.json", "--out", "mine.txt"], "mine.txt: the file ends in '.txt'"),
        (["graph.json", "--plot", "mine.pdf"], "mine.pdf: the file ends in '.pdf'"),
        (["none.json"], "none.json: cannot be read"),
        (["rnnlm-3"], "rnnlm-3: is neither a model, nor a graph, nor a .json file; did you mean"),
        (["ngram-trigram"], "has no parameters"),
        (["graph.json", "--calls", "0"], "--calls: there must be at least one"),
    ],
)
def test_mistakes_are_one_sentence(folder, capsys, options, sentence):
    memory = [] if "--memory" in options else ["--memory", "8GB"]
    with pytest.raises(SystemExit) as end:
        main(["place", *options, *memory])
    message = capsys.readouterr().err.strip().splitlines()
    assert end.value.code == 2
    assert sentence in message[-1] and message[-1].startswith("headwise: ")
    assert not Path("placement.json").exists()
