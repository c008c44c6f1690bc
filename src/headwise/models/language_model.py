"""Causal language models, and the prefix language model for source and target pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.blocks.attention.multihead import QKVProjection
from headwise.blocks.cache import DecodingCache
from headwise.blocks.losses import Loss
from headwise.blocks.stack import Decoder
from headwise.blocks.stream import NO_CACHE, Cache, Context
from headwise.errors import UserError
from headwise.models.generative import DecodingState, GenerativeModel
from headwise.text import PAD


class LanguageModel(GenerativeModel):
    """A causal language model, p(text): a decoder without cross-attention, which continues a prompt. With segment-level
    recurrence, `carried` holds the states of earlier segments (blocks/segment_memory.py), and generation keeps a memory
    of as many tokens."""

    continues_prompt = True

    def __init__(self, decoder: Decoder, start_id: int = 1, end_id: int = 2):
        super().__init__()
        self.decoder = decoder
        self.start_id, self.end_id = start_id, end_id
        self.memory_length = max(
            (part.memory_length for part in decoder.modules() if isinstance(part, QKVProjection)),
            default=0,
        )

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        label_smoothing: float = 0.0,
        pos: Tensor | None = None,
        segment: Tensor | None = None,
        carried: Cache = NO_CACHE,
    ) -> Tensor | Loss:
        """Logits (B, T, V) of the token after each; with labels (B, T) their loss instead. `segment` (B, T) numbers
        the packed documents of a row, `pos` (B, T) the tokens of each; `carried` has the states of earlier segments."""
        x = self.decoder(ids, Context(cache=carried), pos=pos, segment=segment).x
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, label_smoothing)

    def start(self, prompt: Tensor, beams: int = 1) -> DecodingState:
        """Prefill: read the prompts (B, P), which may be empty, and return a decoding state with `beams` rows for each.
        If the model is `ragged`, shorter prompts may be padded on either side."""
        ids = prompt.repeat_interleave(beams, 0)  # (B, P) -> (R, P)
        state = DecodingState.begin(self.decoder, {}, DecodingCache(len(ids), beams, limit=self.memory_length))
        if ids.shape[1]:
            self._prefill(ids, state)
        return state

    def _prefill(self, ids: Tensor, state: DecodingState) -> None:
        """Read the prompts (R, P) into the cache. Padding is moved to the right and counted for each row, so that
        positions continue from the last real token."""
        keep = ids != PAD
        if ids.is_meta or bool(keep.all()):  # what has no contents has no padding
            self.read(ids, state)
            return
        self._check_ragged()
        keep, order = keep.sort(dim=1, descending=True, stable=True)
        pos = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)  # a row for each: those to come differ
        stream = self.decoder.embed(ids.gather(1, order), keep, pos=pos)
        self.decoder.stack(stream, Context(cache=state.cache).at("decoder"))
        state.length = ids.shape[1]
        state.cache.align((~keep).sum(1, keepdim=True))
        state.forget_columns()

    def read(self, ids: Tensor, state: DecodingState) -> Tensor:
        """Read (further) tokens (R, T) of prompts into a state whose rows have one length: after the first, parts must
        declare `joins`. Returns their vectors (R, T, C)."""
        stream = self.decoder.embed(ids, start=state.length)
        state.length += ids.shape[1]
        return self.decoder.stack(stream, Context(cache=state.cache).at("decoder")).x

    def _check_ragged(self) -> None:
        if denying := self.decoder.stack.find_parts_without("ragged"):
            raise UserError(
                f"prompts: {', '.join(denying)} would take padding for tokens; start with prompts of one length, and "
                "without padding"
            )


class PrefixLM(LanguageModel):
    """A prefix language model (prefix LM): p(target | source) by a decoder alone, which reads `source EOS BOS target
    EOS`; only the target has a loss.

    Called, trained and decoded like an encoder-decoder.
    """

    continues_prompt = False

    def forward(  # type: ignore[override]
        self, source: Tensor, target: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0
    ) -> Tensor | Loss:
        """Logits (B, T, V) for (B, S) and (B, T) ids; with labels (B, T) their loss instead."""
        ids = torch.cat((source, target), dim=1)  # (B, S + T)
        # Padding is moved behind both texts, where the causal mask hides it and positions have no gaps.
        order = (ids == PAD).to(torch.uint8).argsort(dim=1, stable=True)
        x = self.decoder(ids.gather(1, order), Context()).x
        target_index = order.argsort(dim=1)[:, source.shape[1] :]  # (B, T) new indices of the target's tokens
        x = x.gather(1, target_index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))  # (B, S + T, C) -> (B, T, C)
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, label_smoothing)
