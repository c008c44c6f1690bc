"""Adafactor against transformers' one, in float64, where fifty steps part only by what differs in the maths."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.optimization import Adafactor as Peer

from headwise.testing import assert_parity
from headwise.train.optim import AdafactorConfig, clip_and_step
from headwise.train.schedules import Constant, RelativeStep

STEPS, LR = 50, 0.02


class Toy(nn.Module):
    """An embedding, matrices, vectors, a stack of matrices and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.mix = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8))
        self.experts = nn.Parameter(torch.randn(3, 8, 5))
        self.scale = nn.Parameter(torch.tensor(0.3))
        self.head = nn.Linear(5, 11)
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = torch.einsum("tc,ecd->td", self.mix(self.embed(tokens)), self.experts)
        return self.head(self.scale * hidden)

    def pull(self, step: int) -> None:
        """Leave the gradient of a step's batch; in some steps it is far larger, so that updates are clipped."""
        tokens = torch.randint(11, (16,), generator=torch.Generator().manual_seed(step))
        self.zero_grad()
        (F.cross_entropy(self(tokens), (tokens + 1) % 11) * (1000 if step % 10 == 0 else 1)).backward()


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize(
    ("relative", "form"),
    [
        (True, {"scale_parameter": True, "warmup_init": True}),
        (True, {"scale_parameter": True}),
        (False, {"scale_parameter": False}),
        (False, {"scale_parameter": True}),
        (False, {"scale_parameter": False, "clip_threshold": 0.5, "decay_rate": -0.5, "eps": (1e-6, 0.1)}),
    ],
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adafactor_is_that_of_transformers(beta1, relative, form, weight_decay):
    torch.manual_seed(0)
    ours, theirs = Toy(), Toy()
    theirs.load_state_dict(ours.state_dict())
    slow = 1.0 if relative else 0.5  # theirs has no scale of relative steps
    settings = {name: value for name, value in form.items() if name != "warmup_init"}
    optimizer = AdafactorConfig(beta1=beta1, weight_decay=weight_decay, **settings).build(ours, {"head.weight": slow})
    rate = (RelativeStep(warmup_init=form.get("warmup_init", False)) if relative else Constant(lr=LR)).build()

    matrices = {"mix.0.weight", "experts", "head.weight"}  # what weight decay reaches
    groups = [
        {
            "params": [weight],
            "weight_decay": weight_decay if name in matrices else 0.0,
            "lr": None if relative else LR * (slow if name == "head.weight" else 1.0),
        }
        for name, weight in theirs.named_parameters()
    ]
    reference = Peer(groups, lr=None, beta1=beta1 or None, relative_step=relative, **form)

    start = [weight.detach().clone() for weight in ours.parameters()]
    for step in range(1, STEPS + 1):
        for model in (ours, theirs):
            model.pull(step)
        reference.step()
        clip_and_step(optimizer, torch.tensor(1.0), rate(step, 0.0), clip=0.0)
    for weight, wanted, begun in zip(ours.parameters(), theirs.parameters(), start, strict=True):
        assert_parity(weight - begun, wanted - begun, 1e-6)
        state, peer = optimizer.state[weight], reference.state[wanted]
        assert state["step"] == peer["step"] == STEPS
        for entry, tensor in state.items():
            if isinstance(tensor, Tensor):
                assert_parity(tensor, peer[entry], 1e-6)
        assert {*state} == {*peer} - {"RMS"}
