"""The plan of a decoding step against the modules it stands for."""

import pytest
import torch

from headwise.blocks.cache import DecodingCache
from headwise.blocks.record import record
from headwise.blocks.stream import Context
from headwise.models.transformer import TransformerConfig

SHORT = [  # models whose every part has a short form
    {},
    {"wiring": "pre", "norm": "rms", "activation": "swiglu"},
    {"attention_bias": False, "mlp_bias": False, "positions": "learned"},
    {"decoder": {"depth": 3, "shared": True}},
    {
        "positions": "rotary",
        "decoder": {"layers": [["attention", {"attend_to": "memory", "score_mods": ["rotary"]}, "mlp"]]},
    },
    {"positions": "rotary", "decoder": {"layers": [[{"key_value_heads": 1}, {"attend_to": "memory"}, "mlp"]]}},
]
WHOLE = [  # models with parts that run as they are
    {"positions": "t5", "wiring": "pre"},
    {"decoder": {"layers": [["attention", {"attend_to": "memory", "kernel": "plain"}, "mlp"]]}},
]


def built(settings):
    torch.manual_seed(1)
    stack = {"depth": 2}
    settings = {"encoder": stack, "decoder": stack, **settings}
    return TransformerConfig.model_validate({"width": 16, "heads": 2, **settings}).build(20).eval()


SOURCE = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0], [9, 9, 2, 0]])


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("settings", SHORT + WHOLE, ids=str)
@torch.no_grad()
def test_plan_and_modules_give_the_same_and_may_take_turns(settings, beams):
    model = built(settings)
    planned, turns = model.start(SOURCE, beams), model.start(SOURCE, beams)
    tokens = torch.ones(3 * beams, dtype=torch.long)
    for step in range(5):
        logits, planned = model.step(tokens, planned)
        if step % 2:
            other, turns = model.step(tokens, turns)
        else:
            with record():  # goes through the modules, which show their attention
                other, turns = model.step(tokens, turns)
        torch.testing.assert_close(logits, other)
        tokens = logits.argmax(-1)
        if step == 2:  # the middle source goes, and the beams of the others change places
            rows = torch.tensor([0, 2] if beams == 1 else [1, 0, 5, 4])
            planned, turns, tokens = planned.select(rows), turns.select(rows), tokens[rows]


@torch.no_grad()
def test_sinusoids_go_on_beyond_those_that_are_stored():
    embed = built({}).decoder.embed
    step, stored, tokens = embed.stepper(), len(embed.positions.table), torch.tensor([7, 8])
    for position in (stored - 1, stored):
        stream, expected = step(tokens, position, None), embed(tokens[:, None], start=position)
        torch.testing.assert_close(stream.x, expected.x)
        assert torch.equal(stream.pos, expected.pos)


@pytest.mark.parametrize("settings", SHORT + WHOLE, ids=str)
@torch.no_grad()
def test_modules_are_called_only_where_a_part_has_no_short_form(settings):
    model = built(settings)
    state = model.start(SOURCE)
    called = []
    for part in (part for layer in model.decoder.stack.layers for part in layer.parts):
        part.register_forward_hook(lambda *_: called.append(1))
    model.step(torch.tensor([1, 1, 1]), state)
    assert bool(called) == (settings in WHOLE)


@torch.no_grad()
def test_masks_of_one_step_do_not_outlive_it():
    model = built({"positions": "t5"})
    ctx = Context(model.encoder.read(SOURCE), DecodingCache(len(SOURCE)))
    step, sizes = model.decoder.stepper(ctx), set()
    for length in range(4):
        step(torch.tensor([1, 1, 1]), length, None)
        sizes.add(len(ctx.shared))
    assert len(sizes) == 1 and sizes != {0}
