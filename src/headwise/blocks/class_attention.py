"""Class attention: class tokens that attend to finished patches in the last layers (CaiT, Touvron et al. 2021, "Going
deeper with Image Transformers", section 3), and a head on patches (VOLO, Yuan et al. 2021).

Letters: B images, T tokens, D width, L labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.blocks.images import count_class_tokens
from headwise.blocks.latents import with_memory
from headwise.blocks.residual import Wiring
from headwise.blocks.stack import Stack, require_plain
from headwise.blocks.stream import Context, Stream


class PrependClassTokens(nn.Module):
    """A layer that puts class tokens before the patches, in the middle of a stack."""

    def __init__(self, width: int, class_tokens: int = 1):
        super().__init__()
        self.class_tokens = nn.Parameter(torch.zeros(class_tokens, width))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        x = torch.cat(
            (self.class_tokens.expand(stream.x.shape[0], -1, -1), stream.x), dim=1
        )  # (B, class_tokens + T, D)
        return Stream(x, torch.arange(x.shape[1], device=x.device), grid=stream.grid)


class ClassAttentionLayer(Wiring):
    """Class-attention layer: z = x + f(norm([x; patches])), then z + g(norm(z)), for the class tokens x alone; patches
    do not change.

    Class attention (equations 4-7) is cross-attention of the class tokens to the whole stream.
    """

    has_final_norm = True

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        class_tokens = count_class_tokens(stream)
        x, patches = stream.x[:, :class_tokens], stream.x[:, class_tokens:]
        (attention, norm, add), *others = zip(self.parts, self.norms, self.adds, strict=True)
        memory = stream.with_x(norm(stream.x))
        queries = Stream(memory.x[:, :class_tokens], stream.pos[:class_tokens])
        x = add(x, attention(queries, with_memory(ctx, memory).at(0)))
        for index, (part, norm, add) in enumerate(others, 1):
            x = add(x, part(Stream(norm(x), stream.pos[:class_tokens]), ctx.at(index)))
        return stream.with_x(torch.cat((x, patches), dim=1))


class PatchHead(nn.Module):
    """Classification of patches: for each label the largest logit of all patches, (B, T, D) -> (B, L)."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head

    def forward(self, stream: Stream) -> Tensor:
        return self.head(stream.x[:, count_class_tokens(stream) :]).amax(1)  # (B, T - class_tokens, L) -> (B, L)


def concatenate_stacks(*stacks: Stack) -> Stack:
    """One stack of the layers of several, with the final norm of the last."""
    layers: list[nn.Module] = []
    layer_numbers: list[int] = []
    for stack in stacks:
        require_plain(stack, "class attention")
        layer_numbers += [len(layers) + number for number in stack.layer_numbers]
        layers += stack.layers
    return Stack(layers, stacks[-1].final, layer_numbers)
