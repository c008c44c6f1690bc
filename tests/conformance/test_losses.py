"""The losses of tasks: they reach every parameter of every model of the catalogue, settings reach them, and they read
no values of the device.

Fused projections are looked at role by role: values that learn would hide queries and keys that do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from meta_device import stay_on_meta
from torch import Tensor, nn

from headwise.blocks.attention.multihead import CrossProjection, SelfProjection
from headwise.catalog import CATALOG
from headwise.experiment.config import Experiment, parse_experiment
from headwise.models.init_weights import list_projection_sizes
from headwise.tasks import caption, classify_images, detect
from headwise.tasks.base import Task
from headwise.tasks.detection_loss import matched_loss
from headwise.tasks.replay_source import ReplayBatch
from headwise.tasks.tables import TASKS, task_config
from headwise.testing import perturb_parameters
from headwise.text.config import WordsConfig
from headwise.text.tokenisers import Tokenisers
from headwise.vision.images import Images
from headwise.vision.pixels import Pixels
from headwise.vision.scenes import draw_scenes
from headwise.worlds.environments import Environment
from headwise.worlds.episodes import Episodes
from headwise.worlds.rollout import RandomPolicy, collect
from headwise.worlds.spaces import EpisodeEncoder, Spaces

LEARNING = [
    (name, task)
    for name, entry in CATALOG.items()
    for task in entry.config.tasks
    # These learn nothing, or without the gradient of a loss; AlphaFold 2 is in test_folding.py, with all its heads;
    # what plays while it learns is in tests/tasks/test_q_learning.py, test_soft_actor_critic.py and test_place.py.
    if task not in ("encode", "embed", "fold")
    and task_config(task).reads not in ("environment", "graphs")
    and entry.family != "counts"
]
UNREACHED = {  # "model task parameter" -> why the loss does not reach it
    "detr detect decoder.layers.0.parts.0.qkv.project.weight (values)":
        "the decoder begins with zeros, as published, so the values of its first self-attention are their biases",
    **{
        f"funnel classify encoder.stack.layers.1.layers.1.parts.0.score_mods.0.{name}":
            "a classifier reads the first token, which has neither a position nor a token type, so those of the last "
            "layer change nothing"
        for name in ("distance", "kernel", "type_bias", "types")
    },
    **{
        f"decision-transformer act predict_{name}":
            "the paper trains the actions alone; task.state_weight and task.return_weight train these heads"
        for name in ("observation.weight", "observation.bias", "return.weight", "return.bias")
    },
}  # fmt: skip
WORDS = ("the", "old", "dog", "sees", "a", "cat", "and", "it", "runs", "home")
Corpus = tuple[Tokenisers, Any]


def write_texts(folder: Path) -> None:
    """A file for each task that reads words."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=9)) for _ in range(60)]
    tables = {
        "transduce": [f"{text}\t{text[::-1]}" for text in texts],
        "tag": [f"{text}\t{' '.join('N' if len(word) > 3 else 'O' for word in text.split())}" for text in texts],
        "classify": [f"{text}\t{'one' if 'dog' in text else 'two'}" for text in texts],
        "answer": ["question\ttext\tanswer", *(f"what is it\t{text}\t{text.split()[2]}" for text in texts)],
        "masked": [line for text in texts for line in (text, text, "")],
        "regress": [f"{text}\t{number % 7}" for number, text in enumerate(texts)],
    }
    for task in ("language-model", "denoise", "replaced-tokens"):
        tables[task] = texts
    for name, lines in tables.items():
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


MORE = {"answer": {"columns": ["question", "text", "answer"]}, "masked": {"format": "lines"}}
for _task in ("language-model", "denoise", "replaced-tokens"):
    MORE[_task] = MORE["masked"]
CHAINS = {"distogram": {"families": 8, "members": 1, "min_length": 20, "max_length": 24, "rows": 4}}
STATES = {"observe": "state"}
OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "classify-images": classify_images.collect_labels,
    "detect": detect.collect_classes,
    "caption": lambda captions: caption.train_caption_tokeniser(captions, WordsConfig()),
}


def make_images(task: str) -> Corpus:
    drawn = draw_scenes("scene-captions" if task == "caption" else "scenes", 16, 16, seed=1)
    if task == "classify-images":
        drawn = Images(drawn.pixels, ["odd" if number % 2 else "even" for number in range(16)], drawn.names)
    return Tokenisers(Pixels.from_images(drawn.pixels), OUTPUTS[task](drawn.targets)), drawn


