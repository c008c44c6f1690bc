"""Admin: its formula, the profile that sets its scales, and folding them into other weights."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise.blocks.admin import Admin, fold, profile
from headwise.blocks.attention.multihead import Attention, SelfProjection
from headwise.blocks.attention.projections import SegmentRecurrenceProjection
from headwise.blocks.detection import PositionedAttentionConfig
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.norm import LayerNorm
from headwise.blocks.part import BuildContext
from headwise.blocks.residual import PostNorm
from headwise.blocks.stream import Context, Stream
from headwise.experiment.config import parse_experiment
from headwise.experiment.load import load
from headwise.experiment.run import resume, train_experiment

IDS = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 3, 2, 0]])


def build_model(task: str = "transduce", depth: int = 3, **settings: Any) -> Any:
    torch.manual_seed(0)
    stack = {"depth": depth}
    return headwise.build(
        "transformer-tiny", vocab=20, task=task, width=16, wiring="admin", encoder=stack, decoder=stack, **settings
    )


def list_scales(model: nn.Module) -> list[Tensor]:
    return [scale.detach() for layer in model.modules() if isinstance(layer, Admin) for scale in layer.scales]


@torch.no_grad()
def perturb_weights(model: nn.Module) -> Any:
    """Every weight somewhere else, gains, shifts and scales too."""
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def test_admin_is_its_formula_and_begins_as_post_norm() -> None:
    torch.manual_seed(0)
    x, parts = torch.randn(2, 3, 8), [FeedForward(8, 12), FeedForward(8, 12, "gelu")]
    admin, post = Admin(parts, lambda: LayerNorm(8)), PostNorm(parts, lambda: LayerNorm(8))
    assert torch.equal(admin(Stream.of(x), Context()).x, post(Stream.of(x), Context()).x)
    perturb_weights(admin)
    inner = admin.norms[0](admin.scales[0] * x + parts[0](x))
    expected = admin.norms[1](admin.scales[1] * inner + parts[1](inner))
    torch.testing.assert_close(admin(Stream.of(x), Context()).x, expected)


def test_the_profile_follows_the_rule_in_each_stack() -> None:
    model = build_model(dropout=0.3)
    before = {name: weight.clone() for name, weight in model.state_dict().items() if "scales" not in name}
    profile(model, lambda: model(IDS, IDS))
    assert model.training
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in before.items())
    for owner, x in (
        (model.encoder, model.eval().encoder.embed(IDS, IDS != 0)),
        (model.decoder, model.decoder.embed(IDS)),
    ):
        ctx, omega = Context(model.encoder.read(IDS)), 1.0
        for layer in owner.stack.layers:
            for part, norm, scale in zip(layer.parts, layer.norms, layer.scales, strict=True):
                assert scale.tolist() == pytest.approx([omega] * 16, rel=1e-5)
                branch = part(x, ctx)
                variances = [np.var(each.detach().numpy(), dtype=np.float64) for each in (omega * x.x, branch)]
                omega = float(np.sqrt(sum(variances)))
                x = x.with_x(norm(scale * x.x + branch))


def test_only_models_with_admin_layers_are_profiled_and_only_once() -> None:
    def fail() -> None:
        raise AssertionError("called")

    profile(headwise.build("transformer-tiny", vocab=20), fail)
    model = build_model("tag")
    profile(model, lambda: model(IDS))
    assert len({float(scale[0]) for scale in list_scales(model)}) == 6
    profile(model, fail)


def test_a_layer_that_stands_in_the_stack_again_has_one_set_of_scales() -> None:
    stack = {"depth": 4, "shared": True}
    model = headwise.build("transformer-tiny", vocab=20, task="tag", wiring="admin", encoder=stack)
    profile(model, lambda: model(IDS))
    assert len(list_scales(model)) == 2 and all(scale.min() > 1 for scale in list_scales(model))
    assert len(list_scales(fold(model))) == 2  # the norm before it is that of another turn, too


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("task", ["transduce", "language-model", "tag"])
def test_folding_changes_no_output(task: str, norm: str) -> None:
    model = perturb_weights(build_model(task, norm=norm, activation="swiglu"))
    folded = fold(model)
    inputs = (IDS, IDS) if task == "transduce" else (IDS,)
    torch.testing.assert_close(folded(*inputs), model(*inputs), atol=1e-5, rtol=1e-5)
    stacks = [getattr(folded, name).stack for name in ("encoder", "decoder") if hasattr(folded, name)]
    for stack in stacks:  # the first scale has no norm before it to go to
        assert [type(layer) for layer in stack.layers] == [Admin, PostNorm, PostNorm]
        assert all(bool((scale == 1).all()) for scale in stack.layers[0].scales[1:])
    assert torch.equal(list_scales(model)[0], list_scales(folded)[0])


@torch.no_grad()
def test_a_layer_without_scales_becomes_post_norm() -> None:
    model = perturb_weights(build_model("tag"))
    model.encoder.stack.layers[0].scales[0].fill_(1.0)
    assert not list_scales(fold(model))
    model.encoder.stack.layers[0].scales[0].fill_(2.0)
    model.encoder.embed.norm = perturb_weights(LayerNorm(16))
    folded = fold(model)
    assert not list_scales(folded)
    torch.testing.assert_close(folded(IDS), model(IDS), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_scale_that_cannot_be_folded_stays() -> None:
    model = perturb_weights(build_model("tag"))
    model.encoder.stack.layers[1].scales[1][3] = 0.0  # cannot be divided by
    recurrent = [[{"kind": "lstm", "hidden": 6}, {"kind": "mlp"}]]
    other = perturb_weights(
        headwise.build("transformer-tiny", vocab=20, task="tag", wiring="admin", encoder={"layers": recurrent})
    )
    for each in (model, other):
        folded = fold(each)
        assert sum(bool((scale != 1).any()) for scale in list_scales(folded)) == 2
        torch.testing.assert_close(folded(IDS), each(IDS), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("mixer", "scales_left"), [({"key_value_heads": 2}, 0), ({"key_bias": False}, 0), ("lstm", 3)])
def test_scales_are_folded_into_parts_that_declare_their_input_layer(mixer: Any, scales_left: int) -> None:
    model = perturb_weights(build_model("tag", mixer=mixer))
    model.encoder.embed.norm = perturb_weights(LayerNorm(16))  # takes the first scale
    folded = fold(model)
    assert sum(bool((scale != 1).any()) for scale in list_scales(folded)) == scales_left
    torch.testing.assert_close(folded(IDS), model(IDS), atol=1e-5, rtol=1e-5)


def test_a_part_that_reads_in_another_way_does_not_inherit_the_input_layer() -> None:
    class Shifted(FeedForward):
        def transform(self, stream: Stream, ctx: Context) -> Tensor:
            return super().transform(stream.with_x(stream.x + 1), ctx)

    positioned = PositionedAttentionConfig().build(BuildContext(width=16, heads=2, hidden=32))
    assert isinstance(positioned, Attention)
    segments = SegmentRecurrenceProjection(16, 2, 8, memory_length=4)
    assert Shifted(8, 12).input_linear is positioned.input_linear is segments.input_linear is None
    feedforward, attention = FeedForward(8, 12), Attention(16, heads=2)
    assert feedforward.input_linear is feedforward.inner
    assert isinstance(attention.qkv, SelfProjection) and attention.input_linear is attention.qkv.project


def test_steps_with_a_cache_equal_one_forward_pass() -> None:
    model = perturb_weights(build_model("language-model"))
    whole, state = model(IDS), model.start(IDS[:, :0])
    for step in range(IDS.shape[1]):
        logits, state = model.step(IDS[:, step], state)
        torch.testing.assert_close(logits, whole[:, step], atol=1e-5, rtol=1e-5)


@pytest.fixture
def experiment(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}{b}\t{b} {a}\n" for a in "abcdef" for b in "abcdef"))
    return {
        "name": "deep",
        "data": {"train": str(tmp_path / "pairs.tsv"), "valid": str(tmp_path / "pairs.tsv"), "cache": str(tmp_path)},
        "tokeniser": {"kind": "characters", "target": {"kind": "words"}},
        "model": {"kind": "transformer-tiny", "wiring": "admin", "encoder": {"depth": 4}, "decoder": {"depth": 4}},
        "train": {"steps": 2, "batch_size": 12, "validate_every": 2, "threads": 1, "schedule": {"lr": 1e-9}},
    }


def test_training_profiles_a_fresh_run_and_no_other(experiment: dict[str, Any], tmp_path: Path) -> None:
    runs = [train_experiment(parse_experiment(experiment), tmp_path / name)[0] for name in ("one", "two")]
    first, second = (load(run.path, which="last").model for run in runs)
    assert all(torch.equal(one, two) for one, two in zip(list_scales(first), list_scales(second), strict=True))
    encoder, decoder = list_scales(first.encoder), list_scales(first.decoder)
    for found, sums in ((encoder, 8), (decoder, 12)):
        means = [float(scale.mean()) for scale in found]
        assert len(means) == sums and means[0] == pytest.approx(1, abs=1e-4)
        assert all(one < two for one, two in pairwise(means)) and means[-1] > 1.5
    run, _ = resume(runs[0].path)  # nothing is left to do, and nothing is set again
    again = load(run.path, which="last").model
    assert all(torch.equal(one, two) for one, two in zip(list_scales(first), list_scales(again), strict=True))
