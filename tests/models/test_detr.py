"""DETR: sizes, positions, padding, object queries, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise import UserError, build
from headwise.blocks.detection import ObjectQueries, PositionedCrossProjection, PositionedSelfProjection, SinePositions
from headwise.blocks.images import ImageEncoder, ImageStem, PatchEmbedding
from headwise.blocks.record import record
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream
from headwise.models.detector import Detector, PaddedEncoder
from headwise.models.detr import DetrConfig
from headwise.tasks.detection_loss import Objects, detection_loss
from headwise.tuning.freezing import compute_lr_scales

WIDTH = 32


def build_tiny(**settings: Any) -> Any:
    torch.manual_seed(0)
    return build("detr-tiny", outputs=3, **settings).eval()


def make_stream(rows: int, columns: int, images: int = 2, keep: Tensor | None = None) -> Stream:
    x = torch.randn(images, rows * columns, WIDTH, dtype=torch.float64)
    return Stream(x, torch.arange(rows * columns), keep, (rows, columns))


@pytest.mark.parametrize(
    ("name", "every", "learning"), [("r50", 41_524_768, 41_302_368), ("r101", 60_464_672, 60_242_272)]
)
def test_parameters_are_those_published(name: str, every: int, learning: int) -> None:
    weights = list(build(f"detr-{name}", device="meta").parameters())
    assert sum(weight.numel() for weight in weights) == every
    assert sum(weight.numel() for weight in weights if weight.requires_grad) == learning


def test_the_backbone_learns_more_slowly() -> None:
    model = build("detr-tiny", outputs=3, backbone_lr_scale=0.1, frozen_stages=1)
    backbone = model.encoder.stem.backbone
    scales = compute_lr_scales(model, DetrConfig(backbone_lr_scale=0.1).lr_scales(), decay=1.0)
    slow = {f"encoder.stem.backbone.{name}" for name, _ in backbone.named_parameters()}
    assert scales == dict.fromkeys(slow, 0.1) and slow < {name for name, _ in model.named_parameters()}
    assert [weight.requires_grad for weight in backbone.stem.parameters()] == [False] * 3
    assert all(weight.requires_grad for weight in backbone.stack.parameters())


def test_positions_are_sinusoids_of_row_and_column() -> None:
    """Counted from 1 and scaled to 2 pi: rows in the first half of the channels, columns in the second."""
    places = SinePositions(WIDTH)(make_stream(3, 5), Context())[0].unflatten(0, (3, 5))
    for row, column, pair in [(0, 0, 0), (2, 4, 3), (1, 3, 5)]:
        for half, (number, count) in enumerate([(row + 1, 3), (column + 1, 5)]):
            angle = number / (count + 1e-6) * 2 * math.pi / 10_000 ** (2 * pair / (WIDTH / 2))
            start = half * WIDTH // 2 + 2 * pair
            expected = torch.tensor([math.sin(angle), math.cos(angle)], dtype=torch.float64)
            torch.testing.assert_close(places[row, column, start : start + 2], expected)


def test_positions_of_an_image_do_not_depend_on_its_padding() -> None:
    keep = torch.zeros(2, 4, 6, dtype=torch.bool)
    keep[0, :3, :5] = keep[1] = True
    padded = SinePositions(WIDTH)(make_stream(4, 6, keep=keep.flatten(1)), Context()).unflatten(1, (4, 6))
    for row, (rows, columns) in enumerate([(3, 5), (4, 6)]):
        alone = SinePositions(WIDTH)(make_stream(rows, columns), Context())[0].unflatten(0, (rows, columns))
        torch.testing.assert_close(padded[row, :rows, :columns], alone)


def test_class_tokens_have_no_position_and_positions_are_computed_once_per_call() -> None:
    places, ctx = SinePositions(WIDTH), Context()
    stream = Stream(torch.randn(2, 1 + 6, WIDTH), torch.arange(7), grid=(2, 3))
    found = places(stream, ctx)
    assert not found[:, 0].any() and found[:, 1:].any(-1).all()
    assert places(stream, ctx.at(1)) is found


def to_torch_attention(qkv: Any, out: nn.Linear) -> nn.MultiheadAttention:
    """torch.nn's attention with the weights of a `qkv`."""
    theirs = nn.MultiheadAttention(WIDTH, qkv.heads, batch_first=True, dtype=torch.float64)
    products = [qkv.query, qkv.project] if isinstance(qkv, PositionedCrossProjection) else [qkv.project]
    theirs.in_proj_weight.data = torch.cat([each.weight for each in products])
    theirs.in_proj_bias.data = torch.cat([each.bias for each in products])
    theirs.out_proj.load_state_dict(out.state_dict())
    return theirs


@torch.no_grad()
def test_positions_are_added_to_queries_and_keys_but_not_to_values() -> None:
    layer = build_tiny().double().decoder.layers[0]
    itself, memory = layer.parts[0], layer.parts[1]
    nn.init.normal_(itself.qkv.project.bias), nn.init.normal_(memory.qkv.project.bias)
    slots, image = Stream.of(torch.randn(2, 4, WIDTH, dtype=torch.float64)), make_stream(3, 5)
    ctx = Context({"encoder": image})
    asked = slots.x + itself.qkv.places.table.weight
    placed = image.x + SinePositions(WIDTH)(image, Context())
    assert isinstance(itself.qkv, PositionedSelfProjection) and itself.qkv.places is memory.qkv.places
    expected, _ = to_torch_attention(itself.qkv, itself.out)(asked, asked, slots.x)
    torch.testing.assert_close(itself(slots, ctx), expected)
    expected, _ = to_torch_attention(memory.qkv, memory.out)(asked, placed, image.x)
    torch.testing.assert_close(memory(slots, ctx), expected)


