"""Stacks of layers, and the models that write: encoder-decoders and language models. Those that read are in
`blocks/readers.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.attention.multihead import SegmentRecurrenceProjection
from headwise.blocks.cache import DecodingCache, select_rows
from headwise.blocks.embed import Embedding
from headwise.blocks.heads import Loss, VocabularyHead
from headwise.blocks.part import Part
from headwise.blocks.positions.absolute import LearnedPositions
from headwise.blocks.step_decoder import GAPS, Plan, heeds_padding
from headwise.blocks.stream import NO_CACHE, NO_RECORD, REAL, RECORDER, Cache, Context, Stream
from headwise.errors import UserError
from headwise.text import PAD


class Stack(nn.Module):
    """Layers one after the other. `order` may name a layer twice: its weights are shared, its cache is not. Of the last
    layer only what `ctx` asks for need be computed."""

    def __init__(self, layers: Sequence[nn.Module], final: nn.Module | None = None, order: Sequence[int] = ()):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final = final if final is not None else nn.Identity()
        self.order = tuple(order) or tuple(range(len(layers)))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        # Who looks inside wants to see every token.
        asked = ctx.outputs_needed if ctx.record is NO_RECORD and not ctx.side.wants("layer") else None
        last = len(self.order) - 1
        for index, number in enumerate(self.order):
            here = ctx.at(index, asked if index == last else None)
            stream = self.layers[number](stream, here)
            ctx.side.add("layer", here.path, stream)
        return stream.with_x(self.final(stream.x))


class Encoder(nn.Module):
    """ids -> a stream that others may attend to. With `opening`, that mark is put before every text."""

    def __init__(self, embed: Embedding, stack: Stack, pad: int = 0, opening: int | None = None):
        super().__init__()
        self.embed, self.stack, self.pad, self.opening = embed, stack, pad, opening

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        if self.opening is not None:
            ids = F.pad(ids, (1, 0), value=self.opening)  # (B, T) -> (B, 1 + T)
        return self.stack(self.embed(ids, real(ids, self.pad)), ctx.at("encoder", ctx.outputs_needed))

    def tokens(self, stream: Stream) -> Tensor:
        """A vector for each of the ids that were given: without the opening's."""
        return stream.x if self.opening is None else stream.x[:, 1:]

    def read(self, ids: Tensor) -> dict[str, Stream]:
        """What a decoder may attend to, by name."""
        return {"encoder": self(ids, Context())}


def real(ids: Tensor, pad: int, first: bool = False) -> Tensor | None:
    """True = real token, (B, T); None where all are, which spares every layer a mask. With `first`, the first of a row
    is real in any case: some models start from the padding."""
    keep = ids != pad
    if first:
        keep[:, :1] = True
    # Looked at on CPUs alone: elsewhere the look would cost more than the mask.
    looks = ids.device.type == "cpu" and not torch.compiler.is_compiling()
    return None if looks and bool(keep.all()) else keep


class Decoder(nn.Module):
    """ids -> a stream of predictions of the next token. Padding stands on the right, behind the causal mask. With
    `opening`, that mark is read before the first id."""

    def __init__(self, embed: Embedding, stack: Stack, head: VocabularyHead, opening: int | None = None):
        super().__init__()
        self.embed, self.stack, self.head, self.opening = embed, stack, head, opening
        for part in (part for layer in stack.layers for part in getattr(layer, "parts", ())):
            if isinstance(part, Part) and not part.properties.causal:
                raise UserError(f"decoder: {type(part).__name__} is not causal and would see the future; use another")

    def forward(
        self,
        ids: Tensor,
        ctx: Context,
        start: int = 0,
        pos: Tensor | None = None,
        segment: Tensor | None = None,
    ) -> Stream:
        if self.opening is not None:
            ids = F.pad(ids, (1, 0), value=self.opening)  # (B, T) -> (B, 1 + T)
        ctx.shared[REAL] = real(ids, PAD, first=True)
        stream = self.embed(ids, start=start, pos=pos)
        found = self.stack(stream if segment is None else replace(stream, segment=segment), ctx.at("decoder"))
        return found if self.opening is None else replace(found, x=found.x[:, 1:], pos=found.pos[1:])


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


class EncoderDecoder(GenerativeModel):
    """An encoder-decoder, p(target | source). Natural tensors in, outputs out. What reads has `read(source)`: texts, or
    images."""

    continues = False
    ragged = True  # the padding of a source is never seen

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
        """Logits (B, T, V) for (B, S) and (B, T) ids; with labels (B, T) their loss instead."""
        # A context of its own for the decoder: the streams differ, and so do their masks.
        x = self.decoder(target, Context(self.encoder.read(source))).x
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, label_smoothing)

    def start(self, source: Tensor, beams: int = 1) -> DecodingState:
        """Read the sources (B, S); the state has `beams` rows for each."""
        memory = self.encoder.read(source)
        cache = DecodingCache(len(source) * beams, beams)
        state = DecodingState(memory, cache, Plan(self.decoder, Context(memory, cache, record=NO_RECORD)))
        if self.decoder.opening is not None:
            self.step(source.new_full((len(source) * beams,), self.decoder.opening), state)
        return state


class LanguageModel(GenerativeModel):
    """A causal language model, p(text): a decoder without a memory. It goes on with what it is given. One whose
    attention recalls earlier segments takes them as `carried` (blocks/segment_memory.py), and writes with a memory of
    as many tokens."""

    continues = True

    def __init__(self, decoder: Decoder, start_id: int = 1, end_id: int = 2):
        super().__init__()
        self.decoder = decoder
        self.start_id, self.end_id = start_id, end_id
        self.memory_length = max(
            (part.memory_length for part in decoder.modules() if isinstance(part, SegmentRecurrenceProjection)),
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
        the documents that share a row, `pos` (B, T) their tokens; `carried` has what the segments before left."""
        x = self.decoder(ids, Context(cache=carried), pos=pos, segment=segment).x
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, label_smoothing)

    def start(self, prompt: Tensor, beams: int = 1) -> DecodingState:
        """Read the prompts (B, P), which may be empty; where the model is `ragged`, shorter ones may be padded on
        either side. The state has `beams` rows for each."""
        ids = prompt.repeat_interleave(beams, 0)  # (B, P) -> (R, P)
        cache = DecodingCache(len(ids), beams, limit=self.memory_length)
        if ids.shape[1]:
            self.decoder.stack(self._embedded(ids, cache), Context(cache=cache).at("decoder"))
        return DecodingState({}, cache, Plan(self.decoder, Context(cache=cache, record=NO_RECORD)), ids.shape[1])

    def _embedded(self, ids: Tensor, cache: DecodingCache) -> Stream:
        """Prompts as a stream. Where there is padding it goes to the right, and the gaps that it leaves in the cache
        are counted, so that positions go on without them."""
        keep = ids != PAD
        if ids.is_meta or bool(keep.all()):  # what has no contents has no padding
            return self.decoder.embed(ids)
        keep, order = keep.sort(dim=1, descending=True, stable=True)
        cache.put(GAPS, (~keep).sum(1, keepdim=True))
        pos = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)  # a row for each: those to come differ
        return self.decoder.embed(ids.gather(1, order), keep, pos=pos)


def parameters(model: nn.Module) -> int:
    """How many numbers the model learns; shared tensors count once."""
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