def make_episodes() -> Corpus:
    """Episodes of a world with discrete actions."""
    played = [episode for episode, _ in collect(Environment.of("grid", STATES), {"random": (RandomPolicy(), 4)}, 0)]
    episodes = Episodes.join(played)
    encoder = EpisodeEncoder.from_episodes("grid", STATES, Spaces((217,), 4, True), episodes)
    return Tokenisers(encoder, encoder), episodes


@pytest.fixture(scope="module")
def corpus_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Experiment], Corpus]:
    """The data of each task, once for all models."""
    folder, known = tmp_path_factory.mktemp("texts"), dict[str, Corpus]()
    write_texts(folder)

    def corpus(task: str, experiment: Experiment) -> Corpus:
        if task not in known:
            if task in OUTPUTS:
                known[task] = make_images(task)
            elif task == "act":
                known[task] = make_episodes()
            else:
                file, cache = str(folder / f"{task}.tsv"), str(folder / "cache")
                files = {} if task in CHAINS else {"train": file, "valid": file}
                data = experiment.data.replace(**files, cache=cache)
                prepared = TASKS[task].task_class.prepare(data, experiment.tokeniser)
                known[task] = prepared.tokenisers, prepared.train
        return known[task]

    return corpus


def find_unreached(model: nn.Module) -> list[str]:
    """Names of parameters, or of the roles of a fused projection, without any gradient."""

    def is_zero(gradient: Tensor | None) -> bool:
        return gradient is None or not gradient.any()

    found = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and is_zero(parameter.grad)
    ]
    for name, qkv in model.named_modules():
        if isinstance(qkv, SelfProjection | CrossProjection):
            weight = next(parameter for parameter in qkv.project.parameters() if parameter.dim() == 2)
            if weight.grad is not None:
                blocks = zip(qkv.roles, weight.grad.split(list_projection_sizes(qkv)), strict=True)
                found += [f"{name}.project.weight ({role})" for role, block in blocks if is_zero(block)]
    return found


Lesson = tuple[Task, Any, list[Any]]  # a task, its model and two batches


def prepare_loss(
    name: str, task: str, corpus_of: Callable[[str, Experiment], Corpus], label_smoothing: float = 0.1
) -> Lesson:
    reads = {"name": "scenes"} if task in OUTPUTS else CHAINS.get(task) or {"train": "x", **MORE.get(task, {})}
    train = {"steps": 1, "batch_size": 8, "label_smoothing": label_smoothing}
    tables = {"task": task, "data": reads, "model": f"{name}-tiny", "train": train}
    experiment = parse_experiment(tables if task in OUTPUTS else {**tables, "tokeniser": "words"})
    tokenisers, examples = corpus_of(task, experiment)
    learnt = experiment.create_task(tokenisers)
    torch.manual_seed(0)
    model = perturb_parameters(learnt.build(experiment.model)).float()
    data = learnt.build_batches(examples, 0, experiment.train)
    return learnt, model, [data.batch(numbers) for numbers in data.plan(0)[:2]]


@pytest.mark.parametrize(("name", "task"), LEARNING)
def test_the_loss_reaches_every_parameter(name: str, task: str, corpus_of: Callable[[str, Experiment], Corpus]) -> None:
    learnt, model, batches = prepare_loss(name, task, corpus_of)
    for batch in batches:
        learnt.loss(model.train(), batch, learnt.init_state(model)).total.backward()
    expected = {where for where in UNREACHED if where.startswith(f"{name} {task} ")}
    assert {f"{name} {task} {where}" for where in find_unreached(model)} == expected


SMOOTHED = [
    ("transformer", "transduce"), ("gpt2", "language-model"), ("bert", "masked"), ("bert", "tag"), ("bert", "classify"),
    ("bert", "answer"), ("vit", "classify-images"), ("deit", "classify-images"), ("captioner", "caption"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "task"), SMOOTHED)
