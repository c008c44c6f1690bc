"""Int8-screened language model head for greedy decoding: the same tokens with a quarter of the memory traffic.

The output projection is most of what a step reads from memory. It is computed with int8 weights first; the error of
each logit is bounded, and the few tokens that could still be the argmax are computed again in full precision. The
largest logit and its token are those of the full product; the others, and so the normaliser of log P, have errors of
some thousandths.
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.heads import VocabularyHead
from headwise.decode.config import DecodeConfig
from headwise.decode.int8 import pack_weight
from headwise.decode.weight_layout import to_column_major
from headwise.models.generative import GenerativeModel
from headwise.text import BOS, PAD

Model = TypeVar("Model", bound=nn.Module)
MIN_WEIGHTS = 1 << 22  # of a head; below, screening costs more than it saves
MAX_ROWS = 8  # above, the product is no longer bound by memory bandwidth
MAX_CANDIDATES = 1024  # tokens computed again; above, all logits are
WEIGHT_LEVELS, INPUT_LEVELS = 127, 63  # on either side of 0; inputs have 7 bits, so that no CPU overflows


class ScreenedHead(VocabularyHead):
    """A language model head whose largest logit is exact, as are all logits that could be the largest.

    With w' and x' for the quantised w and x, |w x - w' x'| <= |w| |x - x'| + |w - w'| |x'| (Cauchy-Schwarz). An input
    is the sum of two quantised ones, the second 126 times finer; both share one read of the weights.
    """

    def __init__(self, head: VocabularyHead, never: list[int]):
        nn.Module.__init__(self)
        self.transform, self.table, self.bias, self.pad = head.transform, head.table, head.bias, head.pad
        self.z_loss = head.z_loss
        weight = head.table.weight.detach().float()
        scales = weight.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / WEIGHT_LEVELS
        rounded = (weight / scales).round_() * scales
        self.packed = pack_weight(weight, None)
        self.norms, self.errors = weight.norm(dim=1), (weight - rounded).norm(dim=1)  # (V,)
        self.never = torch.tensor(never)
        # A row with the full range makes the scale of the kernel 1, so that integers stay exact.
        self.full_range = torch.zeros(1, weight.shape[1])
        self.full_range[0, 0], self.full_range[0, 1] = -INPUT_LEVELS, INPUT_LEVELS + 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.transform(x)
        if len(x) > MAX_ROWS:
            return F.linear(x, self.table.weight, self.bias)
        logits, bounds = self.approximate_logits(x)
        candidates = self.may_be_largest(logits, bounds).any(0).nonzero()[:, 0]
        if len(candidates) > MAX_CANDIDATES:
            return F.linear(x, self.table.weight, self.bias)
        exact = x @ self.table.weight.t().index_select(1, candidates)  # (R, n)
        logits[:, candidates] = exact if self.bias is None else exact + self.bias[candidates]
        return logits

    def approximate_logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits with int8 weights, and bounds of their errors: 2 x (R, V)."""
        step = x.abs().amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny) / INPUT_LEVELS
        scaled = x / step
        coarse = scaled.round()
        fine = ((scaled - coarse) * (2 * INPUT_LEVELS)).round_()
        products = torch.ops.quantized.linear_dynamic(torch.cat((coarse, fine, self.full_range)), self.packed, True)
        coarse_logits, fine_logits = products[: len(x)], products[len(x) : -1]
        logits = fine_logits.div_(2 * INPUT_LEVELS).add_(coarse_logits).mul_(step)
        input_error = 0.51 * step / (2 * INPUT_LEVELS) * x.shape[1] ** 0.5  # a little over half a step in each channel
        bounds = self.norms * input_error + self.errors * (x.norm(dim=1, keepdim=True) + input_error)
        return logits if self.bias is None else logits.add_(self.bias), bounds

    def may_be_largest(self, logits: Tensor, bounds: Tensor) -> Tensor:
        """Whether a logit may be the largest of its row among the tokens that can be generated, (R, V)."""
        lower = (logits - bounds).index_fill_(1, self.never, -torch.inf).amax(1, keepdim=True)
        return (logits + bounds).index_fill_(1, self.never, -torch.inf) >= lower


def prepare_for_cpu(model: Model, config: DecodeConfig, min_weights: int = MIN_WEIGHTS) -> Model:
    """A copy for fast decoding on a CPU with the same outputs: column-major weights, and a screened head if greedy."""
    copy = to_column_major(model)
    return screen_head(copy, min_weights) if config.search == "greedy" and not config.processes_logits else copy


def screen_head(model: Model, min_weights: int = MIN_WEIGHTS) -> Model:
    """Replace a large language model head by a screened one, in place."""
    if not isinstance(model, GenerativeModel) or torch.backends.quantized.engine == "none":
        return model
    head = model.decoder.head
    if type(head) is not VocabularyHead or not isinstance(head.table, nn.Embedding):
        return model
    if head.table.weight.numel() >= min_weights:
        never = sorted({PAD, BOS, model.start_id} - {model.end_id})
        model.decoder.head = ScreenedHead(head, never)
    return model
