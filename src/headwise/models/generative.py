"""Base of encoder-decoders and language models: step-by-step decoding with a KV cache.

Letters: B sources, R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from headwise.blocks.cache import DecodingCache, select_rows
from headwise.blocks.row_buffers import StreamRows, trim_padding
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
    run: Callable[[Tensor, int, Tensor | None], Tensor] | None = None  # the decoder's decode step, once it is needed
    length: int = 0  # tokens of the longest row
    sources: dict[str, StreamRows] = field(default_factory=dict)  # the buffers of `memory` after sources have joined

    @classmethod
    def begin(cls, decoder: Decoder, memory: dict[str, Stream], cache: DecodingCache) -> DecodingState:
        state = cls(decoder, memory, cache)
        if memory:  # whose keys and values are computed once for all sources that start together
            state.build_run()
        return state

    def build_run(self) -> Callable[[Tensor, int, Tensor | None], Tensor]:
        """Bind the decoder's decode step to memory and cache."""
        self.run = self.decoder.build_decode_step(Context(self.memory, self.cache, record=NO_RECORD))
        return self.run

    def copy_row(self, row: int, length: int | None = None) -> DecodingState:
        """A state of its own for one row, as it was after `length` tokens (None: as it is). States of a fixed size
        cannot go back (`can_shorten`)."""
        read = int(self.lengths[row])
        length = read if length is None else length
        cache = self.cache.copy_row(row, read, length)
        memory = {name: select_rows(stream, torch.tensor([row])) for name, stream in self.memory.items()}
        state = DecodingState(self.decoder, memory, cache, length=length)
        state._trim_memory()
        return state

    @property
    def can_shorten(self) -> bool:
        """Whether the state has what it was after fewer tokens: keys and values, and no states of a fixed size."""
        return not self.cache.states and not self.cache.limit

    @property
    def padding_lengths(self) -> Tensor | None:
        """The padding of each row, (R, 1), up to `length`; None: rows have one length."""
        return self.cache.padding

    @property
    def lengths(self) -> Tensor:
        """How many tokens each row has read, (R,)."""
        if self.padding_lengths is None:
            return torch.full((self.cache.rows,), self.length)
        return self.length - self.padding_lengths[:, 0]

    def select(self, rows: Tensor) -> DecodingState:
        """Select and reorder rows, as beam search does; rows that are left out leave the batch, and a row may be
        repeated."""
        leave = len(rows) < self.cache.rows
        moved = self.cache.select(rows)
        if moved is not None:
            for name, memory in self.memory.items():
                if name in self.sources:
                    self.sources[name].move(moved.moves)
                    self._set_memory(name, self.sources[name].stream)
                else:
                    self.memory[name] = select_rows(memory, moved.sources)
        if leave:
            self.forget_columns()
        return self

    def join(self, other: DecodingState) -> DecodingState:
        """Continuous batching: append the rows of another state of the same model, which must not be used any more.
        Each row goes on from its own position, as it would alone; only the new rows are copied. Different numbers of
        beams are refused, and rows of different lengths where a part does not declare `joins`."""
        self._check_join(other)
        device = other.lengths.device
        lengths = torch.cat((self.lengths.to(device), other.lengths))  # (R,)
        self.length = max(self.length, other.length)
        other._trim_memory()
        for name, memory in self.memory.items():
            if name not in self.sources:
                self._set_memory(name, trim_padding(memory))
                self.sources[name] = StreamRows(self.memory[name])
        padding = (self.length - lengths).unsqueeze(1)
        self.cache.join(other.cache, padding if bool(padding.any()) else None)
        for name, rows in self.sources.items():
            rows.join(other.memory[name])
            self.memory[name] = rows.stream
        return self

    def _trim_memory(self) -> None:
        """Drop the columns at the end of the memory that are padding in every row."""
        for name, memory in self.memory.items():
            self._set_memory(name, trim_padding(memory))

    def _set_memory(self, name: str, memory: Stream) -> None:
        before, after = self.memory[name].x.shape[1], memory.x.shape[1]
        if after < before:
            self.cache.narrow_sources(before, after)
        self.memory[name] = memory

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

    def forget_columns(self) -> None:
        """Drop the columns of the cache that are padding in every row."""
        padding = self.padding_lengths
        if padding is None:
            return
        least, most = int(padding.min()), int(padding.max())
        if least or not most:
            self.cache.forget(least, padding - least if least < most else None)
            self.length -= least


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
            x = (state.run or state.build_run())(tokens, state.length, state.padding_lengths)
        state.length += 1
        return self.decoder.head(x), state
