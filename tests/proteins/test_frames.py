"""Rigid transforms, against closed forms; `tests/parity/test_openfold.py` has OpenFold's."""

import pytest
import torch

from headwise.proteins.frames import Frames, rotation_about_x, rotation_from_quaternion, stack_frames

close = torch.testing.assert_close


def draw_frames(*shape: int, seed: int = 0) -> Frames:
    draw = torch.Generator().manual_seed(seed)
    rotations = rotation_from_quaternion(2 * torch.randn(*shape, 3, generator=draw, dtype=torch.float64))
    return Frames(rotations, 5 * torch.randn(*shape, 3, generator=draw, dtype=torch.float64))


def test_rotations_are_orthogonal_and_keep_hands():
    rotations = draw_frames(50).rotations
    close(rotations @ rotations.mT, torch.eye(3, dtype=torch.float64).expand(50, 3, 3))
    close(torch.linalg.det(rotations), torch.ones(50, dtype=torch.float64))


def test_compose_invert_and_apply():
    one, other, points = draw_frames(7), draw_frames(7, seed=1), torch.randn(7, 3, dtype=torch.float64)
    close(one.compose(other).apply(points), one.apply(other.apply(points)))
    close(one.invert().apply(one.apply(points)), points)
    close(one.apply_inverse(points), one.invert().apply(points))
    both = one.compose(one.invert())
    close(both.rotations, Frames.identity((7,), points).rotations)
    close(both.translations, torch.zeros(7, 3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_frames_from_three_points():
    """Algorithm 21: C is on the x axis, N in the xy plane."""
    n, ca, c = torch.randn(3, 20, 3, dtype=torch.float64)
    frames = Frames.from_three_points(n, ca, c)
    local_c, local_n = frames.apply_inverse(c), frames.apply_inverse(n)
    close(local_c[:, 0], (c - ca).norm(dim=-1))
    close(local_c[:, 1:], torch.zeros(20, 2, dtype=torch.float64), atol=1e-12, rtol=0)
    close(local_n[:, 2], torch.zeros(20, dtype=torch.float64), atol=1e-12, rtol=0)
    assert (local_n[:, 1] > 0).all()


def test_points_on_a_line_give_finite_frames_and_gradients():
    points = torch.zeros(3, 4, 3, requires_grad=True)
    frames = Frames.from_three_points(*points)
    (frames.rotations.sum() + frames.translations.sum()).backward()
    assert frames.rotations.isfinite().all() and points.grad.isfinite().all()


def test_rotation_about_x_takes_sin_and_cos():
    angle = torch.tensor(0.3, dtype=torch.float64)
    turned = rotation_about_x(torch.stack((angle.sin(), angle.cos()))) @ torch.tensor([2.0, 1.0, 0.0]).double()
    close(turned, torch.stack((angle * 0 + 2, angle.cos(), angle.sin())))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_indices_name_batch_dimensions(dim):
    frames = draw_frames(4, 5)
    stacked = stack_frames([frames, frames.scale(2.0)], dim=dim)
    expected = torch.stack((torch.zeros(4, 5), torch.zeros(4, 5)), dim=dim)
    assert stacked.shape == expected.shape
    close(frames[..., 2].translations, frames.translations[:, 2])
    close(frames[1].rotations, frames.rotations[1])
    assert frames.unsqueeze(-1).shape == (4, 5, 1)
