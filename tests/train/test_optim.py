import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import SGD, Optimizer, RMSprop

from headwise.testing import assert_parity
from headwise.train.config import OPTIMIZERS, TrainConfig
from headwise.train.learner import Learner
from headwise.train.optim import (
    AdafactorConfig,
    AdamWConfig,
    build_adam,
    clip_and_step,
    dump_state,
    group_parameters,
    load_state,
)
from headwise.train.state import LossState

BETAS, EPS = (0.9, 0.98), 1e-9
RATE = 0.01
SLOW = {"inner.weight": 0.5}  # shares of the learning rate
TABLE = {kind: partial(OPTIMIZERS[kind]().build, lr_scales=SLOW) for kind in OPTIMIZERS.names}
TABLE["adafactor, beta1"] = partial(AdafactorConfig(beta1=0.9, weight_decay=0.1).build, lr_scales=SLOW)
# no kinds of the table, but what a new one may be: with and without torch's fused form
BUILD = TABLE | {
    name: lambda model, make=make: make(group_parameters(model, 0.1, False, SLOW), lr=0.0)
    for name, make in {
        "sgd": partial(SGD, momentum=0.9),
        "rmsprop": RMSprop,
        "fused sgd": partial(SGD, fused=True),
    }.items()
}
every_optimizer = pytest.mark.parametrize("build", BUILD.values(), ids=BUILD)


class Toy(nn.Module):
    """Matrices, vectors, an embedding. In float64, where rounding is no matter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.inner, self.norm, self.outer = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)
        self.experts = nn.Parameter(torch.randn(2, 6, 6))
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.norm(self.inner(self.embed(tokens)).tanh())  # (N,) -> (N, 6)
        return self.outer((hidden @ self.experts).sum(0))  # (N, 6) @ (2, 6, 6) -> (2, N, 6) -> (N, 3)

    def copy(self) -> "Toy":
        twin = Toy()
        twin.load_state_dict(self.state_dict())
        return twin


class Batch(SimpleNamespace):
    """Tokens with a number for each; labels grow with the step, so that gradients have other sizes."""

    @classmethod
    def draw(cls, size: int, seed: int) -> "Batch":
        draw = torch.Generator().manual_seed(seed)
        y = (seed + 1) * torch.randn(size, 3, generator=draw, dtype=torch.float64)
        return cls(x=torch.randint(7, (size,), generator=draw), y=y, tokens=size)

    def split(self, *sizes: int) -> list["Batch"]:
        parts = zip(self.x.split(sizes), self.y.split(sizes), strict=True)
        return [Batch(x=x, y=y, tokens=len(x)) for x, y in parts]

    def to(self, device: torch.device) -> "Batch":
        return self


class Squares:
    """A task: the sum of the squared errors."""

    def init_state(self, model: nn.Module) -> LossState:
        return LossState()

    def loss(self, model: nn.Module, batch: Batch, state: LossState) -> SimpleNamespace:
        total = (model(batch.x) - batch.y).square().sum()
        return SimpleNamespace(total=total, nll=total.detach(), count=torch.tensor(float(batch.tokens)))


def step_plainly(optimizer: Optimizer, model: nn.Module, batch: Batch, clip: float) -> float:
    """The same step as torch users write it: the loss's mean, gradients scaled to the norm, `step`."""
    optimizer.zero_grad()
    (Squares().loss(model, batch, LossState()).total / batch.tokens).backward()
    gradients = [weight.grad for weight in model.parameters()]
    norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
    for gradient in gradients:
        gradient.mul_(min(1.0, clip / norm))
    for group in optimizer.param_groups:
        group["lr"] = RATE * group["lr_scale"]
    optimizer.step()
    return norm


def learner_of(model: nn.Module, build, clip: float) -> Learner:
    config = TrainConfig(steps=1, threads=1, clip_norm=clip, schedule={"kind": "constant", "lr": RATE})
    learner = Learner(model, Squares(), config, seed=0)
    learner.optimizer = build(model)
    return learner


