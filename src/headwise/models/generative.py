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
from headwise.utils.notebook import HtmlTree


@dataclass(slots=True)
class DecodingState:
    """State of step-by-step decoding: encoder memory, KV cache, and how many tokens each row has read. Rows may leave
    (`select`) and join (`join`) between any two steps (continuous batching)."""

    decoder: Decoder
    memory: dict[str, Stream]
    cache: DecodingCache
    run: Callable[[Tensor, int, Tensor | None], Tensor]  # the decoder's decode step, bound to memory and cache
    length: int = 0  # tokens of the longest row
    padding_lengths: Tensor | None = None  # (R, 1) padding of each row, up to `length`; None: rows have one length

    @classmethod
    def begin(cls, decoder: Decoder, memory: dict[str, Stream], cache: DecodingCache) -> DecodingState:
        return cls(decoder, memory, cache, decoder.build_decode_step(Context(memory, cache, record=NO_RECORD)))

    @property
    def lengths(self) -> Tensor:
        """How many tokens each row has read, (R,)."""
        if self.padding_lengths is None:
            return torch.full((self.cache.rows,), self.length)
        return self.length - self.padding_lengths[:, 0]

    def select(self, rows: Tensor) -> DecodingState:
        """Select and reorder rows, as beam search does; rows that are left out leave the batch."""
        leave = len(rows) < self.cache.rows
        if self.cache.moves_sources(rows):
            self.memory.update(select_rows(self.memory, self.cache.find_sources(rows)))
        self.cache.select(rows)
        if self.padding_lengths is not None:
            self.padding_lengths = self.padding_lengths.index_select(0, rows)
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
        padding_lengths = (self.length - lengths).unsqueeze(1)
        self.padding_lengths = padding_lengths if bool(padding_lengths.any()) else None
        self.cache.join(other.cache, ragged=self.padding_lengths is not None)
        for name, memory in self.memory.items():
            pair = (memory, other.memory[name])
            joined = self.memory[name] = join_streams(pair)
            if joined.x.shape[1] < max(stream.x.shape[1] for stream in pair):
                # padding was removed from the memory: its keys and values in the cache are computed again
                self.cache.per_source.clear()
        return self

    def _check_join(self, other: DecodingState) -> None:
        if other.decoder is not self.decoder:
            raise UserError("join: the states are those of different models; start both with one model")
        if other.cache.beams != self.cache.beams:
            ours, theirs = self.cache.beams, other.cache.beams
            raise UserError(f"join: a state with {theirs} beams cannot join one with {ours}; start both with as many")
        ragged = self.padding_lengths is not None or other.padding_lengths is not None or self.length != other.length
        if ragged and (denying := self.decoder.stack.find_parts_without("joins")):
            raise UserError(
                f"join: rows of different lengths cannot share the state of {', '.join(denying)}; join rows that have "
                "read as many tokens, or decode them in separate states"
            )

    def _compact(self) -> None:
        """Drop the columns of the cache that are padding in every row."""
        if self.padding_lengths is None:
            return
        least, most = int(self.padding_lengths.min()), int(self.padding_lengths.max())
        if least or not most:
            self.cache.compact(ragged=least < most)
            self.length -= least
            self.padding_lengths = self.padding_lengths - least if least < most else None


class GenerativeModel(HtmlTree, nn.Module):
    """Base of models that generate token by token with a decoder."""

    decoder: Decoder
    start_id: int
    end_id: int
    continues_prompt: bool  # whether the output continues the input, as of a language model

    @property
    def vocab(self) -> int:
        return self.decoder.head.vocab

    @property
    def max_length(self) -> int:
        """Maximum length of generated text, by the learned positions; 0: unlimited."""
        limit = self.decoder.embed.positions.max_length
        return limit - (self.decoder.prefix_id is not None) if limit else 0

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
        """Whether some part can read texts longer than those of training: its decoding state has a fixed size."""
        return any(isinstance(part, Part) and part.properties.unbounded for part in self.decoder.modules())

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One token for each row, (B * beams,) -> logits of the next, (B * beams, V)."""
        if self.training or RECORDER.get() is not NO_RECORD:  # decode steps have no dropout and record no maps
            x = self.decoder.forward_next(
                tokens, state.length, state.padding_lengths, Context(state.memory, state.cache)
            )
        else:
            x = state.run(tokens, state.length, state.padding_lengths)
        state.length += 1
        return self.decoder.head(x), state
