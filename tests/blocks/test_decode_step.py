"""Decode steps against the modules that they replace, and which subclasses inherit them."""

import pytest
import torch
from torch import nn

from headwise.blocks.admin import Admin
from headwise.blocks.attention.multihead import Attention, CrossProjection, QKVProjection, SelfProjection
from headwise.blocks.attention.projections import GroupedQueryProjection, NoKeyBiasProjection
from headwise.blocks.attention.score_mods import Causal, Padding, Window
from headwise.blocks.attention.scores import Cosine, General
from headwise.blocks.cache import DecodingCache
from headwise.blocks.decode_step import EmbeddingStep, FunctionStep, PositionStep, to_function
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.latents import PerceiverAttention, PerceiverSelfProjection
from headwise.blocks.mixers.linear import LinearAttention
from headwise.blocks.mixers.recurrent import Lstm, Recurrent
from headwise.blocks.norm import LayerNorm, RMSNorm
from headwise.blocks.positions.absolute import AxialPositions, LearnedPositions, SinusoidalPositions
from headwise.blocks.positions.alibi import Alibi
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.positions.rotary import Rotary
from headwise.blocks.record import record
from headwise.blocks.residual import (
    Dropout,
    DropPath,
    LayerScaleAdd,
    NoResidual,
    ParallelPreNorm,
    PostNorm,
    PreNorm,
    ResidualAdd,
    ResPostNorm,
    SandwichNorm,
)
from headwise.blocks.stack import Embedding, Stack, TaskTypes, TokenTypes
from headwise.blocks.stream import Context, LayerStep, Stream, run_module
from headwise.errors import UserError
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


def build_model(settings):
    torch.manual_seed(1)
    stack = {"depth": 2}
    settings = {"encoder": stack, "decoder": stack, **settings}
    return TransformerConfig.model_validate({"width": 16, "heads": 2, **settings}).build(20).eval()


SOURCE = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0], [9, 9, 2, 0]])


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("settings", SHORT + WHOLE, ids=str)
@torch.no_grad()
def test_decode_steps_equal_modules_and_may_take_turns(settings, beams):
    model = build_model(settings)
    stepped, turns = model.start(SOURCE, beams), model.start(SOURCE, beams)
    tokens = torch.ones(3 * beams, dtype=torch.long)
    for step in range(5):
        logits, stepped = model.step(tokens, stepped)
        if step % 2:
            other, turns = model.step(tokens, turns)
        else:
            with record():  # goes through the modules, which show their attention
                other, turns = model.step(tokens, turns)
        torch.testing.assert_close(logits, other)
        tokens = logits.argmax(-1)
        if step == 2:  # the middle source goes, and the beams of the others change places
            rows = torch.tensor([0, 2] if beams == 1 else [1, 0, 5, 4])
            stepped, turns, tokens = stepped.select(rows), turns.select(rows), tokens[rows]


@torch.no_grad()
def test_sinusoids_go_on_after_the_precomputed_rows():
    embed = build_model({}).decoder.embed
    step, stored, tokens = embed.build_decode_step(), len(embed.positions.table), torch.tensor([7, 8])
    for position in (stored - 1, stored):
        stream, expected = step(tokens, position, None), embed(tokens[:, None], start=position)
        torch.testing.assert_close(stream.x, expected.x)
        assert torch.equal(stream.pos, expected.pos)


@pytest.mark.parametrize("settings", SHORT + WHOLE, ids=str)
@torch.no_grad()
def test_modules_are_called_only_where_a_part_has_no_short_form(settings):
    model = build_model(settings)
    state = model.start(SOURCE)
    called = []
    for part in (part for layer in model.decoder.stack.layers for part in layer.parts):
        part.register_forward_hook(lambda *_: called.append(1))
    model.step(torch.tensor([1, 1, 1]), state)
    assert bool(called) == (settings in WHOLE)


