"""Every architecture of the catalogue is served by the verbs that its task declares."""

import base64
import socket
from io import BytesIO

import pytest
import torch
from PIL import Image

from headwise.catalog import CATALOG
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.serve.own_api import ROUTES
from headwise.serve.verbs import GENERATIVE, VERBS, list_verbs
from headwise.serve.worker import Worker
from headwise.tasks.tables import TASKS, task_config
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels, Words
from headwise.vision.pixels import Pixels
from headwise.web.channel import Channel

LETTERS, TEXT, SIDE = Characters("abcdefgh ?<>"), "abcd abc", 32
PAIRS = [(entry.name, task) for entry in CATALOG.values() for task in entry.configure("tiny").tasks]
# Their inputs are images to look at, and words: no verb of HTTP takes these, nor anything but texts and images.
UNSERVED = {"encode-images", "pixels", "embed"} | {
    task for _, task in PAIRS if task_config(task).reads not in ("texts", "images")
}
SEEING = {"classify-images", "detect", "caption"}


def encode_image() -> str:
    content = BytesIO()
    Image.new("RGB", (40, 20), (200, 30, 90)).save(content, "png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def make_trained(model: str, task: str) -> TrainedModel:
    torch.manual_seed(0)
    seeing = task in SEEING
    data = {"name": "digits" if task == "classify-images" else "scenes"} if seeing else {"train": "none.tsv"}
    given = {"task": task, "model": f"{model}-tiny", "data": data, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    labels = Labels(["x", "y"])
    source = (
        Pixels(SIDE, SIDE, 3, (0.4,) * 3, (0.3,) * 3)
        if seeing
        else Words(["abcd", "abc"])
        if task == "tag"
        else LETTERS
    )
    target = LETTERS if task not in ("classify", "tag", "classify-images", "detect") else labels
    tokenisers = Tokenisers(source, target)
    return TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)


def ask(trained: TrainedModel, operation: str, body: dict) -> list[dict]:
    """What a worker says to one request."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = Worker(Channel(theirs), trained, None, 8)
        worker.wanted.add(1)
        worker.start(1, worker.prepare(1, operation, body))
        messages: list[dict] = []
        while not messages or messages[-1]["type"] not in ("done", "error"):
            messages += worker.advance()
    return messages


def build_body(trained: TrainedModel, verb: str) -> dict:
    task = trained.experiment.task
    if verb in GENERATIVE or verb == "caption":
        given = {"image": encode_image()} if verb == "caption" else {"text": TEXT}
        settings = {"max_ratio": 0.0, "max_extra": 5, "max_length": 5}
        return {"inputs": [given], "settings": settings, "max_tokens": 5, "logprobs": True, "top_logprobs": 2,
                "echo": False, "echo_text": False, "stream": False}  # fmt: skip
    fields = {"text": "abc<MASK> abc".replace("<MASK>", "[MASK]"), "question": "ab?", "image": "", "target": "",
              "kind": "", "layer": None, "source": TEXT if task.writes == "target" else "", "ends": True}  # fmt: skip
    if task.reads == "images":
        fields |= {"image": encode_image(), "text": ""}
    return {"inputs": [fields], "parameters": {"count": 2, "pool": "mean", "normalised": False, "above": 0.0}}


@pytest.mark.parametrize(("name", "task"), [pair for pair in PAIRS if pair[1] not in UNSERVED])
def test_every_model_is_served_by_the_verbs_of_its_task(name: str, task: str) -> None:
    trained = make_trained(name, task)
    verbs = list_verbs(trained)
    assert {task_config(task).command, "attention"} & set(verbs)
    for verb in verbs:
        operation = "generate" if verb in GENERATIVE or verb == "caption" else verb
        last = ask(trained, operation, build_body(trained, verb))[-1]
        if last["type"] == "error":  # a model without attention, or without a count of anything, says so
            assert last["status"] == 400 and verb in ("attention", "embed"), (verb, last)


def test_tasks_without_verbs_are_refused_by_name() -> None:
    commands = {kind: task_config(kind).command for kind in TASKS.homes}
    routes = {route.path.removeprefix("/api/") for route in ROUTES}
    assert {kind for kind, command in commands.items() if command and command not in routes} <= UNSERVED
    assert set(VERBS) | set(GENERATIVE) | {"caption"} == routes