def test_labels_are_smoothed_in_the_loss_and_not_in_the_likelihood(
    name: str, task: str, corpus_of: Callable[[str, Experiment], Corpus]
) -> None:
    """(1 - e) H(y, p) + e H(u, p) is linear in e (Szegedy et al. 2016)."""
    found = []
    for label_smoothing in (0.0, 0.1, 0.3):
        learnt, model, batches = prepare_loss(name, task, corpus_of, label_smoothing)
        found.append(learnt.loss(model.eval(), batches[0], learnt.init_state(model)))
    plain, some, more = (float(loss.total.detach()) for loss in found)
    assert some != pytest.approx(plain, rel=1e-4)
    assert more - plain == pytest.approx(3 * (some - plain), rel=1e-3)
    assert [float(loss.nll) for loss in found] == pytest.approx([float(found[0].nll)] * 3, rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", ["vit", "deit", "levit"])
def test_the_loss_of_an_image_is_the_mean_of_its_heads(
    name: str, corpus_of: Callable[[str, Experiment], Corpus]
) -> None:
    """torch's cross-entropy with its own label_smoothing, of each head; the likelihood is that of all heads
    together."""
    learnt, model, batches = prepare_loss(name, "classify-images", corpus_of, label_smoothing=0.2)
    pixels, labels = learnt.pixels.normalise_images(batches[0].images), batches[0].targets
    loss, heads = learnt.loss(model.eval(), batches[0], learnt.init_state(model)), model.head_logits(pixels)
    assert len(heads) == (1 if name == "vit" else 2)
    each = [F.cross_entropy(logits, labels, label_smoothing=0.2, reduction="sum") for logits in heads]
    torch.testing.assert_close(loss.total, sum(each) / len(each))
    torch.testing.assert_close(loss.nll, F.cross_entropy(model(pixels), labels, reduction="sum"))
    assert loss.count == len(labels)


def run_on_meta(learnt: Task, model: nn.Module, batch: Any) -> None:
    model, batch = model.train().to("meta"), batch.to("meta")
    with stay_on_meta():
        learnt.loss(model, batch, learnt.init_state(model)).total.backward()


@pytest.mark.parametrize(
    ("name", "task"), [*LEARNING, ("bert", "replaced-tokens"), ("bert", "regress"), ("bart", "denoise")]
)
def test_a_step_reads_no_values(name: str, task: str, corpus_of: Callable[[str, Experiment], Corpus]) -> None:
    """Loss and gradient run on the meta device, unless the task declares what it computes on the host."""
    learnt, model, (batch, *_) = prepare_loss(name, task, corpus_of)
    if not learnt.host_work:
        run_on_meta(learnt, model, batch)
        return
    with pytest.raises((NotImplementedError, AssertionError)):
        run_on_meta(learnt, model, batch)


def test_matching_alone_needs_the_host_in_detection(corpus_of: Callable[[str, Experiment], Corpus]) -> None:
    learnt, model, (batch, _) = prepare_loss("detr", "detect", corpus_of)
    batch, model = batch.to("meta"), model.to("meta")
    matches = torch.zeros(4, 7, dtype=torch.long, device="meta")
    with stay_on_meta():
        layers = model.layers(learnt.pixels.normalise_images(batch.images))
        logits, boxes = (torch.stack([getattr(layer, key) for layer in layers]) for key in ("logits", "boxes"))
        matched_loss(logits, boxes, batch.targets, matches).total.backward()


ACTING = [
    (name, task)
    for name, entry in CATALOG.items()
    for task in entry.config.tasks
    if task in ("q-learning", "soft-actor-critic")
]


@pytest.mark.parametrize(("name", "task"), ACTING)
def test_a_step_of_a_learner_that_acts_reads_no_values(name: str, task: str) -> None:
    discrete, rows = task == "q-learning", 3
    spaces = Spaces((36, 36, 3), 4, True) if discrete else Spaces((36, 36, 3), 2, False, (-1.0,) * 2, (1.0,) * 2)
    encoder = EpisodeEncoder.without_logs("none", {}, spaces)
    learnt = task_config(task)().build(Tokenisers(encoder, encoder))
    model = learnt.build(CATALOG[name].configure("tiny"))
    windows, window = model.contrast.windows, model.contrast.window
    frames = torch.zeros(windows + rows, window, 3, 36, 36, dtype=torch.uint8)
    numbers = torch.zeros(rows)
    actions = numbers.long() if discrete else torch.zeros(rows, 2)
    seen = frames[:rows, 0]
    keep = torch.ones(windows, window, dtype=torch.bool)
    run_on_meta(learnt, model, ReplayBatch(seen, actions, numbers, numbers, seen, frames[rows:], keep, rows))