def assert_same(one: tuple[nn.Module, Optimizer], other: tuple[nn.Module, Optimizer], tolerance: float = 1e-5) -> None:
    """Weights and state, which tell the size of gradients where updates do not; up to rounding of the scale."""
    for model, wanted in zip(_tensors(*one), _tensors(*other), strict=True):
        assert model.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert_parity(model[name], tensor, tolerance)


def _tensors(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return model.state_dict(), dump_state(optimizer, model)


def backward(model: nn.Module, scale: float = 1.0) -> None:
    torch.manual_seed(1)
    (scale * model(torch.randn(6, 3)).square().sum()).backward()


@pytest.mark.parametrize("clip", [0.0, 0.01, 1e6])
def test_an_update_is_adam_on_the_clipped_mean_gradient(clip):
    ours = nn.Linear(3, 2)
    theirs = copy.deepcopy(ours)
    optimizer = build_adam(ours, BETAS, EPS)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=BETAS, eps=EPS)
    for _ in range(3):
        backward(ours)
        norm = clip_and_step(optimizer, torch.tensor(6.0), rate=0.01, clip=clip)
        reference.zero_grad()
        backward(theirs, 1 / 6)
        wanted = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        reference.step()
        torch.testing.assert_close(norm, wanted)
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)
    assert ours.weight.grad is None


@every_optimizer
def test_gradient_accumulation_over_uneven_batches_is_one_batch(build):
    torch.manual_seed(0)
    first = Toy()
    models = [first, first.copy(), first.copy()]
    whole, parts = (learner_of(model, build, clip=0.0) for model in models[:2])
    reference = build(models[2])
    for step in range(1, 4):
        batch = Batch.draw(12, seed=step)
        whole.step([batch], step, 0.0)
        parts.step(batch.split(1, 8, 3), step, 0.0)
        step_plainly(reference, models[2], batch, clip=float("inf"))
    assert_same((models[1], parts.optimizer), (models[0], whole.optimizer))
    assert_same((models[1], parts.optimizer), (models[2], reference))


@every_optimizer
def test_gradient_clipping_is_a_step_along_the_gradient_of_that_norm(build):
    torch.manual_seed(0)
    ours = Toy()
    theirs = ours.copy()
    learner, reference = learner_of(ours, build, clip=40.0), build(theirs)
    norms = []
    for step in range(1, 5):
        batch = Batch.draw(12, seed=step)
        norms.append(step_plainly(reference, theirs, batch, clip=40.0))
        assert float(learner.step([batch], step, 0.0)) == pytest.approx(norms[-1], rel=1e-5)
    assert min(norms) < 40 < max(norms)  # some are clipped and some are not
    assert_same((ours, learner.optimizer), (theirs, reference))


@every_optimizer
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(build, poison):
    torch.manual_seed(0)
    model = Toy()
    optimizer = build(model)

    def refuse() -> None:
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
        model.norm.bias.grad[2] = poison
        assert not clip_and_step(optimizer, torch.tensor(6.0), RATE, 1.0).isfinite()
        assert all(weight.grad is None for weight in model.parameters())

    untouched = model.copy()
    fresh = build(untouched)
    refuse()  # before there is any state
    for learner_model, learner_optimizer in ((model, optimizer), (untouched, fresh)):
        Squares().loss(learner_model, Batch.draw(6, seed=1), LossState()).total.backward()
        clip_and_step(learner_optimizer, torch.tensor(6.0), RATE, 1.0)
    before = copy.deepcopy(_tensors(untouched, fresh))
    for _ in range(2):
        for now, then in zip(_tensors(model, optimizer), before, strict=True):
            assert now.keys() == then.keys()
            assert all(torch.equal(now[name], then[name]) for name in then)
        refuse()