@torch.no_grad()
def test_masks_of_one_step_do_not_outlive_it():
    model = build_model({"positions": "t5"})
    ctx = Context(model.encoder.read(SOURCE), DecodingCache(len(SOURCE)))
    step, sizes = model.decoder.build_decode_step(ctx), set()
    for length in range(4):
        step(torch.tensor([1, 1, 1]), length, None)
        sizes.add(len(ctx.shared))
    assert len(sizes) == 1 and sizes != {0}


WIDTH, HEADS, HEAD = 16, 2, 8
NORM = lambda: LayerNorm(WIDTH)  # noqa: E731


def build_attention(*score_mods, **settings):
    return Attention(WIDTH, HEADS, score_mods=[*score_mods, Causal()], **settings)


def build_parts():
    return [build_attention(Rotary(HEAD)), Attention(WIDTH, HEADS, qkv=CrossProjection(WIDTH, HEADS, HEAD))]


LAYERS = {
    "attention": build_attention,
    "rotary": lambda: build_attention(Rotary(HEAD)),
    "alibi": lambda: build_attention(Alibi(HEADS)),
    "window": lambda: build_attention(Window(2, 0)),
    "cosine": lambda: build_attention(score=Cosine(HEADS)),
    "general": lambda: build_attention(score=General(HEAD, HEAD, HEADS)),
    "grouped": lambda: build_attention(Rotary(HEAD), qkv=GroupedQueryProjection(WIDTH, HEADS, HEAD, key_value_heads=1)),
    "no key bias": lambda: build_attention(qkv=NoKeyBiasProjection(WIDTH, HEADS, HEAD)),
    "uneven": lambda: PerceiverAttention(
        WIDTH, HEADS, 4, HEAD, qkv=PerceiverSelfProjection(WIDTH, HEADS, 4, HEAD), score_mods=[Causal()]
    ),
    "cross": lambda: Attention(WIDTH, HEADS, qkv=CrossProjection(WIDTH, HEADS, HEAD)),
    "cross rotary": lambda: Attention(WIDTH, HEADS, qkv=CrossProjection(WIDTH, HEADS, HEAD), score_mods=[Rotary(HEAD)]),
    "relu": lambda: FeedForward(WIDTH, 24, dropout=0.3),
    "geglu": lambda: FeedForward(WIDTH, 24, "geglu", bias=False),
    "chunks": lambda: FeedForward(WIDTH, 24, chunk=2),
    "recurrent": lambda: Recurrent(WIDTH, Lstm(WIDTH, WIDTH)),
    "linear": lambda: LinearAttention(WIDTH, HEADS, causal=True),
    "post": lambda: PostNorm(build_parts(), NORM, lambda: ResidualAdd(0.3, 0.2)),
    "pre": lambda: PreNorm(build_parts(), lambda: RMSNorm(WIDTH)),
    "respost": lambda: ResPostNorm(build_parts(), NORM),
    "sandwich": lambda: SandwichNorm(build_parts(), NORM),
    "parallel": lambda: ParallelPreNorm(build_parts(), NORM),
    "chain": lambda: NoResidual(build_parts(), add=lambda: ResidualAdd(0.3)),
    "layer scale": lambda: PreNorm(build_parts(), NORM, lambda: LayerScaleAdd(WIDTH, 0.5)),
    "admin": lambda: Admin(build_parts(), NORM),
    "stack": lambda: Stack(
        [PostNorm(build_parts(), NORM), PreNorm(build_parts(), NORM)], LayerNorm(WIDTH), layer_numbers=(0, 1, 0)
    ),
}


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_a_decode_step_is_its_module_on_one_token(name, beams):
    torch.manual_seed(2)
    module = LAYERS[name]().double().eval()
    for parameter in module.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    keep = torch.tensor([[True] * 4, [True, True, False, False]])
    memory = {"encoder": Stream.of(torch.randn(2, 4, WIDTH, dtype=torch.float64), keep)}
    short, whole = (
        make(Context(memory, DecodingCache(2 * beams, beams)))
        for make in (module.build_decode_step, lambda ctx: run_module(module, ctx))
    )
    for position in range(5):
        x, pos = torch.randn(2 * beams, WIDTH, dtype=torch.float64), torch.tensor([position])
        at = Stream(x.unsqueeze(1), pos)
        torch.testing.assert_close(short(x, at), whole(x, at))


