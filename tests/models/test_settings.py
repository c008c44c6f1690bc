"""Every setting of every model, changed to another legal value: it is built and runs, or is refused in a sentence."""

import tomllib
import zlib
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import tomli_w
import torch

from headwise.blocks.stack import count_parameters
from headwise.blocks.tables import NORMS, OUTPUT_LAYERS, PARTS, POSITIONS, SCORES, TOKEN_EMBEDDINGS, WIRINGS
from headwise.catalog import CATALOG
from headwise.config.base import Config, merge, validate
from headwise.errors import UserError
from headwise.models.build import build
from headwise.models.cost import list_length_limits, make_inputs
from headwise.models.image_fields import ImageFields

TABLES = (PARTS, NORMS, WIRINGS, POSITIONS, SCORES, TOKEN_EMBEDDINGS, OUTPUT_LAYERS)
SHARE = 48  # of the changes of a model one in so many is tried; the number goes with the model's name
ALWAYS = {  # what was seen to fail
    "rnn": [{"wiring": "reversible"}],
    "gpt3": [{"feedforward": "levit_mlp"}, {"mixer": "levit_mlp"}],
    "bert": [
        {"activation": "glu"},
        {"activation": "swiglu"},
        {"output_layer": {"kind": "adaptive", "cutoffs": [4, 9]}},
    ],
    "albert": [{"activation": "geglu"}, {"positions": "tree"}],
    "deberta": [{"activation": "reglu"}, {"positions": "tree"}, {"wiring": "reversible"}],
    "bigbird": [{"activation": "liglu"}],
    "fnet": [{"activation": "geglu_tanh"}],
    "t5": [{"embedding_width": 8}, {"embedding_width": 1}, *({"activation": kind} for kind in ("tanh", "geglu"))],
    "switch": [{"embedding_width": 8}, {"activation": "tanh"}],
    "perceiver": [{"wiring": "none"}],
    "vit": [{"positions": "tree"}],
    "swin": [{"mixer": "workspace"}, {"feedforward": "workspace"}, {"positions": "tree"}],
    "volo": [{"width": 1}, {"feedforward": "workspace"}],
    "levit": [{"widths": [1, 1]}],
    "captioner": [{"wiring": "reversible"}],
}


def list_alternatives(current: Any, annotation: Any) -> Iterator[Any]:
    """Legal values beside the one that a setting has, by its type."""
    if isinstance(current, bool):
        yield not current
    elif isinstance(current, int):
        yield from {2 * current, current // 2, 0, 1, 3} - {current}
    elif isinstance(current, float):
        yield from {2 * current, 0.0, 0.5} - {current}
    elif get_origin(annotation) is Literal:
        yield from (choice for choice in get_args(annotation) if choice != current)
    elif isinstance(current, Config):
        for table in TABLES:
            if any(type(current) is table[kind] for kind in table.names):
                yield from ({"kind": kind} for kind in table.names if kind != current.kind)
        kind = {"kind": current.kind} if hasattr(current, "kind") else {}
        for name, value in list_settings(current):
            yield {**kind, name: value}
    elif isinstance(current, tuple) and current and all(isinstance(each, int) for each in current):
        yield from ([2 * each for each in current], [1] * len(current), list(current[:-1]))


def list_settings(config: Config) -> Iterator[tuple[str, Any]]:
    for name, field in type(config).model_fields.items():
        if name != "kind":
            yield from ((name, value) for value in list_alternatives(getattr(config, name), field.annotation))


def list_changes(name: str) -> list[dict[str, Any]]:
    every = [{key: value} for key, value in list_settings(CATALOG[name].configure("tiny"))]
    return ALWAYS.get(name, []) + every[zlib.crc32(name.encode()) % SHARE :: SHARE]


@pytest.mark.parametrize("name", CATALOG)
def test_a_changed_setting_works_or_is_refused(name: str) -> None:
    entry = CATALOG[name]
    for change in list_changes(name):
        try:
            model = build(f"{name}-tiny", vocab=16, outputs=5, device="meta", **change)
            config = validate(entry.config, merge(entry.sizes["tiny"], change))
            image = (config.channels, *config.image) if isinstance(config, ImageFields) else ()
            if count_parameters(model):  # counted models have nothing to run yet
                with torch.no_grad():
                    model.eval()(*make_inputs(model, 1, 1 if image else min([4, *list_length_limits(model)]), image))
        except UserError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}-tiny with {change}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("name", ["t5", "switch"])
@pytest.mark.parametrize("task", ["transduce", "language-model", "masked"])
def test_t5_with_a_narrow_table_learns(name: str, task: str) -> None:
    """A table in two factors, whose tied rows are as wide as the outputs that meet them."""
    model = build(f"{name}-tiny", vocab=16, task=task, embedding_width=8)
    ids = torch.randint(4, 16, (2, 5))
    loss = model(ids, ids, labels=ids) if task == "transduce" else model(ids, labels=ids)
    loss.total.backward()
    tables = {tuple(p.shape) for p in model.parameters() if p.shape[0] == 16 and p.dim() == 2}
    assert tables == {(16, 8)} and all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", CATALOG)
def test_settings_of_every_size_can_be_written_to_a_run(name):
    """TOML has no null."""
    entry = CATALOG[name]
    for size in entry.sizes:
        config = entry.configure(size)
        written = tomllib.loads(tomli_w.dumps(config.model_dump(mode="json")))
        assert validate(type(config), written) == config