@torch.inference_mode()
def test_padding_is_never_attended_to() -> None:
    """A batch of two sizes gives each image what it gets alone, whatever stands beside it."""
    model = build_tiny()
    patches = ImageEncoder(
        ImageStem(PatchEmbedding(1, WIDTH, 4), WIDTH), Stack([])
    )  # convolutions would look beyond the edge
    model.encoder.stem.backbone, model.encoder.stem.project = patches, nn.Identity()
    images, keep = torch.randn(2, 1, 16, 24), torch.zeros(2, 16, 24, dtype=torch.bool)
    keep[0, :12, :16] = keep[1] = True
    together = model(images, keep)
    for row, image in enumerate([images[:1, :, :12, :16], images[1:]]):
        alone = model(image)
        torch.testing.assert_close(together.logits[row], alone.logits[0])
        torch.testing.assert_close(together.boxes[row], alone.boxes[0])


@torch.inference_mode()
def test_an_image_has_the_same_outputs_alone_and_in_a_batch() -> None:
    model, images = build_tiny().double(), torch.randn(3, 1, 16, 24, dtype=torch.float64)
    together = model(images)
    torch.testing.assert_close(torch.cat([model(image[None]).boxes for image in images]), together.boxes)
    assert torch.equal(model(images).logits, together.logits)
    with pytest.raises(UserError, match="images"):
        model(torch.randn(1, 2, 16, 16, dtype=torch.float64))


@torch.inference_mode()
def test_object_queries_are_a_set() -> None:
    model, images, order = build_tiny(), torch.randn(2, 1, 16, 16), torch.tensor([2, 0, 3, 1])
    before = model(images)
    (queries,) = {module for module in model.modules() if isinstance(module, ObjectQueries)}
    queries.table.weight.data = queries.table.weight[order]
    after = model(images)
    torch.testing.assert_close(after.logits, before.logits[:, order])
    torch.testing.assert_close(after.boxes, before.boxes[:, order])


@torch.inference_mode()
def test_every_layer_predicts_and_the_last_one_is_the_output() -> None:
    model, images = build_tiny(decoder={"depth": 3}), torch.randn(2, 1, 32, 16)
    layers, last = model.layers(images), model(images)
    assert [tuple(each.logits.shape) for each in layers] == [(2, 4, 4)] * 3
    torch.testing.assert_close(layers[-1].logits, last.logits)
    assert not torch.allclose(layers[0].logits, last.logits)
    assert ((last.boxes > 0) & (last.boxes < 1)).all()
    share, label = last.best()
    assert label.max() < 3 and (share <= 1).all()


@torch.inference_mode()
def test_attention_of_object_queries_is_recorded() -> None:
    model = build_tiny()
    with record() as maps:
        model(torch.randn(1, 1, 32, 16))
    seen = maps.stack_by_kind()
    rows = 4 * 2  # a grid of 32 x 16 pixels over 8
    assert {kind: each.shape for kind, each in seen.items()} == {
        "encoder": (1, 4, rows, rows), "decoder": (2, 4, 4, 4), "cross": (2, 4, 4, rows),
    }  # fmt: skip
    torch.testing.assert_close(torch.from_numpy(seen["cross"].sum(-1)), torch.ones(2, 4, 4))


def test_learns_where_a_square_is() -> None:
    torch.manual_seed(0)
    images, corners = torch.zeros(4, 1, 16, 16), [(2, 2), (8, 2), (2, 8), (8, 8)]
    for image, (x, y) in zip(images, corners, strict=True):
        image[0, y : y + 6, x : x + 6] = 1
    boxes = torch.tensor([[(x + 3) / 16, (y + 3) / 16, 6 / 16, 6 / 16] for x, y in corners])
    objects = Objects(torch.tensor([0, 1, 2, 0]), boxes, (1, 1, 1, 1))
    model = build_tiny(dropout=0.0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        detection_loss(model.layers(images), objects).total.backward()
        optimizer.step()
    found = model(images)
    share, label = found.best()
    slot = share.argmax(1, keepdim=True)
    assert label.gather(1, slot)[:, 0].tolist() == [0, 1, 2, 0] and ((share > 0.5).sum(1) == 1).all()
    assert (found.boxes[torch.arange(4), slot[:, 0]] - boxes).abs().max() < 0.05


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="no part of the decoder has the object queries"):
        build_tiny(mixer="attention", cross_attention={"kind": "attention", "attend_to": "memory"})
    with pytest.raises(UserError, match="have positions already"):
        build_tiny(positions="rotary")
    with pytest.raises(UserError, match="multiple of 4"):
        build_tiny(width=30, heads=2)
    with pytest.raises(UserError, match="halves"):
        build_tiny(wiring="reversible")
    with pytest.raises(UserError, match="no grid"):
        build("bert-tiny", vocab=20, mixer="positioned")(torch.tensor([[5, 6]]))


def test_any_encoder_of_images_is_a_backbone() -> None:
    vit = {"kind": "vit", "patch": 4, "width": 16, "heads": 2, "depth": 1}
    found = build_tiny(backbone=vit)(torch.randn(2, 1, 16, 16))
    assert found.boxes.shape == (2, 4, 4)
    assert isinstance(build("vit-tiny", mixer="positioned", positions="none", outputs=3), nn.Module)
    assert isinstance(build_tiny(), Detector) and isinstance(build_tiny().encoder, PaddedEncoder)
