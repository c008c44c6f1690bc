from math import cos, pi, sqrt

import pytest

from headwise.train.schedules import constant, cosine, inverse_sqrt, linear, noam, relative_step


@pytest.mark.parametrize(("width", "peak"), [(512, 6.988e-4), (1024, 4.941e-4)])
def test_noam_is_the_closed_form_of_the_paper(width, peak):
    rate = noam(width, warmup=4000)
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        assert rate(step, 0.3) == pytest.approx(1 / sqrt(width) * min(1 / sqrt(step), step / 4000 / sqrt(4000)))
    assert rate(4000, 0.0) == pytest.approx(peak, rel=1e-4)
    assert max(range(1, 20_000, 7), key=lambda step: rate(step, 0.0)) == pytest.approx(4000, abs=7)


def test_inverse_sqrt_is_noam_with_its_peak_named():
    named, derived = inverse_sqrt(2 / sqrt(512 * 300), warmup=300), noam(512, 300, factor=2)
    assert [named(step, 0.0) for step in range(1, 1000)] == pytest.approx([derived(s, 0.0) for s in range(1, 1000)])


def test_cosine_goes_down_to_its_floor():
    rate = cosine(0.002, warmup=10, floor=0.1)
    assert rate(5, 0.0) == pytest.approx(0.001)
    assert rate(500, 0.25) == pytest.approx(0.002 * (0.1 + 0.9 * (1 + cos(pi / 4)) / 2))
    assert rate(1000, 1.0) == pytest.approx(0.0002)


def test_linear_and_constant():
    assert linear(1.0, floor=0.2)(50, 0.5) == pytest.approx(0.6)
    assert linear(1.0)(50, 1.0) == 0.0
    assert [constant(1.0, warmup=4)(step, 0.9) for step in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]


def test_relative_steps_are_those_of_the_paper():
    flat, rising = relative_step(), relative_step(warmup_init=True)
    assert [flat(step, 0.5) for step in (1, 10_000, 40_000)] == pytest.approx([1e-2, 1e-2, 5e-3])
    assert [rising(step, 0.5) for step in (1, 10_000, 40_000)] == pytest.approx([1e-6, 1e-2, 5e-3])
