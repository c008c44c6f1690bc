"""The hidden channels of feed-forward networks follow the width of a model whose size fixes them."""

import pytest

import headwise
from headwise.catalog import CATALOG, MODELS
from headwise.cli.main import main


@pytest.mark.parametrize(
    ("model", "hidden"),
    [
        ({"kind": "llama", "width": 64, "heads": 4}, 172),  # 11008 / 4096
        ({"kind": "llama-13b", "width": 80}, 216),  # 13824 / 5120
        ({"kind": "t5-narang-geglu", "width": 72}, 192),
        ({"kind": "t5-large", "width": 1024}, 4096),  # its own width
        ({"kind": "llama", "width": 64, "hidden": 256}, 256),
        ({"kind": "llama", "heads": 8}, 11008),
        ({"kind": "t5-narang", "width": 72}, 0),  # 4 * width, when it is built
        ({"kind": "transformer", "width": 64}, 0),
    ],
)
def test_hidden_follows_the_width_unless_it_is_set(model, hidden):
    assert MODELS.parse(model).hidden == hidden


def test_a_written_config_is_read_as_it_was():
    written = MODELS.parse({"kind": "llama", "width": 64, "hidden": 11008}).model_dump(mode="json")
    assert MODELS.parse(written).hidden == 11008


def test_no_size_of_the_catalogue_changes():
    for entry in CATALOG.values():
        for size, settings in entry.sizes.items():
            assert entry.merge(size, {}) == dict(settings) and entry.merge(size, dict(settings)) == dict(settings)


def test_build_and_show_take_it(capsys):
    model = headwise.build("llama-7b", device="meta", width=64, heads=4, depth=1, vocab=99)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    assert (64, 172) in shapes.values()
    main(["show", "llama", "--set", "width=64", "--set", "heads=4", "--set", "depth=1"])
    shown = capsys.readouterr()
    assert "64 x 172" in shown.out and "hidden = 172, in proportion to the width" in shown.err
    main(["show", "llama", "--set", "heads=4"])
    assert not capsys.readouterr().err


def test_a_wrong_width_is_an_error_of_the_width():
    for width in (0, -8, "wide"):
        with pytest.raises(ValueError, match="width"):
            MODELS.parse({"kind": "llama", "width": width})
