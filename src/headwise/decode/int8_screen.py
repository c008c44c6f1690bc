"""Greedy decoding without reading the whole vocabulary in full precision: what it writes stays the same.

The product with the words is most of what a step reads from memory. Here it is done with 8-bit weights first, a quarter
of the bytes; how far each logit can be off is bounded, and the few words that could still be the best are computed
again in full. So the largest logit and its word are those of the full product; the others, and with them the
normaliser of log P, have errors of some thousandths.
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.decode.config import DecodeConfig
from headwise.decode.int8 import packed
from headwise.decode.weight_layout import to_column_major
from headwise.models.generative import GenerativeModel
from headwise.text import BOS, PAD

Model = TypeVar("Model", bound=nn.Module)
LEAST = 1 << 22  # weights of a table below which the detour costs more than it saves
ROWS = 8  # above that, so does it: the product is no longer bound by reading
MOST = 1024  # words that are computed again; beyond that, all of them are
LEVELS, HALF = 127, 63  # of a quantised weight on either side of 0; of an input, in 7 bits: no CPU's integers overflow


class ScreenedHead(VocabularyHead):
    """Logits of which the largest is exact, and all that could be it.

    With w' and x' for the quantised w and x, |w x - w' x'| <= |w| |x - x'| + |w - w'| |x'| (Cauchy-Schwarz). An input
    is the sum of two quantised ones, the second 126 times finer, which cost one reading of the weights.
    """

    def __init__(self, head: VocabularyHead, never: list[int]):
        nn.Module.__init__(self)
        self.before, self.table, self.bias, self.pad = head.before, head.table, head.bias, head.pad
        weight = head.table.weight.detach().float()
        scales = weight.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / LEVELS
        rounded = (weight / scales).round_() * scales
        self.packed = packed(weight, None)
        self.lengths, self.errors = weight.norm(dim=1), (weight - rounded).norm(dim=1)  # (V,)
        self.never = torch.tensor(never)
        # A row that spans all levels makes the kernel's own scale 1, so that whole numbers stay what they are.
        self.span = torch.zeros(1, weight.shape[1])
        self.span[0, 0], self.span[0, 1] = -HALF, HALF + 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        if len(x) > ROWS:
            return F.linear(x, self.table.weight, self.bias)
        logits, slack = self.rough(x)
        words = self.near(logits, slack).any(0).nonzero()[:, 0]
        if len(words) > MOST:
            return F.linear(x, self.table.weight, self.bias)
        exact = x @ self.table.weight.t().index_select(1, words)  # (R, n)
        logits[:, words] = exact if self.bias is None else exact + self.bias[words]
        return logits

    def rough(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits with 8-bit weights, and how far each may be off: 2 x (R, V)."""
        step = x.abs().amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny) / HALF
        scaled = x / step
        coarse = scaled.round()
        fine = ((scaled - coarse) * (2 * HALF)).round_()
        made = torch.ops.quantized.linear_dynamic(torch.cat((coarse, fine, self.span)), self.packed, True)
        of_coarse, of_fine = made[: len(x)], made[len(x) : -1]
        logits = of_fine.div_(2 * HALF).add_(of_coarse).mul_(step)
        moved = 0.51 * step / (2 * HALF) * x.shape[1] ** 0.5  # half a step and a little in each channel
        slack = self.lengths * moved + self.errors * (x.norm(dim=1, keepdim=True) + moved)
        return logits if self.bias is None else logits.add_(self.bias), slack

    def near(self, logits: Tensor, slack: Tensor) -> Tensor:
        """Whether a logit may be the largest of its row among the words that may be written, (R, V)."""
        least = (logits - slack).index_fill_(1, self.never, -torch.inf).amax(1, keepdim=True)
        return (logits + slack).index_fill_(1, self.never, -torch.inf) >= least


def for_cpu(model: Model, config: DecodeConfig, least: int = LEAST) -> Model:
    """A copy laid out for decoding on a CPU, as fast as its outputs stay what they were."""
    laid = to_column_major(model)
    return screen_head(laid, least) if config.search == "greedy" and not config.looks_back else laid


def screen_head(model: Model, least: int = LEAST) -> Model:
    """The same model with a screened head, where it has a large one. The model is changed, not copied."""
    if not isinstance(model, GenerativeModel) or torch.backends.quantized.engine == "none":
        return model
    head = model.decoder.head
    if type(head) is VocabularyHead and head.table.weight.numel() >= least:
        never = sorted({PAD, BOS, model.start_id} - {model.end_id})
        model.decoder.head = ScreenedHead(head, never)
    return model
