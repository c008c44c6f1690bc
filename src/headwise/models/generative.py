"""Base of encoder-decoders and language models: step-by-step decoding with a KV cache.

Letters: B sources, R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.blocks.cache import DecodingCache, join_streams, select_rows
from headwise.blocks.stack import Decoder
from headwise.blocks.stream import NO_RECORD, RECORDER, Context, Part, Stream
from headwise.errors import UserError


@dataclass(slots=True)
class DecodingState:
    """State of step-by-step decoding: encoder memory, KV cache, and how many tokens each row has read. Rows may leave
    (`select`) and join (`join`) between any two steps (continuous batching)."""

    decoder: Decoder
    memory: dict[str, Stream]
    cache: DecodingCache
    run: Callable[[Tensor, int, Tensor | None], Tensor]  # the decoder's step form, bound to memory and cache
    length: int = 0  # tokens of the longest row
    gaps: Tensor | None = None  # (R, 1) by how many each row is shorter; None: rows have one length

    @classmethod
    def begin(cls, decoder: Decoder, memory: dict[str, Stream], cache: DecodingCache) -> DecodingState:
        return cls(decoder, memory, cache, decoder.stepper(Context(memory, cache, record=NO_RECORD)))

    @property
    def lengths(self) -> Tensor:
        """How many tokens each row has read, (R,)."""
        if self.gaps is None:
            return torch.full((self.cache.rows,), self.length)
        return self.length - self.gaps[:, 0]

    def select(self, rows: Tensor) -> DecodingState:
        """Select and reorder rows, as beam search does; rows that are left out leave the batch."""
        leave = len(rows) < self.cache.rows
        if self.cache.moves_sources(rows):
            self.memory.update(select_rows(self.memory, self.cache.find_sources(rows)))
        self.cache.select(rows)
        if self.gaps is not None:
            self.gaps = self.gaps.index_select(0, rows)
            if leave:
                self._compact()
        return self

    def join(self, other: DecodingState) -> DecodingState:
        """Continuous batching: append the rows of another state of the same model, which must not be used any more.
        Each row goes on from its own position, as it would alone. Different numbers of beams are refused, and rows of
        different lengths where a part does not declare `joins`."""
        self._check_join(other)
        self._compact()
        other._compact()
        device = other.lengths.device
        lengths = torch.cat((self.lengths.to(device), other.lengths))  # (R,)
        self.length = max(self.length, other.length)
        gaps = (self.length - lengths).unsqueeze(1)
        self.gaps = gaps if bool(gaps.any()) else None
        self.cache.join(other.cache, ragged=self.gaps is not None)
        for name, memory in self.memory.items():
            pair = (memory, other.memory[name])
            joined = self.memory[name] = join_streams(pair)
            if joined.x.shape[1] < max(stream.x.shape[1] for stream in pair):
                self.cache.per_source.clear()  # it was trimmed: what was made of it is made again
        return self

    def _check_join(self, other: DecodingState) -> None:
        if other.decoder is not self.decoder:
            raise UserError("join: the states are those of different models; start both with one model")
        if other.cache.beams != self.cache.beams:
            ours, theirs = self.cache.beams, other.cache.beams
            raise UserError(f"join: a state with {theirs} beams cannot join one with {ours}; start both with as many")
        ragged = self.gaps is not None or other.gaps is not None or self.length != other.length
        if ragged and (denying := self.decoder.stack.find_parts_without("joins")):
            raise UserError(
                f"join: rows of different lengths cannot share the state of {', '.join(denying)}; join rows that have "
                "read as many tokens, or decode them in separate states"
            )

    def _compact(self) -> None:
        """Drop the columns of the cache that are padding in every row."""
        if self.gaps is None:
            return
        least, most = int(self.gaps.min()), int(self.gaps.max())
        if least or not most:
            self.cache.compact(ragged=least < most)
            self.length -= least
            self.gaps = self.gaps - least if least < most else None


class GenerativeModel(nn.Module):
    """Base of models that generate token by token with a decoder."""

    decoder: Decoder
    start_id: int
    end_id: int
    continues: bool

    @property
    def vocab(self) -> int:
        return self.decoder.head.table.num_embeddings

    @property
    def max_length(self) -> int:
        """Maximum length of generated text, by the learned positions; 0: unlimited."""
        limit = self.decoder.embed.positions.max_length
        return limit - (self.decoder.opening is not None) if limit else 0

    @property
    def joins(self) -> bool:
        """Whether rows of different lengths may share a state."""
        return not self.decoder.stack.find_parts_without("joins")

    @property
    def ragged(self) -> bool:
        """Whether `start` accepts a batch of prompts of different lengths, padded."""
        return not self.decoder.stack.find_parts_without("ragged")

    @property
    def unbounded(self) -> bool:
        """Whether some part reads on where a text outgrows those of training."""
        return any(isinstance(part, Part) and part.properties.unbounded for part in self.decoder.modules())

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One token for each row, (B * beams,) -> logits of the next, (B * beams, V)."""
        if self.training or RECORDER.get() is not NO_RECORD:  # step forms have no dropout and record no maps
            x = self.decoder.forward_next(tokens, state.length, state.gaps, Context(state.memory, state.cache))
        else:
            x = state.run(tokens, state.length, state.gaps)
        state.length += 1
        return self.decoder.head(x), state
