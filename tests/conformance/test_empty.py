"""Batches without rows and texts without tokens: outputs of the right shape, finite losses and gradients, of every part
and every model of the catalogue. A batch that a rank or a filter leaves empty must not end a training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_mixers import FEEDFORWARDS, MIXERS, ON_GRIDS, OTHERS
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import headwise
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, Part, Stream
from headwise.blocks.tables import PARTS
from headwise.catalog import CATALOG
from headwise.models.cost import HasBlankInputs
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.generative import GenerativeModel
from headwise.tasks.detection_loss import Objects, detection_loss
from headwise.testing import perturb_parameters

SHAPES = [(0, 5), (2, 0), (0, 0)]
MODELS = [
    (name, task)
    for name, entry in CATALOG.items()
    for task in entry.config.tasks
    # word vectors have no sequence, and a placement is of one graph
    if task not in ("embed", "place") and entry.family != "counts"
]
LABELLED = ("transduce", "language-model", "masked", "tag", "classify", "answer")


def build_tiny(name: str, task: str) -> nn.Module:
    torch.manual_seed(0)
    texts = not hasattr(CATALOG[name].configure("tiny"), "input_shape") and task in (*LABELLED, "encode")
    model = headwise.build(f"{name}-tiny", **({"vocab": 12} if texts else {}), task=task)
    return perturb_parameters(model).float()


def make_inputs(name: str, model: nn.Module, rows: int, length: int) -> tuple[Any, ...]:
    if isinstance(model, HasBlankInputs):
        return model.make_blank_inputs(rows, length, device="cpu")
    ids = torch.full((rows, length), 4)
    shape = getattr(CATALOG[name].configure("tiny"), "input_shape", None)
    source = ids if shape is None else torch.ones(rows, *shape)
    return (source, ids) if isinstance(model, EncoderDecoder) else (source,)


def list_tensors(outputs: Any) -> Iterator[Tensor]:
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(leaf, "__dataclass_fields__"):
            yield from list_tensors([getattr(leaf, name) for name in leaf.__dataclass_fields__])


def check_gradients(model: nn.Module, total: Tensor) -> None:
    model.zero_grad()
    if total.requires_grad:
        total.backward()
    assert total.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def make_labels(task: str, rows: int, length: int) -> Tensor:
    if task == "answer":
        return torch.full((rows, 2), -1)
    return torch.zeros(rows if task == "classify" else (rows, length), dtype=torch.long)


@pytest.mark.parametrize(("name", "task"), MODELS)
def test_models_read_nothing(name: str, task: str) -> None:
    """Shapes follow those of other batches, linearly: an output has a row for each row, and a column for each token and
    each special one."""
    model = build_tiny(name, task).train()
    with torch.no_grad():
        plain, longer, higher = (
            [x.shape for x in list_tensors(model(*make_inputs(name, model, *shape)))]
            for shape in ((2, 5), (2, 6), (3, 5))
        )
    of_texts = not getattr(CATALOG[name].configure("tiny"), "input_shape", None)
    for rows, length in SHAPES if of_texts else SHAPES[:1]:
        outputs = list(list_tensors(model(*make_inputs(name, model, rows, length))))
        for x, *shapes in zip(outputs, plain, longer, higher, strict=True):
            sizes = [
                max(size + (wide - size) * (length - 5) + (high - size) * (rows - 2), 0)
                for size, wide, high in zip(*shapes, strict=True)
            ]
            assert x.shape == torch.Size(sizes) and x.isfinite().all()
        check_gradients(model, sum((x.sum() for x in outputs), torch.zeros(())))
        if task in LABELLED:
            labels = make_labels(task, rows, length)
            check_gradients(model, model(*make_inputs(name, model, rows, length), labels=labels).total)


@pytest.mark.parametrize("name", [name for name, task in MODELS if task == "transduce"])
def test_an_empty_source_has_outputs(name: str) -> None:
    model = build_tiny(name, "transduce")
    source, target = torch.zeros(2, 0, dtype=torch.long), torch.full((2, 5), 4)
    loss = model(source, target, labels=target)
    assert loss.count == 10
    check_gradients(model, loss.total)


@pytest.mark.parametrize(
    ("name", "task"), [(name, task) for name, task in MODELS if task in ("transduce", "language-model", "caption")]
)
@torch.no_grad()
def test_a_decoding_step_of_no_rows(name: str, task: str) -> None:
    model = build_tiny(name, task).eval()
    assert isinstance(model, GenerativeModel)
    state = model.start(make_inputs(name, model, 0, 3)[0])
    logits, _ = model.step(torch.zeros(0, dtype=torch.long), state)
    assert logits.shape == (0, model.decoder.head.vocab)


PART_SETTINGS = {**MIXERS, **FEEDFORWARDS, **OTHERS, **ON_GRIDS}


@pytest.mark.parametrize("name", PART_SETTINGS)
def test_parts_read_nothing(name: str) -> None:
    config = PARTS.parse({"kind": name.split("-")[0], **PART_SETTINGS[name]})
    part = config.build(BuildContext(width=8, heads=4, hidden=8, memory_width=8)).train()
    for rows, length in SHAPES:
        x = torch.zeros(rows, length, 8, requires_grad=True)
        out = part(Stream.of(x), Context({"encoder": Stream.of(torch.randn(rows, 3, 8))}))
        assert out.shape == x.shape
        out.sum().backward()


@pytest.mark.parametrize(("name", "task"), [pair for pair in MODELS if pair[1] in LABELLED])
@torch.no_grad()
def test_parts_declare_the_width_of_their_outputs(name: str, task: str) -> None:
    model, wrong = build_tiny(name, task), []

    def check(part: Part, inputs: tuple[Any, ...], output: Tensor) -> None:
        width = (inputs[0].x if isinstance(inputs[0], Stream) else inputs[0]).shape[-1]
        if output.shape[-1] != (part.output_width or width):
            wrong.append(type(part).__name__)

    for module in model.modules():
        if isinstance(module, Part):
            module.register_forward_hook(check)  # type: ignore[arg-type]
    model(*make_inputs(name, model, 2, 5))
    assert not wrong


def test_the_loss_of_no_images_has_no_gradient() -> None:
    model = build_tiny("detr", "detect").train()
    (images,) = make_inputs("detr", model, 0, 0)
    loss = detection_loss(model.layers(images), Objects(torch.zeros(0, dtype=torch.long), torch.zeros(0, 4), ()))
    assert loss.count == 0
    check_gradients(model, loss.total)


def test_a_next_sentence_loss_of_no_pairs() -> None:
    model = headwise.build("bert-tiny", vocab=12, task="masked")
    nothing = torch.zeros(0, 5, dtype=torch.long)
    check_gradients(model, model(nothing, labels=nothing, next_sentence_labels=nothing[:, 0]).total)
