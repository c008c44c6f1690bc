"""Class tokens that come late: they look at patches that change no more (CaiT, Touvron et al. 2021, "Going deeper with
Image Transformers", section 3), and heads that ask each patch as well (VOLO, Yuan et al. 2021).

Letters: B images, T tokens, D width, L labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.images import count_class_tokens
from headwise.blocks.latents import with_memory
from headwise.blocks.residual import Wiring
from headwise.blocks.stack import Stack
from headwise.blocks.stream import Context, Stream


class PrependClassTokens(nn.Module):
    """Puts class_tokens before the patches, in the middle of a stack."""

    def __init__(self, width: int, class_tokens: int = 1):
        super().__init__()
        self.class_tokens = nn.Parameter(torch.zeros(class_tokens, width))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        x = torch.cat((self.class_tokens.expand(len(stream.x), -1, -1), stream.x), dim=1)  # (B, class_tokens + T, D)
        return Stream(x, torch.arange(x.shape[1], device=x.device), grid=stream.grid)


class ClassAttentionLayer(Wiring):
    """z = x + f(norm([x; patches])), then z + g(norm(z)), for the class_tokens x alone: what is looked at is not
    changed.

    Class attention (equations 4-7) is attention of the class_tokens at a memory which is all of the stream.
    """

    closes = True

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        class_tokens = count_class_tokens(stream)
        x, patches = stream.x[:, :class_tokens], stream.x[:, class_tokens:]
        (inputs, norm, add), *others = zip(self.parts, self.norms, self.adds, strict=True)
        seen = stream.with_x(norm(stream.x))
        x = add(x, inputs(Stream(seen.x[:, :class_tokens], stream.pos[:class_tokens]), with_memory(ctx, seen).at(0)))
        for place, (part, norm, add) in enumerate(others, 1):
            x = add(x, part(Stream(norm(x), stream.pos[:class_tokens]), ctx.at(place)))
        return stream.with_x(torch.cat((x, patches), dim=1))


class PatchHead(nn.Module):
    """Each patch is labelled; for each label the surest patch counts: (B, T, D) -> (B, L)."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head

    def forward(self, stream: Stream) -> Tensor:
        return self.head(stream.x[:, count_class_tokens(stream) :]).amax(1)  # (B, T - class_tokens, L) -> (B, L)


def concatenate_stacks(*stacks: Stack) -> Stack:
    """One stack of the layers of several, which ends as the last one does."""
    layers: list[nn.Module] = []
    order: list[int] = []
    for stack in stacks:
        order += [len(layers) + number for number in stack.order]
        layers += stack.layers
    return Stack(layers, stacks[-1].final, order)
