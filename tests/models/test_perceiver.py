"""Perceiver IO: published size, dependence of latents on inputs, and linear cost."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import headwise
from headwise.blocks.stack import count_parameters
from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError

IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 4, 5, 0, 0, 0]])


def build_tiny(task="masked", **settings):
    torch.manual_seed(0)
    model = headwise.build("perceiver-tiny", vocab=12, outputs=7 if task != "masked" else 0, task=task, **settings)
    return model.double().eval()


def test_the_byte_model_has_the_published_size():
    assert count_parameters(headwise.build("perceiver", device="meta")) == 201_108_230


@torch.no_grad()
def test_inputs_are_a_set_of_bytes_with_positions():
    """Another order of the same (byte, position) pairs changes no latent; without the positions it would."""
    encoder = build_tiny().encoder
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    pos = torch.arange(6)
    before = encoder.perceive(encoder.embed(IDS[:1]), Context()).x
    moved = encoder.perceive(encoder.embed(IDS[:1, order], pos=pos[order]), Context()).x
    torch.testing.assert_close(moved, before)
    assert not torch.allclose(encoder.perceive(encoder.embed(IDS[:1, order]), Context()).x, before)


@torch.no_grad()
def test_the_encoder_reads_anything_with_channels():
    encoder = build_tiny().encoder
    seen = encoder.perceive(Stream.of(torch.randn(3, 50, 24).double()), Context())
    assert seen.x.shape == (3, 8, 32)


def flops(length):
    model = headwise.build("perceiver-tiny", vocab=12, positions={"kind": "learned", "max_length": 4096}, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(1, length, dtype=torch.long, device="meta"))
    return counter.get_total_flops()


def test_the_cost_is_linear_in_the_length():
    one, two, four = (flops(length) for length in (1024, 2048, 4096))
    assert four - two == 2 * (two - one) > 0


@torch.no_grad()
def test_texts_are_classified_by_latents_and_tokens_by_queries():
    labelled = build_tiny("classify").encoder(IDS, Context())
    assert labelled.x.shape == (2, 8, 32) and labelled.keep is None
    placed = build_tiny("tag").encoder(IDS, Context())
    assert placed.x.shape == (2, 6, 24) and placed.keep.tolist() == (IDS != 0).tolist()
    assert build_tiny("encode")(IDS).shape == (2, 24)


@torch.no_grad()
def test_an_output_query_is_its_position_alone():
    """Latents that were told nothing leave outputs that depend on the place alone; latents that read differ."""
    model = build_tiny()
    encoder = model.encoder
    inputs = encoder.embed(IDS[:1])
    silent = Stream.of(torch.zeros(1, 8, 32).double())
    first, again = (encoder.outputs(each, silent, Context()).x for each in (inputs, encoder.embed(IDS[:1].flip(1))))
    torch.testing.assert_close(first, again)
    told = encoder.outputs(inputs, encoder.perceive(inputs, Context()), Context()).x
    assert not torch.allclose(first, told)


def test_maps_of_latents_are_recorded():
    model = build_tiny()
    with headwise.record() as maps:
        model(IDS)
    shapes = {place: tuple(found.shape) for place, found in maps.select().items()}
    assert shapes["encoder", 0, 0] == (2, 4, 8, 6), "latents look at bytes"
    assert shapes["encoder", 1, 0] == (2, 4, 8, 8), "and at each other"
    assert shapes["outputs", 0] == (2, 4, 6, 8), "places look at latents"
    assert (maps.select("encoder", 0)["encoder", 0, 0][1, :, :, 3:] == 0).all(), "nobody looks at padding"


@pytest.mark.parametrize("kind", ["rotary", "alibi", "t5"])
def test_relative_positions_are_refused(kind):
    with pytest.raises(
        UserError, match=f"'{kind}' is relative, but latents have no positions; use learned or sinusoid"
    ):
        build_tiny(positions=kind)


def test_a_reversible_wiring_is_refused():
    with pytest.raises(UserError, match="two halves of reversible layers; use pre or post"):
        build_tiny(wiring="reversible")


def test_other_positions_and_parts_work():
    assert build_tiny(positions="sinusoid")(IDS).shape == (2, 6, 12)
    assert build_tiny(mixer="attention", cross_attention={"kind": "attention", "attend_to": "memory"})(IDS).shape == (
        2,
        6,
        12,
    )


def test_perceiver_attention_needs_a_memory_and_a_divisible_width():
    with pytest.raises(UserError, match="there is no memory in this stack"):
        headwise.build("bert-tiny", vocab=12, mixer={"kind": "perceiver", "attend_to": "memory"})
    with pytest.raises(UserError, match="cannot be divided among 5 heads"):
        headwise.build("bert-tiny", vocab=12, mixer={"kind": "perceiver", "heads": 5})
    with pytest.raises(UserError, match="positions: shaw"):
        headwise.build("bert-tiny", vocab=12, positions="shaw", mixer={"kind": "perceiver", "value_width": 3})


@torch.no_grad()
def test_perceiver_attention_with_even_widths_is_attention():
    torch.manual_seed(0)
    uneven, even = (headwise.build("bert-tiny", vocab=12, mixer=kind).eval() for kind in ("perceiver", "attention"))
    even.load_state_dict(uneven.state_dict())
    torch.testing.assert_close(uneven(IDS), even(IDS))
