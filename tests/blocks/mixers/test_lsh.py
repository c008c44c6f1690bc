"""LSH attention: against the definition written out pair by pair; causality, padding, any length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import headwise
from headwise import UserError
from headwise.blocks.attention.score_mods import AttentionLayout
from headwise.blocks.cache import DecodingCache
from headwise.blocks.mixers import lsh_chunks
from headwise.blocks.mixers.lsh import LSHAttention, LshConfig
from headwise.blocks.record import AttentionRecord
from headwise.blocks.stream import Context, Stream
from headwise.config.base import validate
from headwise.testing import assert_causal

close = torch.testing.assert_close
FORMS: dict[str, dict[str, Any]] = {
    "encoder": {},
    "encoder-buckets": {"buckets": 8},
    "decoder": {"causal": True},
    "decoder-buckets": {"causal": True, "buckets": 8},
    "decoder-halves": {"causal": True, "buckets": 4, "chunk": 4},  # blocks of two tokens with up to four key blocks
}


def build_mixer(chunk: int = 3, rounds: int = 3, width: int = 16, **settings: Any) -> LSHAttention:
    torch.manual_seed(0)
    return LSHAttention(width, heads=2, chunk=chunk, rounds=rounds, **settings).double().eval()


def make_texts(rows: int = 2, length: int = 40, width: int = 16, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, length, width, dtype=torch.float64, generator=generator)


def project_and_hash(lsh: LSHAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and buckets (B, H, R, T)."""
    q, k, v = lsh.qkv.split(lsh.qkv.project(x))
    return q, k, v, lsh.compute_buckets(k, AttentionLayout(x.shape[1], x.shape[1]), Context())


