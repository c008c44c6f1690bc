import pytest
import torch
from torch import nn

from headwise.train.ema import Ema


def test_the_average_follows_its_recursion():
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)
    ema, wanted = Ema(model, decay=0.9), 0.0
    for step in range(1, 200):
        model.weight.data.fill_(float(step))
        ema.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * step
        assert ema.shadow["weight"].item() == pytest.approx(wanted, rel=1e-5)  # early, while the decay still grows


def test_the_first_average_is_nearly_the_first_weights():
    """d = (1 + step) / (10 + step), the warm-up of TensorFlow's averages: 2/11 of the beginning at step 1."""
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(11.0)
    ema = Ema(model, decay=0.999)
    model.weight.data.fill_(0.0)
    ema.update(1)
    assert ema.shadow["weight"].item() == pytest.approx(2.0)


def test_the_model_gets_its_own_weights_back_whatever_happens():
    model = nn.Linear(2, 2)
    ema = Ema(model, decay=0.5)
    average = ema.shadow["weight"].clone()
    model.weight.data.add_(1.0)
    own = model.weight.detach().clone()
    seen = []

    def validate():
        seen.append(model.weight.detach().clone())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ema.swap_in():
        validate()
    assert torch.equal(seen[0], average)
    assert torch.equal(model.weight, own)
    assert torch.equal(ema.shadow["weight"], average)


def test_decay_zero_averages_nothing():
    model = nn.Linear(2, 2)
    ema = Ema(model, decay=0.0)
    ema.update(1)
    assert ema.dump(model.state_dict()) == {}


def test_running_statistics_are_averaged_with_the_weights():
    model = torch.nn.BatchNorm1d(2)
    ema = Ema(model, 0.5)
    model(torch.full((4, 2), 8.0) + torch.arange(4.0)[:, None])
    ema.update(100)
    own = {"running_mean": model.running_mean.clone(), "running_var": model.running_var.clone()}
    averages = {"running_mean": own["running_mean"] / 2, "running_var": (1 + own["running_var"]) / 2}
    for name, average in averages.items():
        with ema.swap_in():
            assert torch.allclose(model.get_buffer(name), average)
        assert torch.equal(model.get_buffer(name), own[name])
        assert torch.allclose(ema.dump(model.state_dict())[name], average)
