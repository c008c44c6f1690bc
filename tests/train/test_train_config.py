import pytest

from headwise.config.base import validate
from headwise.errors import UserError
from headwise.train.config import TrainConfig
from headwise.train.optim import AdamWConfig
from headwise.train.schedules import Cosine, Noam


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "e.toml: steps: training needs an end; set steps, epochs, minutes, tokens or flops"),
        ({"step": 3}, "did you mean steps?"),
        ({"steps": -1}, "steps: input should be greater than or equal to 0"),
        ({"steps": 1, "schedule": "cosin"}, "no schedule is called 'cosin'; did you mean cosine"),
        ({"steps": 1, "schedule": {"kind": "noam", "lr": 1}}, "schedule.lr: unknown key"),
        ({"steps": 1, "optimizer": {"kind": "adamw", "betas": [0.9, 1.5]}}, "optimizer.betas.1"),
        ({"steps": 1, "schedule": {"kind": "wsd", "decay": 0}}, "schedule.decay: input should be greater than 0 (it"),
        ({"steps": 1, "schedule": {"kind": "wsd", "shape": "cubic"}}, "schedule.shape: input should be 'linear' or"),
        ({"steps": 1, "optimizer": {"kind": "adafactor", "betas": [0.9]}}, "optimizer.betas: unknown key; "),
        ({"steps": 1, "optimizer": {"kind": "adafactor", "eps": [0, 1e-3]}}, "optimizer.eps.0: input should be"),
        ({"steps": 1, "optimizer": {"kind": "adafactor", "decay_rate": 0.8}}, "optimizer.decay_rate: input should be"),
        ({"steps": 1, "optimizer": {"kind": "adafactor", "beta1": 1.0}}, "optimizer.beta1: input should be less"),
    ],
)
def test_a_wrong_setting_is_named(wrong, sentence):
    with pytest.raises(UserError) as caught:
        validate(TrainConfig, wrong, "e.toml")
    assert sentence in str(caught.value)


def test_slots_take_names_and_tables_and_survive_a_round_trip():
    config = TrainConfig(minutes=1.5, optimizer={"kind": "adamw", "weight_decay": 0.1}, schedule="cosine")
    assert config.optimizer == AdamWConfig(weight_decay=0.1)
    assert config.schedule == Cosine()
    assert TrainConfig(**config.model_dump(mode="json")) == config


def test_noam_takes_the_width_of_the_model():
    config = TrainConfig(steps=1, schedule="noam")
    with pytest.raises(UserError, match=r"train\.schedule\.width"):
        config.schedule.build()
    assert config.for_width(512).schedule == Noam(width=512)
    assert config.for_width(512).for_width(64).schedule == Noam(width=512)
    assert TrainConfig(steps=1).for_width(512) == TrainConfig(steps=1)