@pytest.mark.parametrize(
    "module",
    [
        LayerNorm(WIDTH),
        RMSNorm(WIDTH),
        nn.Linear(WIDTH, 5),
        nn.Linear(WIDTH, 5, bias=False),
        nn.Identity(),
        Dropout(0.5),
        DropPath(0.5),
        nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh()),
    ],
    ids=lambda module: type(module).__name__,
)
@torch.no_grad()
def test_an_inlined_module_is_the_same_function(module):
    x = torch.randn(3, WIDTH)
    torch.testing.assert_close(to_function(module.eval())(x), module(x))


EMBEDDINGS = {
    "sinusoid": lambda: Embedding(nn.Embedding(20, WIDTH), SinusoidalPositions(WIDTH, cached=6), 4.0),
    "learned": lambda: Embedding(nn.Embedding(20, WIDTH), LearnedPositions(WIDTH, 9, offset=2), dropout=0.4),
    "axial": lambda: Embedding(nn.Embedding(20, WIDTH), AxialPositions((3, 4), (4, 12)), 2.0),
    "none": lambda: Embedding(
        nn.Embedding(20, WIDTH), NoPositions(), 3.0, types=TokenTypes(WIDTH), tasks=TaskTypes(WIDTH, 3)
    ),
    "wider": lambda: Embedding(
        nn.Embedding(20, WIDTH), LearnedPositions(WIDTH, 9), norm=LayerNorm(WIDTH), projection=nn.Linear(WIDTH, 24)
    ),
    "longest vectors": lambda: Embedding(nn.Embedding(20, WIDTH, max_norm=1.0), NoPositions()),
}


@pytest.mark.parametrize(
    "padding_lengths", [None, torch.tensor([[0], [3], [1]])], ids=["one length", "different lengths"]
)
@pytest.mark.parametrize("name", EMBEDDINGS)
@torch.no_grad()
def test_the_decode_step_of_an_embedding(name, padding_lengths):
    torch.manual_seed(2)
    embed = EMBEDDINGS[name]().eval()
    step, whole = embed.build_decode_step(), EmbeddingStep.build_decode_step(embed)
    for length in range(3, 9):
        tokens = torch.randint(0, 20, (3,))
        stream, expected = step(tokens, length, padding_lengths), whole(tokens, length, padding_lengths)
        torch.testing.assert_close(stream.x, expected.x)
        assert torch.equal(stream.pos, expected.pos)


def test_a_step_after_the_last_learned_position_is_refused():
    embed = EMBEDDINGS["learned"]().eval()
    with pytest.raises(UserError, match="a sequence of 10 tokens does not fit the learned table of 9"):
        embed.build_decode_step()(torch.tensor([4, 5]), 9, None)


class NegatedNorm(LayerNorm):
    def forward(self, x):
        return -super().forward(x)


class DoubledAttention(Attention):
    def transform(self, stream, ctx):
        return 2 * super().transform(stream, ctx)


class NamedAttention(Attention):
    """Changes nothing that a decode step stands for."""

    kind = "named"

    def __init__(self, width, heads):
        super().__init__(width, heads, score_mods=[Causal()])

    def describe(self):
        return self.kind


class Doubling:
    """Changes what a class with which it is mixed gives, whether it stands before or after it."""

    def add_residual(self, x, branch, norm, add):
        return super().add_residual(x, 2 * branch, norm, add)


