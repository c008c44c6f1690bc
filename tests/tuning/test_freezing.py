"""What is frozen stays to the last bit, costs the optimiser nothing, and is named by patterns."""

import pytest
import torch
from safetensors.torch import load_file

from headwise import UserError, build
from headwise.tuning.config import TuningConfig
from headwise.tuning.freezing import apply_tuning, describe_size


def model():
    return build("transformer-tiny", vocab=40, outputs=5, task="classify", encoder={"depth": 3})


def learning(tuned) -> set[str]:
    return {name for name, weight in tuned.named_parameters() if weight.requires_grad}


def test_patterns_match_modules_ranges_and_wildcards():
    tuned = model()
    apply_tuning(
        tuned, TuningConfig(freeze=["encoder.embed", "encoder.stack.layers.0-1", "*norms*"], unfreeze=["*layers.1"])
    )
    names = [name for name, _ in tuned.named_parameters()]
    wanted = {
        name
        for name in names
        if "layers.1." in name or name.startswith("head.") or ("layers.2." in name and "norms" not in name)
    }
    assert learning(tuned) == wanted
    count = sum(weight.numel() for name, weight in tuned.named_parameters() if name in wanted)
    assert describe_size(tuned).endswith(f", {count:,} of them trained") and not describe_size(model()).endswith(
        "trained"
    )


def test_a_tied_table_is_frozen_by_each_of_its_names():
    tuned = build("gpt2-tiny", vocab=40)
    assert "decoder.head.table.weight" not in dict(tuned.named_parameters())
    apply_tuning(tuned, TuningConfig(freeze=["decoder.head"]))
    assert not tuned.decoder.embed.table.weight.requires_grad


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"freeze": ["encoder.stak"]}, r"tuning\.freeze: .* 'encoder\.stak'; the nearest are encoder\.stack"),
        ({"freeze": ["*"], "unfreeze": ["hed"]}, r"tuning\.unfreeze: .* 'hed'; the nearest are head"),
        ({"freeze": ["encoder.stack.layers.7"]}, r"the nearest are encoder\.stack\.layers"),
        ({"freeze": ["*"]}, "no parameter is left to train"),
    ],
)
def test_a_wrong_pattern_is_an_error(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        apply_tuning(model(), TuningConfig(**settings))


def test_frozen_weights_are_the_same_bits_and_have_no_optimiser_state(learn):
    train = {"ema": 0.9, "optimizer": {"kind": "adamw", "weight_decay": 0.1}}
    run, said = learn("classify", train=train, tuning={"freeze": ["encoder"], "unfreeze": ["*layers.1.norms.0"]})
    first, last = run.checkpoint_path(0), run.checkpoint_path(10)
    before = load_file(first / "model.safetensors")
    after, averaged = (load_file(last / f"{part}.safetensors") for part in ("model", "ema"))
    free = {name for name in before if "layers.1.norms.0" in name or name.startswith("head.")}
    assert {name for name in before if not torch.equal(before[name], after[name])} == free
    assert {name for name in before if not torch.equal(before[name], averaged[name])} == free
    state = load_file(last / "optimizer.safetensors")
    assert {key.rpartition("/")[0] for key in state} == free
    count = sum(before[name].numel() for name in free)
    assert f"{count:,} of them trained" in said[-1]


def test_lower_layers_have_lower_learning_rates(learn):
    train = {"steps": 1, "clip_norm": 0.0, "optimizer": {"kind": "adam", "eps": 1e-30}}
    run, _ = learn("classify", train=train, tuning={"layer_lr_decay": 0.5})
    before, after = (load_file(run.checkpoint_path(step) / "model.safetensors") for step in (0, 1))
    for name, share in (
        ("head.table.weight", 1), ("encoder.stack.layers.1.parts.1.outer.weight", 0.5),
        ("encoder.stack.layers.0.parts.1.outer.weight", 0.25), ("encoder.embed.table.weight", 0.125),
    ):  # fmt: skip
        # Adam's first step is as long as the rate, in every weight that has a gradient.
        assert (after[name] - before[name]).abs().max().item() == pytest.approx(0.01 * share, rel=1e-3)
