"""`depth` of a model is that of all its stacks; a stack's own wins over it, a later one over both."""

import pytest

from headwise import catalog
from headwise.compare.config import ComparisonConfig
from headwise.config.base import validate
from headwise.errors import UserError
from headwise.experiment.config import Experiment, parse_experiment
from headwise.models.build import build
from headwise.models.layers import LayerFields, StackConfig
from headwise.models.transformer import TransformerConfig

LAYERED = [name for name, entry in catalog.CATALOG.items() if issubclass(entry.config, LayerFields)]
PAIRS = [name for name in LAYERED if "decoder" in catalog.CATALOG[name].config.model_fields]
TWO = [name for name in PAIRS if "encoder" in catalog.CATALOG[name].config.model_fields]


def depths(config) -> list[int]:
    sides = [getattr(config, side).depth for side in ("encoder", "decoder") if side in type(config).model_fields]
    return sides if len(sides) == 2 else [config.depth, *sides]


def test_the_models_that_are_tried_are_those_with_stacks():
    assert {"gpt2", "bert", "llama", "vit", "perceiver"} <= set(LAYERED)
    others = {"bart", "switch", "synthesizer", "performer", "linear-transformer", "universal-transformer"}
    assert set(TWO) == {"transformer", "t5", "t5-narang", "evolved-transformer", *others}
    assert set(PAIRS) - set(TWO) == {"detr", "captioner"}


@pytest.mark.parametrize("name", LAYERED)
def test_a_depth_is_that_of_all_stacks_in_every_size(name):
    for size in catalog.CATALOG[name].sizes:
        changed = catalog.MODELS.parse({"kind": f"{name}-{size}", "depth": 5})
        assert set(depths(changed)) == {5}, size
        stored = changed.model_dump(mode="json")
        assert catalog.MODELS.parse(stored) == changed
        assert not {"encoder", "decoder", "depth"} <= set(stored)


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_of_that_depth_is_built(name):
    deep, shallow = (build(f"{name}-tiny", vocab=40, outputs=40, depth=depth, device="meta") for depth in (3, 1))
    if name == "universal-transformer":  # steps of one layer
        assert [model.encoder.stack.steps for model in (deep, shallow)] == [3, 1]
        assert [model.decoder.stack.layer_numbers for model in (deep, shallow)] == [(0, 0, 0), (0,)]
        return
    count = [
        sum(".layers." in key and key.startswith(("encoder.stack", "decoder.stack", "decoder.layers")) for key in keys)
        for keys in (deep.state_dict(), shallow.state_dict())
    ]
    assert count[0] > count[1] > 0


@pytest.mark.parametrize("name", PAIRS)
def test_a_stacks_own_depth_wins_in_whatever_order(name):
    for settings in ({"depth": 4, "decoder": {"depth": 2}}, {"decoder": {"depth": 2}, "depth": 4}):
        assert depths(catalog.MODELS.parse({"kind": name, **settings})) == [4, 2]
    assert depths(catalog.MODELS.parse({"kind": name, "depth": 4, "decoder": StackConfig(depth=2)})) == [4, 2]
    kept = catalog.MODELS.parse({"kind": name, "depth": 4, "decoder": {"shared": True}})
    assert depths(kept) == [4, 4] and kept.decoder.shared


@pytest.mark.parametrize("name", TWO)
def test_the_stored_config_holds_one_depth_a_stack(name):
    data, train = {"train": "pairs.tsv"}, {"steps": 1}
    found = parse_experiment(
        {"model": {"kind": name, "depth": 4, "encoder": {"depth": 3}}, "data": data, "train": train}
    )
    stored = found.model_dump(mode="json")["model"]
    assert "depth" not in stored and (stored["encoder"]["depth"], stored["decoder"]["depth"]) == (3, 4)


DEPTHS = {
    "transformer": {"base": 6, "big": 6, "small": 3},
    "bart": {"base": 6, "large": 12},
    "t5": {
        "base": 12,
        "small": 6,
        "large": 24,
        "3b": 24,
        "11b": 24,
        "v1.1-small": 8,
        "v1.1-base": 12,
        "v1.1-large": 24,
    },
    "switch": {"base-8": 12, "large-128": 24, "xxl-128": 24, "c-2048": 15, "narang-top1": 12, "narang-top2": 12},
    "performer": {"base": 6, "protein": 36},
    "linear-transformer": {"mnist": 8, "cifar": 16},
}


@pytest.mark.parametrize("name", DEPTHS)
def test_published_sizes_have_their_depth_in_both_stacks(name):
    for size, depth in DEPTHS[name].items():
        assert depths(catalog.MODELS.parse(f"{name}-{size}")) == [depth, depth], size


FILE = """
data = { train = "pairs.tsv" }
train = { steps = 1 }
[model]
kind = "transformer-small"
encoder = { depth = 4, shared = true }
decoder = { depth = 4 }
"""
CHANGES = [
    ((), [4, 4]),
    (("model.depth=2",), [2, 2]),
    (("model.depth=2", "model.encoder.depth=3"), [3, 2]),
    (("model.encoder.depth=3", "model.depth=2"), [3, 2]),
    (("model.decoder.depth=1",), [4, 1]),
]


@pytest.mark.parametrize(("changes", "expected"), CHANGES, ids=lambda each: str(each))
def test_a_depth_on_the_command_line_replaces_those_of_the_file(tmp_path, changes, expected):
    (tmp_path / "own.toml").write_text(FILE)
    model = Experiment.read(tmp_path / "own.toml", changes).model
    assert depths(model) == expected and model.encoder.shared


def test_a_depth_of_an_arm_replaces_those_of_its_experiment():
    base = {"data": {"train": "a.tsv"}, "model": {"encoder": {"depth": 4}, "decoder": {"depth": 4}}}
    arms = [{"name": "same"}, {"name": "flat", "set": {"model.decoder.depth": 1, "model.depth": 2}}]
    table = ComparisonConfig(experiment=base, budget={"steps": 9}, arm=arms)
    assert [depths(table.build_experiment(arm, 1).model) for arm in table.arm] == [[4, 4], [2, 1]]


@pytest.mark.parametrize("depth", [0, -1, "many", 2.5, [3]])
@pytest.mark.parametrize("name", ["transformer", "detr", "gpt2"])
def test_a_depth_that_is_none_is_refused_once_and_where_it_was_written(name, depth):
    with pytest.raises(UserError) as told:
        validate(catalog.CATALOG[name].config, {"depth": depth}, name)
    assert str(told.value).startswith(f"{name}: depth: ") and "\n" not in str(told.value)


def test_a_changed_config_has_the_depth_in_both_stacks():
    config = TransformerConfig(depth=3).replace(depth=2, decoder={"shared": True})
    assert depths(config) == [2, 2] and config.decoder.shared and depths(config.replace(width=64)) == [2, 2]