class DoublingForward(LayerStep):
    def forward(self, stream, ctx):
        out = super().forward(stream, ctx)
        return out.with_x(2 * out.x)


class MixedBefore(DoublingForward, PostNorm):
    pass


class MixedHook(Doubling, PreNorm):
    pass


class SwappedProjection(SelfProjection):
    def split(self, fused):
        q, k, v = super().split(fused)
        return k, q, v


class TiedGrouped(GroupedQueryProjection):
    def split(self, fused):
        q, k, _ = super().split(fused)
        return q, k, k


class Squared(FeedForward):
    def feed_forward(self, x, inner, drop, outer):
        return super().feed_forward(x, inner, drop, outer) ** 2


class Reversed(Stack):
    def forward(self, stream, ctx):
        for index, layer in enumerate(reversed(self.layers)):
            stream = layer(stream, ctx.at(index))
        return stream


class OnlyOld(Causal):
    """A mask that hides more than later keys."""

    def mask(self, layout):
        mask = super().mask(layout)
        newest = (torch.arange(layout.keys) == layout.keys - 1).unsqueeze(0)  # (1, Tk)
        return newest & (layout.keys > 1) if mask is None else mask


SUBCLASSES = {
    "norm": (lambda: PostNorm(build_parts(), lambda: NegatedNorm(WIDTH)), None),
    "transform": (lambda: DoubledAttention(WIDTH, HEADS, score_mods=[Causal()]), LayerStep),
    "nothing": (lambda: NamedAttention(WIDTH, HEADS), Attention),
    "forward of a mixin": (lambda: MixedBefore(build_parts(), NORM), LayerStep),
    "hook that is called": (lambda: MixedHook(build_parts(), NORM), PreNorm),
    "split": (lambda: build_attention(qkv=SwappedProjection(WIDTH, HEADS, HEAD)), Attention),
    "split of shared keys": (lambda: build_attention(qkv=TiedGrouped(WIDTH, HEADS, HEAD)), Attention),
    "what the decode step calls": (lambda: Squared(WIDTH, 24), FeedForward),
    "stack": (lambda: Reversed([PostNorm(build_parts(), NORM), PreNorm(build_parts(), NORM)]), LayerStep),
    "mask": (lambda: build_attention(OnlyOld()), Attention),
}


@pytest.mark.parametrize("name", SUBCLASSES)
@torch.no_grad()
def test_a_subclass_inherits_no_decode_step_of_what_it_overrides(name, monkeypatch):
    make, owner = SUBCLASSES[name]
    if owner is not None:
        assert make().build_decode_step.__func__ is owner.build_decode_step
    monkeypatch.setitem(LAYERS, name, make)
    test_a_decode_step_is_its_module_on_one_token.__wrapped__(name, 1)


def test_each_kind_of_module_falls_back_to_its_own_generic_form():
    assert NegatedNorm.build_decode_step is FunctionStep.build_decode_step
    assert SwappedProjection.build_decode_step is TiedGrouped.build_decode_step is QKVProjection.build_decode_step
    assert AxialPositions.build_decode_step is PositionStep.build_decode_step
    assert (
        LayerScaleAdd.build_decode_step is FunctionStep.build_decode_step
        and Admin.build_decode_step is LayerStep.build_decode_step
    )
    own = type("Own", (NegatedNorm,), {"build_decode_step": lambda self: torch.neg})
    assert own(WIDTH).build_decode_step() is torch.neg
    assert type("Further", (own,), {})(WIDTH).build_decode_step() is torch.neg
    assert type("Changed", (own,), {"forward": LayerNorm.forward}).build_decode_step is FunctionStep.build_decode_step


def test_a_subclass_does_not_inherit_declarations_about_another_mask():
    assert Causal.causal and Causal.is_causal_mask and not Causal.masks_past and not Padding.masks_past
    assert OnlyOld.masks_past and not OnlyOld.causal and not OnlyOld.is_causal_mask and Window.masks_past
