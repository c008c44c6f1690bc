"""CaiT: published sizes, late class tokens, LayerScale and drop path."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise import UserError
from headwise.blocks.attention.talking_heads import TalkingHeads
from headwise.blocks.class_attention import ClassAttentionLayer, PrependClassTokens
from headwise.blocks.residual import DropPath, LayerScaleAdd
from headwise.blocks.stack import count_parameters

COUNTS = {
    "xxs24": 11_956_264,
    "xxs36": 17_299_720,
    "xs24": 26_670_088,
    "s24": 46_916_200,
    "s36": 68_366_632,
    "m36": 271_221_352,
    "m48": 356_460_520,
}


@pytest.mark.parametrize(("size", "count"), COUNTS.items())
def test_it_has_the_published_parameters(size: str, count: int) -> None:
    assert count_parameters(headwise.build(f"cait-{size}", device="meta")) == count


@torch.no_grad()
def test_patches_do_not_depend_on_the_class_token() -> None:
    model = headwise.build("cait-tiny", outputs=3).eval()
    images = torch.randn(2, 1, 16, 16)
    with headwise.record() as maps:
        before = model.encoder.read(images)["encoder"]
    shapes = {place[1:]: tuple(found.shape) for place, found in maps.select("encoder").items()}
    assert shapes == {(0, 0): (2, 4, 16, 16), (1, 0): (2, 4, 16, 16), (3, 0): (2, 4, 1, 17)}
    torch.nn.init.normal_(model.encoder.stack.layers[2].class_tokens)
    after = model.encoder.read(images)["encoder"]
    assert torch.equal(before.x[:, 1:], after.x[:, 1:]) and not torch.allclose(before.x[:, 0], after.x[:, 0])


@torch.no_grad()
def test_layers_with_zero_gains_are_the_identity() -> None:
    model = headwise.build("cait-tiny", outputs=3, layer_scale=1e-30).eval()
    images = torch.randn(2, 1, 16, 16)
    stream = model.encoder.read(images)["encoder"]
    torch.testing.assert_close(stream.x[:, 1:], model.encoder.stack.final(model.encoder.stem(images).x))


def test_drop_path_is_constant_in_patch_layers_and_zero_in_class_layers() -> None:
    model = headwise.build("cait-tiny", outputs=3, depth=3, drop_path=0.2)
    *layers, _, last = model.encoder.stack.layers
    found = [[part.p for part in layer.modules() if isinstance(part, DropPath)] for layer in layers]
    assert found == [[0.2, 0.2]] * 3
    assert isinstance(last, ClassAttentionLayer) and not any(isinstance(part, DropPath) for part in last.modules())
    assert all(isinstance(add, LayerScaleAdd) for layer in (*layers, last) for add in layer.adds)


def test_its_parts_are_settings() -> None:
    model = headwise.build("cait-tiny", outputs=3, mixer="fourier", class_tokens=2, class_depth=2)
    assert not any(isinstance(part, TalkingHeads) for part in model.modules())
    kinds = [type(layer) for layer in model.encoder.stack.layers[2:]]
    assert kinds == [PrependClassTokens, ClassAttentionLayer, ClassAttentionLayer]
    assert len(model.head_logits(torch.randn(1, 1, 16, 16))) == 2, "a head for each mark"


def test_reversible_layers_are_refused() -> None:
    with pytest.raises(UserError, match="wiring: class tokens cannot join the two halves of reversible layers"):
        headwise.build("cait-tiny", outputs=3, wiring="reversible")
