from math import cos, pi, sqrt

import pytest

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.train.config import TrainConfig
from headwise.train.schedules import SCHEDULES, Wsd, constant, cosine, inverse_sqrt, linear, noam, relative_step, wsd


@pytest.mark.parametrize(("width", "peak"), [(512, 6.988e-4), (1024, 4.941e-4)])
def test_noam_is_the_closed_form_of_the_paper(width, peak):
    rate = noam(width, warmup=4000)
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        assert rate(step, 0.3) == pytest.approx(1 / sqrt(width) * min(1 / sqrt(step), step / 4000 / sqrt(4000)))
    assert rate(4000, 0.0) == pytest.approx(peak, rel=1e-4)
    assert max(range(1, 20_000, 7), key=lambda step: rate(step, 0.0)) == pytest.approx(4000, abs=7)


def test_inverse_sqrt_is_noam_given_by_its_peak():
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


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("decay", [0.01, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("shape", ["linear", "sqrt"])
def test_wsd_is_stable_and_decays_over_the_last_fraction(decay, shape, floor):
    rate = wsd(0.002, warmup=10, decay=decay, shape=shape, floor=floor)
    for step, ramp in ((1, 0.1), (5, 0.5), (10, 1.0), (11, 1.0), (1000, 1.0)):  # warm-up multiplies all of it
        for progress in (0.0, (1 - decay) / 2, 1 - decay):
            assert rate(step, progress) == pytest.approx(0.002 * ramp)
        for done in (0.0, 0.09, 0.25, 0.81, 1.0):
            fall = 1 - (done if shape == "linear" else sqrt(done))
            wanted = 0.002 * ramp * (floor + (1 - floor) * fall)
            assert rate(step, 1 - decay + decay * done) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert rate(1000, 1.0) == pytest.approx(0.002 * floor)
    rates = [rate(1000, progress / 1000) for progress in range(1001)]
    assert rates == sorted(rates, reverse=True)


def test_wsd_that_decays_throughout_is_linear():
    whole, straight = wsd(0.5, warmup=3, decay=1.0, floor=0.2), linear(0.5, warmup=3, floor=0.2)
    points = [(step, step / 50) for step in range(1, 51)]
    assert [whole(*point) for point in points] == pytest.approx([straight(*point) for point in points])


@pytest.mark.parametrize("decay", [0.0, -0.1, 1.01, 20, float("nan"), float("inf")])
def test_wsd_refuses_a_decay_that_is_not_a_fraction(decay):
    with pytest.raises(UserError, match=r"^e\.toml: schedule\.decay: input should be .*"):
        validate(TrainConfig, {"steps": 1, "schedule": {"kind": "wsd", "decay": decay}}, "e.toml")


def test_wsd_settings_reach_the_schedule():
    config = Wsd(lr=0.5, warmup=2, decay=0.25, shape="sqrt", floor=0.2)
    points = [(1, 0.0), (9, 0.7), (9, 0.8), (9, 1.0)]
    assert [config.build()(*point) for point in points] == [wsd(0.5, 2, 0.25, "sqrt", 0.2)(*point) for point in points]


def test_relative_steps_are_those_of_the_paper():
    flat, rising = relative_step(), relative_step(warmup_init=True)
    assert [flat(step, 0.5) for step in (1, 10_000, 40_000)] == pytest.approx([1e-2, 1e-2, 5e-3])
    assert [rising(step, 0.5) for step in (1, 10_000, 40_000)] == pytest.approx([1e-6, 1e-2, 5e-3])


@pytest.mark.parametrize("kind", SCHEDULES.names)
def test_every_schedule_is_a_positive_rate_before_the_budget_is_spent(kind):
    config = TrainConfig(steps=1, schedule=kind).for_width(64)
    rate = config.schedule.build()
    assert all(0 < rate(step, (step - 1) / 500) <= 1 for step in range(1, 501))


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_a_warm_restart_warms_up_and_decays_over_the_new_budget(kind):
    config = TrainConfig(steps=200, schedule={"kind": kind, "lr": 0.5, "warmup": 4}, restart={"step": 100})
    rate, first = config.build_schedule(), config.schedule.build()
    assert [rate(100 + step, (step - 1) / 100) for step in range(1, 101)] == pytest.approx(
        [first(step, (step - 1) / 100) for step in range(1, 101)]
    )


def test_a_warm_restart_warms_up_for_a_tenth_of_the_new_budget_at_most():
    config = TrainConfig(steps=200, schedule={"kind": "linear", "lr": 1.0, "warmup": 4000}, restart={"step": 100})
    rate = config.build_schedule()
    assert rate(106, 0.05) == pytest.approx(0.5 * 0.95)
    assert rate(111, 0.1) == pytest.approx(0.9)


@pytest.mark.parametrize("kind", ["noam", "inverse_sqrt", "constant", "relative_step"])
def test_schedules_of_the_step_alone_go_on_in_a_run_that_is_trained_longer(kind):
    config = TrainConfig(steps=200, schedule=kind, restart={"step": 100}).for_width(64)
    assert config.build_schedule()(101, 0.0) == config.schedule.build()(101, 0.5)
