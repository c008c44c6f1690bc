"""Every model of the catalogue that labels images, at its tiny size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import headwise
from headwise.catalog import CATALOG
from headwise.errors import UserError
from headwise.testing import check_model, perturb_parameters
from headwise.testing.image_classifier import draw_images

LABELS = 5
NAMES = sorted(name for name, entry in CATALOG.items() if "classify-images" in entry.config.tasks)


def build_tiny(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return headwise.build(f"{name}-tiny", outputs=LABELS, **settings)


def get_shape(name: str) -> tuple[int, int, int]:
    config = CATALOG[name].configure("tiny")
    return config.channels, *config.image


def make_images(name: str, rows: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    return draw_images(get_shape(name), rows, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_models_do_what_their_parts_declare(name: str) -> None:
    """An image gives the same alone as among others and again, and every corner counts."""
    assert build_tiny(name)(make_images(name, dtype=torch.float32)).shape == (4, LABELS)
    check_model(build_tiny(name), image=get_shape(name))


@pytest.mark.parametrize("name", NAMES)
def test_overfits_a_batch_of_images(name: str) -> None:
    model, images = build_tiny(name), make_images(name, rows=8, dtype=torch.float32)
    labels = torch.arange(8) % LABELS
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)
    for _ in range(60):
        optimizer.zero_grad()
        voices = model.head_logits(images)
        sum(nn.functional.cross_entropy(logits, labels) for logits in voices).backward()
        optimizer.step()
    model.eval()
    assert (model(images).argmax(-1) == labels).all()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_weights_are_the_same_after_saving_and_loading(name: str, tmp_path: Path) -> None:
    model, images = perturb_parameters(build_tiny(name)), make_images(name)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = build_tiny(name).double().eval()
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other(images), model(images))


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_images_of_another_shape_work_or_are_refused_in_a_sentence(name: str) -> None:
    """Larger ones and oblong ones by the same weights, or a sentence that says why not; other channels never."""
    model, images = perturb_parameters(build_tiny(name)), make_images(name, rows=2)
    height, width = images.shape[2:]
    for shape in ((2 * height, 2 * width), (height, 2 * width), (height + 1, width)):
        found, problem = torch.zeros(0), ""
        try:
            found = model(torch.randn(2, images.shape[1], *shape, dtype=torch.float64))
        except UserError as error:
            problem = str(error)
        read = found.shape == (2, LABELS) and bool(found.isfinite().all())
        assert read or ("image" in problem and "\n" not in problem)
    with pytest.raises(UserError, match="images"):
        model(torch.randn(2, images.shape[1] + 1, height, width, dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_words_are_refused_or_unknown(name: str) -> None:
    """They would be without effect. What says no more than the default passes, as whole configs are kept with runs."""
    for setting in ({"tie": "none"}, {"output_bias": True}, {"token_types": 2}):
        with pytest.raises(UserError, match=next(iter(setting))):
            build_tiny(name, **setting)
    config = CATALOG[name].configure("tiny")
    assert type(config).model_validate(config.model_dump()) == config


def test_without_class_tokens_a_vision_transformer_pools_its_patches() -> None:
    images = make_images("vit")
    means, largest = (
        perturb_parameters(build_tiny("vit", class_tokens=0, pool=pool))(images) for pool in ("mean", "max")
    )
    assert not torch.allclose(means, largest)


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_model_is_counted_without_being_allocated(name: str) -> None:
    model = headwise.build(f"{name}-tiny", outputs=LABELS, device="meta")
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in build_tiny(name).parameters())
    assert model(make_images(name).float().to("meta")).shape == (4, LABELS)