def list_keys(buckets: list[int], chunk: int, causal: bool) -> list[set[int]]:
    """The keys of each token in one hash round: tokens sorted by bucket and index, in chunks that attend to themselves
    and the chunk before."""
    order = sorted(range(len(buckets)), key=lambda t: (buckets[t], t))
    if causal:  # chunks of each bucket alone
        chunk_of = {t: sum(buckets[j] == buckets[t] for j in range(t)) // chunk for t in order}
    else:
        chunk_of = {t: rank // chunk for rank, t in enumerate(order)}
    return [
        {
            j
            for j in range(len(buckets))
            if buckets[i] == buckets[j] and chunk_of[i] - chunk_of[j] in (0, 1) and (j < i if causal else j != i)
        }
        for i in range(len(buckets))
    ]


def compute_by_definition(lsh: LSHAttention, x: Tensor) -> Tensor:
    """One softmax over the keys of a token in all rounds, each counted once; over the token itself if it has none."""
    q, k, v, buckets = project_and_hash(lsh, x)
    out = torch.zeros_like(v)
    for b in range(len(x)):
        for h in range(lsh.heads):
            rounds = [list_keys(buckets[b, h, r].tolist(), lsh.chunk, lsh.causal) for r in range(lsh.rounds)]
            for i in range(x.shape[1]):
                keys = sorted(set.union(*(keys[i] for keys in rounds))) or [i]
                out[b, h, i] = (q[b, h, i] @ k[b, h, keys].T).softmax(-1) @ v[b, h, keys]
    return lsh.out(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_it_is_one_softmax_over_the_keys_of_all_rounds(form: str) -> None:
    lsh, x = build_mixer(**FORMS[form]), make_texts()
    close(lsh(x), compute_by_definition(lsh, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_chunk_as_long_as_the_text_is_full_attention_to_all_others(causal: bool) -> None:
    lsh, x = build_mixer(chunk=40, causal=causal), make_texts()
    q, k, v, _ = project_and_hash(lsh, x)
    hidden = torch.ones(40, 40, dtype=torch.bool).triu() if causal else torch.eye(40, dtype=torch.bool)
    hidden[0, 0] = not causal  # the first token of a causal text has no other key
    mixed = (q @ k.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    close(lsh(x), lsh.out(mixed.transpose(1, 2).flatten(2)), rtol=0, atol=1e-12)


@torch.no_grad()
def test_keys_are_queries_of_length_one() -> None:
    q, k, _, _ = project_and_hash(build_mixer(), make_texts())
    close(k, q / q.norm(dim=-1, keepdim=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_pair_that_shares_a_bucket_in_several_rounds_counts_once(causal: bool) -> None:
    x, once, thrice = make_texts(), build_mixer(rounds=1, causal=causal), build_mixer(rounds=3, causal=causal)
    thrice.rotations[:] = once.rotations
    close(thrice(x), once(x), rtol=0, atol=1e-12)


@torch.no_grad()
def test_recall_of_the_nearest_keys_rises_with_rounds() -> None:
    """The share of the 8 largest scores of each query whose keys LSH attends to."""
    x, recall = make_texts(rows=1, length=256, width=32), []
    for rounds in (1, 2, 4, 8):
        lsh, maps = build_mixer(chunk=16, rounds=rounds, width=32), AttentionRecord()
        q, k, _, _ = project_and_hash(lsh, x)
        lsh(Stream.of(x), Context(record=maps))
        scores = (q @ k.mT).masked_fill(torch.eye(256, dtype=torch.bool), -torch.inf)
        attended = maps.weights[()][0].gather(-1, scores.topk(8).indices) > 0
        recall.append(float(attended.double().mean()))
    assert recall == sorted(recall) and recall[0] < 0.5 < recall[-1], recall


@pytest.mark.parametrize("form", ["decoder", "decoder-buckets", "decoder-halves"])
def test_no_output_depends_on_later_tokens(form: str) -> None:
    """Gradients and edits; not bit equality, as the number of filled chunks, and so the rounding of products, depends
    on later tokens."""
    assert_causal(build_mixer(**FORMS[form]), make_texts(rows=1))


def test_no_output_depends_on_later_tokens_at_full_size() -> None:
    lsh, x = (
        build_mixer(chunk=64, rounds=2, width=128, causal=True, buckets=16).float(),
        make_texts(1, 700, 128).float(),
    )
    assert_causal(lsh, x, step=59)


@pytest.mark.parametrize("form", FORMS)
def test_outputs_without_reading_bucket_sizes_are_the_same(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lsh = build_mixer(**FORMS[form])
    results = []
    for devices in ({"cpu"}, set[str]()):
        monkeypatch.setattr(lsh_chunks, "HOST_DEVICES", devices)
        x = make_texts().requires_grad_()
        out = lsh(x)
        results.append((out, *torch.autograd.grad(out.square().sum(), (x, *lsh.parameters()))))
    for on_host, on_device in zip(*results, strict=True):
        close(on_device, on_host, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_the_shortcuts_of_released_codes_leak_the_future() -> None:
    """A later token in another bucket moves the borders between chunks, so decoders refuse it."""
    lsh, x = build_mixer(causal=True, shortcuts=True), make_texts(rows=1)
    edited = x.clone()
    edited[:, 20:] = make_texts(rows=1, seed=9)[:, 20:]
    assert (lsh(edited) - lsh(x))[:, :20].abs().max() > 1e-3
    assert not lsh.properties.causal
    with pytest.raises(UserError, match="lsh with shortcuts: would see the future in a decoder"):
        headwise.build("gpt-tiny", vocab=12, mixer={"kind": "lsh", "shortcuts": True})


@torch.no_grad()
def test_decoding_step_by_step_equals_one_forward_pass() -> None:
    lsh, x, cache = build_mixer(causal=True, buckets=4), make_texts(), DecodingCache(2)
    assert lsh.properties.steppable
    parts = [
        lsh(Stream.of(some, start=start), Context(cache=cache)) for start, some in split_steps(x, (7, 1, 1, 5, 26))
    ]
    close(torch.cat(parts, 1), lsh(x), rtol=0, atol=1e-12)


@torch.no_grad()
def test_steps_without_a_fixed_number_of_buckets_equal_a_pass_over_the_text_so_far() -> None:
    lsh, x, cache = build_mixer(causal=True), make_texts(), DecodingCache(2)
    assert not lsh.properties.steppable
    for start, some in split_steps(x, (7, 1, 1, 5, 26)):
        end = start + some.shape[1]
        close(lsh(Stream.of(some, start=start), Context(cache=cache)), lsh(x[:, :end])[:, start:], rtol=0, atol=1e-12)


def split_steps(x: Tensor, sizes: tuple[int, ...]) -> list[tuple[int, Tensor]]:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return list(zip(starts, x.split(sizes, 1), strict=True))


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_texts_of_any_length(form: str) -> None:
    lsh = build_mixer(**FORMS[form])
    for length in (1, 2, 3, 4, 5, 6, 7, 11, 13, 25):
        x = make_texts(length=length)
        close(lsh(x), compute_by_definition(lsh, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["encoder", "encoder-buckets"])
@torch.no_grad()
def test_padding_changes_no_output(form: str) -> None:
    lsh, x, lengths = build_mixer(**FORMS[form]), make_texts(rows=4), (40, 17, 6, 0)
    keep = torch.arange(40) < torch.tensor(lengths)[:, None]
    out = lsh(Stream.of(x, keep))
    assert torch.isfinite(out).all()
    for row, length in enumerate(lengths[:3]):
        close(out[row, :length], lsh(x[row : row + 1, :length])[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["decoder", "decoder-buckets"])
@torch.no_grad()
def test_packed_documents_do_not_attend_to_each_other(form: str) -> None:
    lsh, x = build_mixer(**FORMS[form]), make_texts(rows=1)
    segment = torch.tensor([[1] * 11 + [2] * 20 + [3] * 9])
    stream = Stream(x, torch.arange(40), segment=segment)
    alone = [lsh(some) for some in x.split((11, 20, 9), 1)]
    close(lsh(stream), torch.cat(alone, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [*FORMS.values(), {"shortcuts": True}, {"shortcuts": True, "causal": True}])
@torch.no_grad()
def test_the_recorded_map_gives_the_outputs(settings: dict[str, Any]) -> None:
    lsh, x, maps = build_mixer(**settings), make_texts(), AttentionRecord()
    out = lsh(Stream.of(x), Context(record=maps))
    weights, exact = maps.weights[()][0], maps.exact[()][0]
    _, _, v, _ = project_and_hash(lsh, x)
    close(weights.sum(-1), torch.ones(2, 2, 40, dtype=torch.float64))
    close(lsh.out((weights @ v).transpose(1, 2).flatten(2)), out, rtol=0, atol=1e-12)
    close(exact.sum(-1), torch.ones(2, 2, 40, dtype=torch.float64))
    assert (weights > 0).sum() < (exact > 0).sum()


def test_gradients_pass_gradcheck() -> None:
    for settings in (*FORMS.values(), {"shortcuts": True}):
        lsh, x = build_mixer(**settings), make_texts(length=13).requires_grad_()
        assert torch.autograd.gradcheck(lsh, (x,), fast_mode=True)


def test_rotations_are_fresh_in_training_and_fixed_in_evaluation() -> None:
    lsh, x = build_mixer(), make_texts()
    assert torch.equal(lsh(x), lsh(x)) and torch.equal(lsh(x), build_mixer()(x))
    assert not torch.equal(lsh(x), build_mixer(seed=1)(x))
    lsh.train()
    assert not torch.equal(lsh(x), lsh(x))
    torch.manual_seed(3)
    first = lsh(x)
    torch.manual_seed(3)
    assert torch.equal(lsh(x), first)


@torch.no_grad()
def test_many_buckets_are_pairs_of_hashes() -> None:
    lsh, x = build_mixer(buckets=256), make_texts(rows=1, length=2000)
    buckets = project_and_hash(lsh, x)[3]
    assert buckets.max() < 256 and len(buckets[0, 0, 0].unique()) > 100
    _, k, _, _ = project_and_hash(lsh, x)
    rotated = k[0, 0] @ lsh.rotations[0, :, 0]
    first, second = (torch.cat((some, -some), -1).argmax(-1) for some in (rotated[:, :8], rotated[:, 64:72]))
    assert torch.equal(buckets[0, 0, 0], first + 16 * second)


@pytest.mark.parametrize("causal", [False, True])
def test_cost_is_linear_in_the_length(causal: bool) -> None:
    """FLOPs at four times the length; softmax attention would compute sixteen times as many scores."""
    counts = []
    for length in (4096, 16_384):
        with torch.device("meta"):
            lsh, x = LSHAttention(64, heads=2, causal=causal, buckets=128), torch.empty(1, length, 64)
        with FlopCounterMode(display=False) as counter:
            lsh(x)
        counts.append(counter.get_total_flops())
    assert counts[1] / counts[0] <= 4.0


@torch.no_grad()
def test_bfloat16_stays_near_float32() -> None:
    lsh, x = build_mixer(chunk=40).float(), make_texts().float()
    with torch.autocast("cpu", torch.bfloat16):
        low = lsh(x)
    assert low.dtype == torch.bfloat16
    close(low.float(), lsh(x), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("buckets", [1, 3, 12])
def test_buckets_must_be_a_power_of_two(buckets: int) -> None:
    with pytest.raises(UserError, match=r"buckets: must be a power of two"):
        validate(LshConfig, {"buckets": buckets})


@torch.no_grad()
def test_very_negative_scores_still_give_weights_that_sum_to_one() -> None:
    """Two opposite tokens, each the only key of the other."""
    lsh = build_mixer(chunk=4)
    x = torch.stack([200 * make_texts()[0, 0], -200 * make_texts()[0, 0]]).unsqueeze(0)
    q, k, v, _ = project_and_hash(lsh, x)
    assert ((q @ k.mT)[:, :, 0, 1] < -50).all()
    lsh.compute_buckets = lambda k, layout, ctx: torch.zeros(1, 2, lsh.rounds, 2, dtype=torch.long)  # in one bucket
    close(lsh(x), lsh.out(v.flip(2).transpose(1, 2).flatten(2)))
