"""Stacks of layers, and the three shapes of model that they make: encoder, decoder, encoder-decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from headwise.blocks.cache import DecodingCache, selected
from headwise.blocks.embed import Embedding
from headwise.blocks.heads import Loss, VocabularyHead
from headwise.blocks.part import Part
from headwise.blocks.plan import Plan
from headwise.blocks.stream import NO_RECORD, Context, Stream
from headwise.errors import UserError


class Stack(nn.Module):
    """Layers one after the other. `order` may name a layer twice: its weights are shared, its cache is not."""

    def __init__(self, layers: Sequence[nn.Module], final: nn.Module | None = None, order: Sequence[int] = ()):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final = final if final is not None else nn.Identity()
        self.order = tuple(order) or tuple(range(len(layers)))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        for place, number in enumerate(self.order):
            here = ctx.at(place)
            stream = self.layers[number](stream, here)
            ctx.side.add("layer", here.place, stream)
        return stream.carrying(self.final(stream.x))


class Encoder(nn.Module):
    """ids -> a stream that others may attend to."""

    def __init__(self, embed: Embedding, stack: Stack, pad: int = 0):
        super().__init__()
        self.embed, self.stack, self.pad = embed, stack, pad

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        return self.stack(self.embed(ids, ids != self.pad), ctx.at("encoder"))

    def read(self, ids: Tensor) -> dict[str, Stream]:
        """What a decoder may attend to, by name."""
        return {"encoder": self(ids, Context())}


class Decoder(nn.Module):
    """ids -> a stream of predictions of the next token. Padding stands on the right, behind the causal mask."""

    def __init__(self, embed: Embedding, stack: Stack, head: VocabularyHead):
        super().__init__()
        self.embed, self.stack, self.head = embed, stack, head
        for part in (part for layer in stack.layers for part in getattr(layer, "parts", ())):
            if isinstance(part, Part) and not part.properties.causal:
                raise UserError(f"decoder: {type(part).__name__} is not causal and would see the future; use another")

    def forward(self, ids: Tensor, ctx: Context, start: int = 0) -> Stream:
        return self.stack(self.embed(ids, start=start), ctx.at("decoder"))


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
            self.memory.update(selected(self.memory, self.cache.sources(rows)))
        self.cache.select(rows)
        return self


class Writer(nn.Module):
    """What has a decoder and writes token by token."""

    decoder: Decoder
    start_id: int
    end_id: int
    continues: bool

    @property
    def vocab(self) -> int:
        return self.decoder.head.table.num_embeddings

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """One token for each row, (B * beams,) -> logits of the next, (B * beams, V)."""
        ctx = Context(state.memory, state.cache)
        if self.training or ctx.record is not NO_RECORD:  # a plan knows no dropout and shows nothing
            x = self.decoder(tokens.unsqueeze(1), ctx, start=state.length).x[:, 0]
        else:
            x = state.plan(tokens, state.length)
        state.length += 1
        return self.decoder.head(x), state


class EncoderDecoder(Writer):
    """p(target | source). Natural tensors in, outputs out."""

    continues = False

    def __init__(self, encoder: Encoder, decoder: Decoder, start_id: int = 1, end_id: int = 2):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.start_id, self.end_id = start_id, end_id

    @property
    def source_vocab(self) -> int:
        return self.encoder.embed.table.num_embeddings

    def forward(
        self, source: Tensor, target: Tensor, labels: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor | Loss:
        """Logits (B, T, V) for (B, S) and (B, T) ids; with labels (B, T) their loss instead."""
        # A context of its own for the decoder: the streams differ, and so do their masks.
        x = self.decoder(target, Context(self.encoder.read(source))).x
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, smoothing)

    def start(self, source: Tensor, beams: int = 1) -> DecodingState:
        """Read the sources (B, S); the state has `beams` rows for each."""
        memory = self.encoder.read(source)
        cache = DecodingCache(len(source) * beams, beams)
        return DecodingState(memory, cache, Plan(self.decoder, Context(memory, cache, record=NO_RECORD)))


class LanguageModel(Writer):
    """p(text): a decoder without a memory. It goes on with what it is given."""

    continues = True

    def __init__(self, decoder: Decoder, start_id: int = 1, end_id: int = 2):
        super().__init__()
        self.decoder = decoder
        self.start_id, self.end_id = start_id, end_id

    def forward(self, ids: Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, T, V) of the token after each; with labels (B, T) their loss instead."""
        x = self.decoder(ids, Context()).x
        return self.decoder.head(x) if labels is None else self.decoder.head.loss(x, labels, smoothing)

    def start(self, prompt: Tensor, beams: int = 1) -> DecodingState:
        """Read the prompts (B, P), which may be empty and have no padding; the state has `beams` rows for each."""
        cache = DecodingCache(len(prompt) * beams, beams)
        ctx = Context(cache=cache)
        if prompt.shape[1]:
            self.decoder(prompt.repeat_interleave(beams, 0), ctx)
        return DecodingState({}, cache, Plan(self.decoder, Context(cache=cache, record=NO_RECORD)), prompt.shape[1])


class Tagger(nn.Module):
    """p(label of each token | text)."""

    def __init__(self, encoder: Encoder, head: VocabularyHead):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids: Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, T, L) for (B, T) ids; with labels (B, T) their loss instead."""
        x = self.encoder(ids, Context()).x
        return self.head(x) if labels is None else self.head.loss(x, labels, smoothing)


class Classifier(nn.Module):
    """p(label | text), from the pooled vectors of its tokens."""

    def __init__(self, encoder: Encoder, pool: nn.Module, head: VocabularyHead):
        super().__init__()
        self.encoder, self.pool, self.head = encoder, pool, head

    def forward(self, ids: Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor | Loss:
        """Logits (B, L) for (B, T) ids; with labels (B,) their loss instead."""
        x = self.pool(self.encoder(ids, Context()))
        return self.head(x) if labels is None else self.head.loss(x, labels, smoothing)


def parameters(model: nn.Module) -> int:
    """How many numbers the model learns; shared tensors count once."""
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
