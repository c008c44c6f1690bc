"""`check_part` has a check for every property that a part can declare."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.testing import check_part
from headwise.testing.part import CHECKS


def test_every_property_has_a_check() -> None:
    assert set(CHECKS) == {field.name for field in fields(Properties)}


class Noisy(Part):
    """Adds noise in evaluation mode, too."""

    def __init__(self, exact: bool):
        super().__init__()
        self.exact = exact

    @property
    def properties(self) -> Properties:
        return Properties(exact=self.exact)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return stream.x + torch.randn_like(stream.x)


def test_a_part_may_deny_to_be_exact() -> None:
    check_part(Noisy(exact=False))


def test_the_part_that_is_given_is_not_changed() -> None:
    part = torch.nn.Linear(8, 8)

    class Projection(Part):
        by_token = True

        def __init__(self) -> None:
            super().__init__()
            self.project = part

        @property
        def properties(self) -> Properties:
            return Properties(causal=True, steppable=True, joins=True, ragged=True, packing=True)

        def transform(self, stream: Stream, ctx: Context) -> Tensor:
            return self.project(stream.x)

    before = part.weight.clone()
    check_part(Projection())
    assert part.weight.dtype == torch.float32 and torch.equal(part.weight, before)


class Fading(Part):
    """y_t = h_t = a h_{t-1} + (1 - a) x_t, without padding."""

    fade = 0.8
    declares = Properties(causal=True, steppable=True, joins=True, ragged=True, unbounded=True)

    @property
    def properties(self) -> Properties:
        return self.declares

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        mean = ctx.cache.get_state(ctx.path, lambda: torch.zeros_like(stream.x[:, 0]))  # (B, C)
        means = []
        for number, token in enumerate(stream.x.unbind(1)):
            new = self.fade * mean + (1 - self.fade) * token
            mean = new if stream.keep is None else new.where(stream.keep[:, number, None], mean)
            means.append(new)
        ctx.cache.put_state(ctx.path, mean)
        return torch.stack(means, dim=1)


class CausalMean(Part):
    """The mean of all tokens so far, which are stored."""

    declares = Properties(causal=True, steppable=True, joins=True, ragged=True)

    @property
    def properties(self) -> Properties:
        return self.declares

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        length = stream.x.shape[1]
        (x,) = ctx.cache.extend(ctx.path, 1, stream.x)
        keep = ctx.cache.extend_keep(ctx.path, stream)
        sees = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()[-length:].expand(len(x), -1, -1)
        if keep is not None:
            sees = sees * keep.unsqueeze(1)
        return sees @ x / sees.sum(2, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("part", [Fading(), CausalMean()], ids=lambda part: type(part).__name__)
def test_the_parts_with_decoding_states_that_mutants_are_made_of_are_sound(part: Part) -> None:
    check_part(part)


class MasksNothing(CausalMean):
    """Takes the padding of shorter rows for tokens."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        length = stream.x.shape[1]
        (x,) = ctx.cache.extend(ctx.path, 1, stream.x)
        sees = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()[-length:].expand(len(x), -1, -1)
        return sees @ x / sees.sum(2, keepdim=True)


class StoresByLength(Fading):
    """Has a state whose shape depends on the number of tokens read."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        past = ctx.cache.get_state(ctx.path, lambda: stream.x[:, :0])
        x = torch.cat((past, stream.x), 1)
        ctx.cache.put_state(ctx.path, x)
        weights = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        return (weights @ x)[:, past.shape[1] :]


class ReadsPadding(Fading):
    """Lets the padding of a prompt into its state."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return super().transform(Stream(stream.x, stream.pos), ctx)


class Remembers(Fading):
    """A sum, which forgets nothing."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        keep = 1 if stream.keep is None else stream.keep.unsqueeze(-1)
        total = ctx.cache.get_state(ctx.path, lambda: torch.zeros_like(stream.x[:, 0]))
        sums = total.unsqueeze(1) + (stream.x * keep).cumsum(1)
        ctx.cache.put_state(ctx.path, sums[:, -1])
        return sums


class Grows(CausalMean):
    declares = Properties(causal=True, steppable=True, joins=True, ragged=True, unbounded=True)


class HasNoState(CausalMean):
    declares = Properties(causal=True, steppable=True, joins=True, ragged=True, packing=True, unbounded=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return 2 * stream.x


class DeniesJoins(CausalMean):
    declares = Properties(causal=True, steppable=True, ragged=True)


class DeniesRagged(CausalMean):
    declares = Properties(causal=True, steppable=True, joins=True)


class DeniesUnbounded(Fading):
    declares = Properties(causal=True, steppable=True, joins=True, ragged=True)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (MasksNothing, r"joins is claimed, but of rows of different lengths in one state, outputs differ: .* by \d"),
        (StoresByLength, r"joins is claimed, but states of rows of different lengths do not fit together: "),
        (ReadsPadding, r"ragged is claimed, but of rows of different lengths in one state, outputs differ: .* by \d"),
        (Remembers, r"unbounded is claimed, but it does not forget: other first tokens change outputs by \d"),
        (Grows, r"unbounded is claimed, but its state grows: 256 numbers after 32 tokens, 512 after 64"),
        (HasNoState, r"unbounded is claimed, but it stores no state"),
        (DeniesJoins, r"joins is denied, but holds; declare joins=True"),
        (DeniesRagged, r"ragged is denied, but holds; declare ragged=True"),
        (DeniesUnbounded, r"unbounded is denied, but holds; declare unbounded=True"),
    ],
)
def test_a_wrong_declaration_of_a_decoding_state_is_caught(mutant: type[Part], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"{mutant.__name__} in an? \w+: {message}"):
        check_part(mutant())


def test_a_part_that_is_not_steppable_has_no_decoding_state_to_check() -> None:
    class Average(Part):
        @property
        def properties(self) -> Properties:
            return Properties(joins=True, padding=False)

        def transform(self, stream: Stream, ctx: Context) -> Tensor:
            return stream.x + stream.x.mean(1, keepdim=True)

    check_part(Average())


def test_pytest_is_not_needed() -> None:
    code = "import sys, headwise.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class FFTConvolution(Part):
    """A long causal convolution by FFT, as in S4 (Gu et al. 2022): what it does not read leaves rounding."""

    def __init__(self, padded: bool = True):
        super().__init__()
        self.padded = padded

    @property
    def properties(self) -> Properties:
        return Properties(causal=True)

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        length = stream.x.shape[1]
        size = 2 * length if self.padded else length  # without padding the kernel wraps around to later tokens
        kernel = 0.5 ** torch.arange(length, dtype=stream.x.dtype)
        spectrum = torch.fft.rfft(stream.x, size, dim=1) * torch.fft.rfft(kernel, size).unsqueeze(-1)
        return torch.fft.irfft(spectrum, size, dim=1)[:, :length]


def test_a_convolution_by_fft_is_causal_to_rounding() -> None:
    check_part(FFTConvolution())
    with pytest.raises(AssertionError, match=r"causal is claimed, but outputs before token 1 depend on later tokens"):
        check_part(FFTConvolution(padded=False))
