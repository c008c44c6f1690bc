"""Alignment scores: their formulas and limits, alone, in attention and in a decoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headwise import build
from headwise.blocks.attention.kernels import chunked, plain, sdpa
from headwise.blocks.attention.multihead import Attention, AttentionConfig, CrossProjection
from headwise.blocks.attention.score_mods import AttentionInputs, AttentionLayout, Causal, Dot, Padding, Score
from headwise.blocks.attention.scores import Additive, BoundedCosine, Cosine, General, Location
from headwise.blocks.cache import DecodingCache
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import SCORES
from headwise.config.base import UserError, validate

ROWS, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 4, 6, 5
BY_PLACE = {
    "random",
    "factorised",
    "mixture",
}  # know queries by position: test_synthesizer.py
KINDS = [kind for kind in SCORES.names if kind not in BY_PLACE]
FUSED = ["scaled", "dot", "general", "cosine", "bounded_cosine"]
close = torch.testing.assert_close


def build_score(kind: str, width_k: int = WIDTH, **settings: object) -> Score:
    return SCORES.parse({"kind": kind, **settings}).build(WIDTH, width_k, HEADS).double()


def draw_vectors(length: int, width: int = WIDTH) -> Tensor:
    return torch.randn(ROWS, HEADS, length, width, dtype=torch.float64)


def score_bahdanau(score: Additive, q: Tensor, k: Tensor) -> Tensor:
    """v tanh(W [q; k]) with the two vectors side by side."""
    pairs = torch.cat((q.unsqueeze(3).expand(-1, -1, -1, KEYS, -1), k.unsqueeze(2).expand(-1, -1, QUERIES, -1, -1)), -1)
    both = torch.cat((score.query, score.key), dim=1)  # (H, Dq, A), (H, Dk, A) -> (H, Dq + Dk, A)
    return torch.einsum("hal,bhqka->bhqk", score.out, torch.einsum("bhqkd,hda->bhqka", pairs, both).tanh())


def score_cosine(score: Cosine, q: Tensor, k: Tensor) -> Tensor:
    lengths = torch.einsum("bhq,bhk->bhqk", q.norm(dim=-1), k.norm(dim=-1))
    return score.beta * torch.einsum("bhqd,bhkd->bhqk", q, k) / lengths


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "scaled": lambda score, q, k: torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(WIDTH),
    "dot": lambda score, q, k: torch.einsum("bhqd,bhkd->bhqk", q, k),
    "general": lambda score, q, k: torch.einsum("bhqd,hed,bhke->bhqk", q, score.weight, k),
    "additive": score_bahdanau,
    "cosine": score_cosine,
    "bounded_cosine": lambda score, q, k: 10 * torch.cosine_similarity(q.unsqueeze(3), k.unsqueeze(2), dim=-1),
    "location": lambda score, q, k: torch.einsum("bhqd,hdk->bhqk", q, score.weight)[..., :KEYS],
    "dense": lambda score, q, k: torch.einsum("bhqd,hdk->bhqk", q.clamp(min=0), score.weight)[..., :KEYS],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_its_formula(kind: str) -> None:
    score, q, k = build_score(kind), draw_vectors(QUERIES), draw_vectors(KEYS)
    expected = REFERENCES[kind](score, q, k)
    close(score(q, k), expected)
    close(score.score_cached_keys(q, score.project_key(k)), expected)
    one = score.score_cached_keys(q[:, :, 2:3], score.project_key(k))  # one query, as in a recurrent decoder
    close(one, expected[:, :, 2:3])


@pytest.mark.parametrize("kind", ["general", "additive", "location", "dense"])
def test_queries_and_keys_may_differ_in_width(kind: str) -> None:
    score, q, k = build_score(kind, width_k=7), draw_vectors(QUERIES), draw_vectors(KEYS, 7)
    close(score(q, k), REFERENCES[kind](score, q, k))


@pytest.mark.parametrize("kind", ["scaled", "dot", "cosine"])
def test_dot_products_of_different_widths_are_refused(kind: str) -> None:
    with pytest.raises(UserError, match=f"score: '{kind}' needs queries and keys of one width, not 5 and 7"):
        build_score(kind, width_k=7)


def test_dot_is_general_with_the_identity() -> None:
    general = General(WIDTH, WIDTH, HEADS).double()
    general.weight.data.copy_(torch.eye(WIDTH))
    q, k = draw_vectors(QUERIES), draw_vectors(KEYS)
    close(general(q, k), Dot()(q, k))


def test_cosines_lie_within_one_and_ignore_norms() -> None:
    score, q, k = build_score("cosine"), draw_vectors(QUERIES), draw_vectors(KEYS)
    assert score(q, k).abs().max() <= 1
    close(score(100 * q, 0.01 * k), score(q, k))
    close(score(q, q).diagonal(dim1=-2, dim2=-1), torch.ones(ROWS, HEADS, QUERIES).double())
    assert torch.equal(score(q, 0 * k), torch.zeros(ROWS, HEADS, QUERIES, KEYS).double())


def test_a_fixed_beta_is_not_learned() -> None:
    assert [p.requires_grad for p in build_score("cosine", beta=3.0).parameters()] == [True]
    fixed = build_score("cosine", beta=3.0, learned=False)
    assert not any(p.requires_grad for p in fixed.parameters())
    close(fixed(draw_vectors(2), draw_vectors(2)).abs().le(3).all(), torch.tensor(True))


def test_location_reads_no_key_and_ends_at_max_length() -> None:
    score, q = build_score("location", max_length=KEYS), draw_vectors(QUERIES)
    assert torch.equal(score(q, draw_vectors(KEYS)), score(q, draw_vectors(KEYS)))
    with pytest.raises(UserError, match="'location' has 6 positions, too few for 7 keys; raise its max_length"):
        score(q, draw_vectors(KEYS + 1))
    assert not Attention(8, 2, score=Location(4, 2, 9)).properties.length_free


@pytest.mark.parametrize("kind", KINDS)
def test_equal_scores_give_the_mean_of_the_values(kind: str) -> None:
    score, q, v = build_score(kind), draw_vectors(QUERIES), draw_vectors(KEYS)
    if kind in ("location", "dense"):
        q = 0 * q
    k = draw_vectors(1).expand(-1, -1, KEYS, -1)
    out = plain(AttentionInputs(q, score.project_key(k), v, score.scale, AttentionLayout(QUERIES, KEYS), score=score))
    close(out, v.mean(2, keepdim=True).expand_as(out))


def test_a_sharp_score_retrieves_the_value_of_the_same_key() -> None:
    k, v = draw_vectors(KEYS), draw_vectors(KEYS)
    sharp = build_score("cosine", beta=1e4)
    close(plain(AttentionInputs(k, sharp.project_key(k), v, 1.0, AttentionLayout(KEYS, KEYS), score=sharp)), v)


def make_inputs(score: Score) -> AttentionInputs:
    q, k, v = (draw_vectors(n).requires_grad_() for n in (QUERIES, KEYS, KEYS))
    keep = torch.tensor([[True] * KEYS, [True] * 4 + [False] * 2])
    layout = AttentionLayout(QUERIES, KEYS, torch.arange(2, 6), torch.arange(KEYS), keep)
    return AttentionInputs(q, k, v, score.scale, layout, (Causal(), Padding()), score=score)


def run_with_gradients(kernel: Callable[[AttentionInputs], Tensor], inputs: AttentionInputs) -> list[Tensor]:
    out = kernel(replace(inputs, k=inputs.score.project_key(inputs.k), shared={}))
    leaves = [inputs.q, inputs.k, inputs.v, *inputs.score.parameters()]
    return [out, *torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_agree_on_every_score(kind: str) -> None:
    inputs = make_inputs(build_score(kind))
    expected = run_with_gradients(plain, inputs)
    close(run_with_gradients(lambda inputs: chunked(inputs, 3), inputs), expected)
    if kind in FUSED:
        close(run_with_gradients(sdpa, inputs), expected)
    else:
        with pytest.raises(UserError, match=f"'sdpa' cannot take {type(inputs.score).__name__}"):
            sdpa(inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_dot_products_use_the_fused_kernel(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    real = torch.nn.functional.scaled_dot_product_attention
    spy = lambda *args, **rest: called.append(1) or real(*args, **rest)  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    Attention(8, 2, score=SCORES.parse(kind).build(4, 4, 2))(torch.randn(2, 5, 8))
    assert bool(called) == (kind in FUSED)


class Counted(Additive):
    """Counts how often keys are projected."""

    calls = 0

    def project_key(self, k: Tensor) -> Tensor:
        self.calls += 1
        return super().project_key(k)


def test_keys_of_a_source_are_projected_once_and_shared_by_its_beams() -> None:
    score = Counted(4, 4, 2, 3)
    attention = Attention(8, 2, qkv=CrossProjection(8, 2, 4), score=score).double().eval()
    memory, x = torch.randn(2, 5, 8).double(), torch.randn(6, 4, 8).double()
    alone = attention(Stream.of(x), Context({"encoder": Stream.of(memory.repeat_interleave(3, 0))}))
    score.calls = 0
    ctx = Context({"encoder": Stream.of(memory)}, DecodingCache(rows=6, beams=3))
    close(torch.cat([attention(Stream.of(x[:, t : t + 1], start=t), ctx) for t in range(4)], dim=1), alone)
    assert score.calls == 1


@pytest.mark.parametrize("positions", ["sinusoid", "rotary", "shaw"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_one_forward_pass(kind: str, positions: str) -> None:
    score = {"kind": kind, **({"hidden": 3} if kind == "additive" else {})}
    layer = [{"score": score}, {"attend_to": "memory", "score": score}, "mlp"]
    stacks = {
        "encoder": {"depth": 1, "layers": [[{"score": score}, "mlp"]]},
        "decoder": {"depth": 2, "layers": [layer]},
    }
    model = build("transformer-tiny", vocab=20, width=16, heads=2, positions=positions, **stacks).double().eval()
    source, target = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]]), torch.randint(4, 20, (4, 6))
    state, steps = model.start(source, beams=2), []
    for tokens in target.unbind(1):
        logits, state = model.step(tokens, state)
        steps.append(logits)
    close(torch.stack(steps, dim=1), model(source.repeat_interleave(2, 0), target))


def test_a_score_in_a_file_is_a_name_or_a_table() -> None:
    config = validate(AttentionConfig, {"score": {"kind": "additive", "hidden": 7}})
    assert config == AttentionConfig.model_validate(config.model_dump(mode="json"))
    assert config.score.build(4, 5, 2).key.shape == (2, 5, 7)
    assert validate(AttentionConfig, {"score": "dot"}).score == SCORES.parse("dot")
    with pytest.raises(UserError, match=r"score.kind: no score is called 'addition'; did you mean additive"):
        validate(AttentionConfig, {"score": "addition"})


@torch.no_grad()
def test_a_bounded_cosine_is_never_more_than_a_hundred_times_the_cosine() -> None:
    """Liu et al. (2022), section 3.2: tau is not set smaller than 0.01."""
    score = BoundedCosine(heads=2)
    score.log_factor.copy_(torch.tensor([math.log(50.0), math.log(5000.0)]).view(2, 1, 1))
    x = torch.randn(1, 2, 3, 4)
    diagonal = score(x, x).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, torch.tensor([50.0, 100.0]).view(1, 2, 1).expand(1, 2, 3))
