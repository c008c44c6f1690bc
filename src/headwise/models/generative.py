"""Base of encoder-decoders and language models: step-by-step decoding with a KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from headwise.blocks.cache import DecodingCache, select_rows
from headwise.blocks.positions.absolute import LearnedPositions
from headwise.blocks.stack import Decoder
from headwise.blocks.step_decoder import Plan, heeds_padding
from headwise.blocks.stream import NO_RECORD, RECORDER, Context, Stream


@dataclass(slots=True)
class DecodingState:
    """State of step-by-step decoding: encoder memory, KV cache, step decoder and number of tokens so far."""

    memory: dict[str, Stream]
    cache: DecodingCache
    plan: Plan
    length: int = 0

    def select(self, rows: Tensor) -> DecodingState:
        """Select and reorder rows, as beam search does."""
        if self.cache.moves_sources(rows):
            self.memory.update(select_rows(self.memory, self.cache.sources(rows)))
        self.cache.select(rows)
        return self


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
        positions = self.decoder.embed.positions
        return (
            positions.max_length - (self.decoder.opening is not None) if isinstance(positions, LearnedPositions) else 0
        )

    @property
    def ragged(self) -> bool:
        """Whether `start` accepts a batch of prompts of different lengths, padded."""
        return heeds_padding(self.decoder.stack)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One token for each row, (B * beams,) -> logits of the next, (B * beams, V)."""
        if self.training or RECORDER.get() is not NO_RECORD:  # the step decoder has no dropout and records no maps
            ctx = Context(state.memory, state.cache)
            x = self.decoder.stack(state.plan.embedded(tokens, state.length), ctx.at("decoder")).x[:, 0]
        else:
            x = state.plan(tokens, state.length)
        state.length += 1
        return self.decoder.head(x), state
