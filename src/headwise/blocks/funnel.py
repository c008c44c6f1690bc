"""The pooling encoder of Funnel-Transformer (Dai et al. 2020), and the decoder that gives every token a vector again;
and the form of Narang et al. 2021, which pools after self-attention in any stack (`PooledStack`).

Letters: B rows, T length, P pooled length, C width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.projections import UNPOOLED
from headwise.blocks.positions.funnel import ANY_TYPE
from headwise.blocks.stack import Encoder, Stack, build_keep_mask, number_texts
from headwise.blocks.stream import Context, LayerStep, Stream
from headwise.errors import UserError

Pooling = Literal["mean", "max"]


class SequencePool(nn.Module):
    """Mean or max pooling of pairs of neighbouring tokens: (B, T, C) -> (B, P, C).

    `separate_first` leaves the first token alone. As in the released code, `truncate` drops the last token of a row
    beforehand, and `pool_padding` pools padding as any other token and masks the pairs that have some: with either,
    outputs depend on the padding. Without them, a pair is pooled over its real tokens.
    """

    def __init__(
        self,
        kind: Pooling = "mean",
        separate_first: bool = True,
        truncate: bool = False,
        pool_padding: bool = False,
    ):
        super().__init__()
        self.kind, self.separate_first, self.pool_padding = kind, separate_first, pool_padding
        self.truncate = truncate and separate_first
        self.shortest = 3 if separate_first else 2  # length that is pooled

    def forward(self, stream: Stream) -> Stream:
        pairs = self.list_pairs(stream.x.shape[1], stream.x.device)  # (P, 2)
        x, keep = stream.x[:, pairs], None if stream.keep is None else stream.keep[:, pairs]  # (B, P, 2, C)
        if keep is not None and not self.pool_padding:
            pooled = self.pool_real(x, keep.unsqueeze(-1))
        else:
            pooled = x.mean(2) if self.kind == "mean" else x.amax(2)
        first = pairs[:, 0]
        return replace(
            stream,
            x=pooled,
            pos=stream.pos[..., first],
            keep=None if keep is None else keep.all(-1) if self.pool_padding else keep.any(-1),
            token_types=None if stream.token_types is None else stream.token_types[:, first],
        )

    def list_pairs(self, length: int, device: torch.device) -> Tensor:
        """The tokens of each pair, (P, 2): a token without a neighbour is a pair with itself."""
        index = torch.arange(length, device=device)
        if self.separate_first:
            index = torch.cat((index[:1], index[:-1] if self.truncate else index))
        if len(index) % 2:
            index = torch.cat((index, index[-1:]))
        return index.view(-1, 2)

    def pool_real(self, x: Tensor, keep: Tensor) -> Tensor:
        """Pooling over the real tokens of each pair, zeros where there are none: (B, P, 2, C) -> (B, P, C)."""
        if self.kind == "mean":
            return (x * keep).sum(2) / keep.sum(2).clamp(min=1)
        return x.masked_fill(~keep, torch.finfo(x.dtype).min).amax(2).masked_fill(~keep.any(2), 0.0)

    def upsample(self, x: Tensor, factor: int, length: int) -> Tensor:
        """Repeat each pooled vector for the tokens that it stands for: (B, P, C) -> (B, length, C)."""
        first, rest = (x[:, :1], x[:, 1:]) if self.separate_first else (x[:, :0], x)
        rest = rest.repeat_interleave(factor, dim=1)
        if self.truncate:
            rest = F.pad(rest, (0, 0, 0, factor - 1))
        return torch.cat((first, rest), dim=1)[:, :length]

    def extra_repr(self) -> str:
        return self.kind


class FunnelStack(Stack):
    """Blocks of layers, with pooling before each block but the first. In the first layer of a block, pooled tokens
    attend to unpooled ones or, with `pool_keys`, to each other. With a decoder, its inputs are the upsampled outputs of
    the last block plus those of the first (section 2.3)."""

    def __init__(
        self, blocks: Sequence[Stack], pool: SequencePool, decoder: Stack | None = None, pool_keys: bool = False
    ):
        super().__init__(blocks)
        self.pool, self.decoder, self.pool_keys = pool, decoder, pool_keys

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        inputs = skipped = stream
        for number, block in enumerate(self.layers):
            assert isinstance(block, Stack)
            memory = dict(ctx.memory)
            if number and stream.x.shape[1] >= self.pool.shortest:
                pooled = self.pool(stream)
                memory[UNPOOLED], stream = pooled if self.pool_keys else stream, pooled
            for index in range(len(block.layer_numbers)):
                layer_ctx = ctx.at(number).at(index)
                stream = block.run_layer(index, stream, replace(layer_ctx, memory=memory) if not index else layer_ctx)
                ctx.side.add("layer", layer_ctx.path, stream)
                # DISCREPANCY: transformers counts layers without their repetitions here, and so do we.
                skipped = stream if not number and index < len(block.layers) else skipped
        if self.decoder is None:
            return stream
        x = self.pool.upsample(stream.x, 2 ** (len(self.layers) - 1), inputs.x.shape[1])
        outputs: Stream = self.decoder(inputs.with_x(x + skipped.x), ctx.at("decoder"))
        return outputs

    @property
    def parts(self) -> list[nn.Module]:
        return [*super().parts, *(self.decoder.parts if self.decoder is not None else ())]


class PooledLayer(nn.Module, LayerStep):
    """A layer whose tokens are pooled after its first part, self-attention: `mixing` has that part, `rest` the others.

    DISCREPANCY: in the code of Narang et al. padding is averaged with tokens, and pooled tokens are numbered anew; here
    a pair is pooled over its real tokens, and has the position of its first, as in Funnel-Transformer."""

    def __init__(self, mixing: nn.Module, rest: nn.Module, pool: SequencePool):
        super().__init__()
        self.mixing, self.rest, self.pool = mixing, rest, pool

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        if stream.grid is not None or stream.tree is not None or stream.segment is not None:
            raise UserError("pooled_layers: only plain texts can be pooled, not patches, trees or packed texts")
        stream = self.mixing(stream, ctx)
        if stream.x.shape[1] >= self.pool.shortest:
            stream = self.pool(stream)
        outputs: Stream = self.rest(stream, ctx.at("pooled"))
        return outputs

    @property
    def parts(self) -> list[nn.Module]:
        return [part for layer in (self.mixing, self.rest) for part in getattr(layer, "parts", ())]


class PooledStack(Stack):
    """A stack with pooled layers. With `restores_length`, each pooled output is repeated for the tokens that it stands
    for, and added to the outputs of the last layer before the pooling (as before Funnel's decoder, section 2.3);
    without, outputs are pooled: a shorter memory for a decoder."""

    def __init__(self, layers: Sequence[nn.Module], final: nn.Module | None = None, pattern_length: int = 1):
        super().__init__(layers, final, pattern_length=pattern_length)
        self.restores_length = True

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        inputs = skipped = stream
        pools: list[SequencePool] = []
        for index, layer in enumerate(self.layers):
            layer_ctx = ctx.at(index)
            if isinstance(layer, PooledLayer):
                skipped = skipped if pools else stream
                pools.append(layer.pool)
            stream = self.run_layer(index, stream, layer_ctx)
            ctx.side.add("layer", layer_ctx.path, stream)
        if self.restores_length and pools:
            x = pools[0].upsample(stream.x, 2 ** len(pools), inputs.x.shape[1])
            stream = inputs.with_x(x + skipped.x)
        return stream.with_x(self.final(stream.x))


class FunnelEncoder(Encoder):
    """An encoder whose attention knows which tokens are of the same text. The first token is of every text; padding
    is of the first, as in `transformers`. Without `pairs`, all tokens are of one text."""

    def __init__(self, *arguments: Any, pairs: bool = True, **options: Any):
        super().__init__(*arguments, **options)
        self.pairs = pairs

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        if self.prefix_id is not None:
            ids = F.pad(ids, (1, 0), value=self.prefix_id)  # (B, T) -> (B, 1 + T)
        types = number_texts(ids).masked_fill(ids == self.pad, 0) if self.pairs else torch.zeros_like(ids)
        types = F.pad(types[:, 1:], (1, 0), value=ANY_TYPE)
        stream = self.embed(ids, build_keep_mask(ids, self.pad))
        return self.stack(replace(stream, token_types=types), ctx.at("encoder", ctx.outputs_needed))