@every_optimizer
def test_an_update_without_gradients_changes_nothing(build):
    model = Toy()
    before = copy.deepcopy(model.state_dict())
    clip_and_step(build(model), torch.tensor(6.0), RATE, 1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@every_optimizer
def test_state_that_is_stored_and_loaded_goes_on_with_the_same_bits(build, tmp_path):
    torch.manual_seed(0)
    model = Toy()
    learner = learner_of(model, build, clip=1.0)
    for step in (1, 2, 3):
        learner.step([Batch.draw(12, seed=step)], step, 0.0)
    resumed = model.copy()
    save_file(dump_state(learner.optimizer, model), tmp_path / "state.safetensors")
    other = learner_of(resumed, build, clip=1.0)
    load_state(other.optimizer, resumed, load_file(tmp_path / "state.safetensors"))
    for step in (4, 5, 6):
        for each in (learner, other):
            each.step([Batch.draw(12, seed=step)], step, 0.0)
    for now, then in zip(_tensors(resumed, other.optimizer), _tensors(model, learner.optimizer), strict=True):
        assert now.keys() == then.keys()
        assert all(torch.equal(now[name], then[name]) for name in then)


def test_state_entries_that_are_not_tensors_are_stored_and_loaded(tmp_path):
    model = nn.Linear(3, 2)
    one, other = (SGD(model.parameters()) for _ in range(2))
    entries = {
        "step": 3,
        "mean": 0.1,
        "far": float("inf"),
        "buffer": None,
        "done": True,
        "sizes": [1, 2.5],
    }
    for weight in model.parameters():
        one.state[weight] = {**entries, "square": torch.randn_like(weight)}
    save_file(dump_state(one, model), tmp_path / "state.safetensors")
    load_state(other, model, load_file(tmp_path / "state.safetensors"))
    for weight in model.parameters():
        loaded, stored = dict(other.state[weight]), dict(one.state[weight])
        assert torch.equal(loaded.pop("square"), stored.pop("square"))
        assert loaded == stored
        assert [type(value) for value in loaded.values()] == [type(stored[entry]) for entry in loaded]


@pytest.mark.parametrize("kind", ["adamw", "adafactor"])
def test_biases_norms_and_embeddings_are_not_decayed(kind):
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.LayerNorm(3))
    decayed = {}
    for embeddings in (False, True):
        optimizer = OPTIMIZERS[kind](weight_decay=0.1, decay_embeddings=embeddings).build(model)
        groups = [group for group in optimizer.param_groups if group["weight_decay"]]
        decayed[embeddings] = {id(weight) for group in groups for weight in group["params"]}
    assert decayed[False] == {id(model[1].weight)}
    assert decayed[True] == {id(model[1].weight), id(model[0].weight)}


def test_dumped_state_is_independent_of_parameter_groups():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    first, second = build_adam(model, BETAS, EPS), AdamWConfig(weight_decay=0.1).build(model)
    backward(model)
    clip_and_step(first, torch.tensor(1.0), 0.01, 0.0)
    load_state(second, model, dump_state(first, model))
    for weight in model.parameters():
        assert all(torch.equal(second.state[weight][what], first.state[weight][what]) for what in first.state[weight])


@pytest.mark.parametrize(("shape", "numbers"), [((30, 20), 50), ((20,), 20), ((4, 30, 20), 4 * 50), ((), 1)])
def test_adafactor_keeps_rows_and_columns_of_a_matrix(shape, numbers):
    model = nn.ParameterList([nn.Parameter(torch.randn(shape))])
    optimizer = AdafactorConfig().build(model)
    model[0].square().sum().backward()
    clip_and_step(optimizer, torch.tensor(1.0), RATE, 0.0)
    state = optimizer.state[model[0]]
    assert sum(entry.numel() for entry in state.values() if isinstance(entry, Tensor)) == numbers
    assert [entry for entry in state.values() if not isinstance(entry, Tensor)] == [1]


def test_groups_have_the_learning_rate_scales_of_their_parameters():
    model = Toy()
    groups = group_parameters(model, 0.1, False, SLOW)
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {
        names[id(weight)]: (group["lr_scale"], group["weight_decay"]) for group in groups for weight in group["params"]
    }
    decayed = {"inner.weight", "outer.weight", "experts"}
    assert found == {name: (SLOW.get(name, 1.0), 0.1 if name in decayed else 0.0) for name in names.values()}
