"""The encoder-decoder, or sequence-to-sequence model (Sutskever et al. 2014; Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.blocks.cache import DecodingCache
from headwise.blocks.losses import Loss
from headwise.blocks.stack import Decoder
from headwise.blocks.stream import Context
from headwise.models.generative import DecodingState, GenerativeModel


class EncoderDecoder(GenerativeModel):
    """An encoder-decoder, p(target | source). The encoder, of texts or images, has `read(source)`, which returns the
    memory that the decoder attends to."""

    continues_prompt = False  # the output is a sequence of its own
    ragged = True  # source padding is masked

    def __init__(self, encoder: Any, decoder: Decoder, start_id: int = 1, end_id: int = 2):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.start_id, self.end_id = start_id, end_id

    @property
    def source_vocab(self) -> int:
        return self.encoder.embed.table.num_embeddings

    def forward(
        self, source: Tensor, target: Tensor, labels: Tensor | None = None, label_smoothing: float = 0.0
    ) -> Tensor | Loss:
        """Logits (B, T, V) for (B, S) and (B, T) ids (teacher forcing); with labels (B, T) their loss instead."""
        # The decoder has its own context: its stream has other masks than the encoder's.
        x = self.decoder(target, Context(self.encoder.read(source))).x
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, label_smoothing)

    def start(self, source: Tensor, beams: int = 1) -> DecodingState:
        """Encode the sources (B, S) and return a decoding state with `beams` rows for each."""
        cache = DecodingCache(source.shape[0] * beams, beams)
        state = DecodingState.begin(self.decoder, self.encoder.read(source), cache)
        if self.decoder.prefix_id is not None:
            self.step(source.new_full((source.shape[0] * beams,), self.decoder.prefix_id), state)
        return state
