"""A screened head finds the word that the full product finds."""

from __future__ import annotations

import pytest
import torch

import headwise
from headwise.blocks.heads import VocabularyHead
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.int8_screen import ScreenedHead, prepare_for_cpu
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.text import BOS, PAD


def head(vocab: int = 3000, width: int = 48, bias: bool = True, seed: int = 0) -> VocabularyHead:
    torch.manual_seed(seed)
    head = VocabularyHead(width, vocab, bias=bias)
    if head.bias is not None:
        torch.nn.init.normal_(head.bias, std=0.1)
    return head.requires_grad_(False)


def allowed(logits: torch.Tensor) -> torch.Tensor:
    return logits.index_fill(1, torch.tensor([PAD, BOS]), -torch.inf)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("skew", [0.0, 30.0])
def test_the_best_word_is_the_best_of_the_full_product(bias: bool, skew: float) -> None:
    full = head(bias=bias)
    x = torch.randn(200, 48)
    x[:, 0] += skew  # one channel that takes up the whole range of the inputs: the rest are hardly seen
    x[::7] *= 1e-3  # rows that share a range with much larger ones
    screened, expected = ScreenedHead(full, [PAD, BOS]), full(x)
    outputs = torch.cat([screened(pair) for pair in x.split(2)])
    assert torch.equal(allowed(outputs).argmax(1), allowed(expected).argmax(1))
    torch.testing.assert_close(allowed(outputs).amax(1), allowed(expected).amax(1))


def test_no_bound_is_broken() -> None:
    full = head()
    screened = ScreenedHead(full, [PAD, BOS])
    x = 5 * torch.randn(50, 48)
    logits, bounds = screened.approximate_logits(x)
    assert ((logits - full(x)).abs() <= bounds).all()
    near = screened.may_be_largest(logits, bounds)
    assert near.gather(1, allowed(full(x)).argmax(1, keepdim=True)).all()
    assert near.float().mean() < 0.1  # it would be useless if it spared nothing


def test_near_ties_and_forbidden_tokens_with_large_logits() -> None:
    full = head(bias=False)
    full.table.weight[PAD] = 100 * full.table.weight[7]  # may not be written, however probable
    full.table.weight[20:2500] = full.table.weight[20] + 1e-5 * torch.randn(2480, 48)  # 8 bits cannot tell them apart
    x = full.table.weight[[7, 20]] * 3
    outputs = allowed(ScreenedHead(full, [PAD, BOS])(x))
    assert torch.equal(outputs.argmax(1), allowed(full(x)).argmax(1))


def test_greedy_decoding_gives_the_same_tokens(tmp_path: object) -> None:
    torch.manual_seed(0)
    model: EncoderDecoder = headwise.build("transformer-tiny", vocab=500).eval()
    sources = torch.randint(4, 500, (2, 9)).tolist()
    for config in (DecodeConfig(max_length=12), DecodeConfig(max_length=12, beams=2)):
        fast = prepare_for_cpu(model, config, min_weights=1)
        assert isinstance(fast.decoder.head, ScreenedHead) == (config.beams == 1)  # beams need the second best, too
        for one, other in zip(decode(model, sources, config), decode(fast, sources, config), strict=True):
            assert one[0].ids == other[0].ids
            assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=0.005 * len(one[0].ids))
    assert type(model.decoder.head) is VocabularyHead
