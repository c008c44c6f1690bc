"""What encoder-decoders and language models share: decoding step by step with a KV cache."""

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
    """What `step` carries on: the memory, the cache, the plan of a step and how many tokens went before."""

    memory: dict[str, Stream]
    cache: DecodingCache
    plan: Plan
    length: int = 0

    def select(self, rows: Tensor) -> DecodingState:
        """Keep these rows, in this order."""
        if self.cache.moves_sources(rows):
            self.memory.update(select_rows(self.memory, self.cache.sources(rows)))
        self.cache.select(rows)
        return self


class GenerativeModel(nn.Module):
    """What has a decoder and writes token by token."""

    decoder: Decoder
    start_id: int
    end_id: int
    continues: bool

    @property
    def vocab(self) -> int:
        return self.decoder.head.table.num_embeddings

    @property
    def max_length(self) -> int:
        """How many positions there are for what it writes; 0: any number."""
        positions = self.decoder.embed.positions
        return (
            positions.max_length - (self.decoder.opening is not None) if isinstance(positions, LearnedPositions) else 0
        )

    @property
    def ragged(self) -> bool:
        """Whether `start` reads prompts of different lengths at once."""
        return heeds_padding(self.decoder.stack)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One token for each row, (B * beams,) -> logits of the next, (B * beams, V)."""
        if self.training or RECORDER.get() is not NO_RECORD:  # a plan knows no dropout and shows nothing
            ctx = Context(state.memory, state.cache)
            x = self.decoder.stack(state.plan.embedded(tokens, state.length), ctx.at("decoder")).x[:, 0]
        else:
            x = state.plan(tokens, state.length)
        state.length += 1
        return self.decoder.head(x), state
