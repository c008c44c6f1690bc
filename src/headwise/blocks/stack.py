"""Token embedding, stack of layers, encoder and decoder. Whole models are in `models/`.

Letters: B rows, T length, C width, R rows of a decoding step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.blocks.checkpointing import checkpoint_layer
from headwise.blocks.decode_step import (
    EmbeddingStep,
    EmbedTokens,
    Function,
    FunctionStep,
    PositionStep,
    Step,
    calls,
    to_function,
)
from headwise.blocks.heads import OutputLayer
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import NO_RECORD, Context, LayerStep, Part, Stream, build_decode_step
from headwise.blocks.token_embeddings import TokenTable
from headwise.errors import UserError
from headwise.text import EOS, PAD

LAYERS = "layers"  # the memory of a transparent decoder: the encoder's embeddings and layers, side by side in channels


def number_texts(ids: Tensor, end: int = EOS) -> Tensor:
    """The number of each token's text in its row, (B, T): of the ids `end` before it. A text ends with that id, which
    belongs to it."""
    ends = ids == end
    return ends.cumsum(1) - ends.long()


class NoTokenTypes(nn.Module, FunctionStep):
    """No token types: adds nothing."""

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x

    def build_decode_step(self) -> Function:
        return lambda x, tokens: x


class TokenTypes(nn.Module, FunctionStep):
    """Token type embedding: x + table[type], the number of the token's text in its row (Devlin et al. 2019: segment A
    or B). A text ends with the id `end`, which belongs to it; texts after the last type have the last type.
    Without `pairs`, every token has the first type."""

    def __init__(self, width: int, count: int = 2, end: int = 2, pairs: bool = True):
        super().__init__()
        self.table = nn.Embedding(count, width)
        self.end, self.pairs = end, pairs

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        if not self.pairs:
            return x + self.table.weight[0]
        return x + self.table(number_texts(ids, self.end).clamp(max=self.table.num_embeddings - 1))

    def build_decode_step(self) -> Function:
        return lambda x, tokens: self(x.unsqueeze(1), tokens.unsqueeze(1)).squeeze(1)  # (R, C) -> (R, 1, C) and back


class TaskTypes(nn.Module, FunctionStep):
    """Task type embedding: x + table[0] for every token (Sun et al. 2020, ERNIE 2.0: the number of the pretraining
    task; fine-tuned models have the first)."""

    def __init__(self, width: int, count: int):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x + self.table.weight[0]

    def build_decode_step(self) -> Function:
        return self.forward


class Positions(nn.Module, PositionStep):
    """Position embeddings that are added to token embeddings, `positions(x, pos, start)`: with `start` >= 0, `pos` is
    start, start + 1, ...; with -1 it is anything."""

    max_length: int = 0  # number of positions; 0: any number
    adds_vectors: bool = True  # whether it adds a vector for each position, which can be concatenated instead


class Embedding(nn.Module, EmbeddingStep):
    """The token embedding: projection(dropout(norm(table[ids] * scale + position + type + task type))).

    The table may be shared with another embedding and with the head. Where its vectors are narrower than the model,
    `projection` maps them to the model's width (ALBERT's factorised embedding, Lan et al. 2020).
    """

    def __init__(
        self,
        table: TokenTable,
        positions: Positions,
        scale: float = 1.0,
        dropout: float = 0.0,
        types: nn.Module | None = None,
        norm: nn.Module | None = None,
        projection: nn.Module | None = None,
        tasks: nn.Module | None = None,
    ):
        super().__init__()
        self.table = table
        self.positions = positions
        self.scale = scale
        self.drop = make_dropout(dropout)
        self.types = types if types is not None else NoTokenTypes()
        self.tasks = tasks if tasks is not None else NoTokenTypes()
        self.norm = norm if norm is not None else nn.Identity()
        self.projection = projection if projection is not None else nn.Identity()

    def forward(self, ids: Tensor, keep: Tensor | None = None, start: int = 0, pos: Tensor | None = None) -> Stream:
        """(B, T) ids -> a stream of (B, T, C), at positions start, start + 1, ... or at `pos`."""
        if pos is None:
            pos = torch.arange(start, start + ids.shape[1], device=ids.device)
        else:
            start = -1
        x = self.table(ids)  # (B, T) -> (B, T, C)
        if self.scale != 1.0:
            x = x * self.scale
        x = self.tasks(self.types(self.positions(x, pos, start), ids), ids)
        return Stream(self.projection(self.drop(self.norm(x))), pos, keep)

    def build_decode_step(self) -> EmbedTokens:
        table, scale, add_position = to_function(self.table), self.scale, self.positions.build_decode_step()
        add_type, add_task = to_function(self.types), to_function(self.tasks)
        norm, drop, projection = to_function(self.norm), to_function(self.drop), to_function(self.projection)

        def step(tokens: Tensor, length: int, padding_lengths: Tensor | None) -> Stream:
            pos = None if padding_lengths is None else length - padding_lengths  # (R, 1)
            x = add_position(table(tokens), scale, length, pos)  # (R,) -> (R, C)
            x = add_task(add_type(x, tokens), tokens)
            pos = torch.arange(length, length + 1, device=tokens.device) if pos is None else pos
            return Stream(projection(drop(norm(x))).unsqueeze(1), pos)

        return step


class Stack(nn.Module, LayerStep):
    """A stack of layers. `layer_numbers` has the layer that runs at each depth; a layer that runs twice shares its
    weights (cross-layer parameter sharing), not its KV cache. Layers repeat a pattern of `pattern_length` layers, such
    as local and global attention in turn. Of the last layer only the first `ctx.outputs_needed` outputs are
    computed."""

    returns_layers: bool = False  # whether a decoder reads the outputs of all layers (`blocks/transparent.py`)
    checkpointing: bool = False  # whether training recomputes the activations of each layer (`enable_checkpointing`)

    def __init__(
        self,
        layers: Sequence[nn.Module],
        final: nn.Module | None = None,
        layer_numbers: Sequence[int] = (),
        pattern_length: int = 1,
    ):
        super().__init__()
        self.pattern_length = pattern_length
        self.layers = nn.ModuleList(layers)
        self.final = final if final is not None else nn.Identity()
        self.layer_numbers = tuple(layer_numbers) or tuple(range(len(layers)))

    def forward(self, stream: Stream, ctx: Context) -> Stream:
        # a recorder, and a collector of layer outputs, need every token
        needed = ctx.outputs_needed if ctx.record is NO_RECORD and not ctx.side.wants("layer") else None
        last = len(self.layer_numbers) - 1
        for index in range(len(self.layer_numbers)):
            layer_ctx = self.get_layer_context(ctx, index, needed if index == last else None)
            stream = self.run_layer(index, stream, layer_ctx)
            ctx.side.add("layer", layer_ctx.path, stream)
        return stream.with_x(self.final(stream.x))

    def get_layer_context(self, ctx: Context, index: int, outputs_needed: int | None = None) -> Context:
        """The context of the layer that runs at depth `index`."""
        return ctx.at(index, outputs_needed)

    def run_layer(self, index: int, stream: Stream, ctx: Context) -> Stream:
        """The outputs of the layer that runs at depth `index`."""
        layer = self.layers[self.layer_numbers[index]]
        if self.checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint_layer(layer, stream, ctx)
        outputs: Stream = layer(stream, ctx)
        return outputs

    @calls("get_layer_context")
    def build_decode_step(self, ctx: Context) -> Step:
        steps = [
            build_decode_step(self.layers[number], self.get_layer_context(ctx, index))
            for index, number in enumerate(self.layer_numbers)
        ]
        final = to_function(self.final)

        def step(x: Tensor, at: Stream) -> Tensor:
            for layer in steps:
                x = layer(x, at)
            return final(x)

        return step

    @property
    def parts(self) -> list[nn.Module]:
        """The parts of all layers, each once."""
        return [part for layer in self.layers for part in getattr(layer, "parts", (layer,))]

    def find_parts_without(self, name: str) -> list[str]:
        """The class names of parts that do not declare a property."""
        return sorted({type(part).__name__ for part in self.parts if not declares(part, name)})


def enable_checkpointing(model: nn.Module) -> None:
    """Let training recompute the activations of each layer of all stacks in the backward pass instead of storing
    them."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        raise UserError("train.checkpointing: this model has no stack of layers; leave it out")
    for stack in stacks:
        if type(stack).forward is not Stack.forward:
            raise UserError(f"train.checkpointing: {type(stack).__name__} does not run layer by layer; leave it out")
        stack.checkpointing = True


def require_plain(stack: Stack, what: str) -> Stack:
    """The stack, if nothing but its layers and its final norm compute its outputs; a `UserError` otherwise."""
    if type(stack) is not Stack:
        raise UserError(f"{what}: cannot be combined with recurrence or pooled_layers; leave one out")
    return stack


def declares(part: nn.Module, name: str) -> bool:
    """Whether a part declares a property; a module that is not a `Part` declares none."""
    return isinstance(part, Part) and getattr(part.properties, name)


class Encoder(nn.Module):
    """The encoder: ids -> a stream that a decoder or a head reads. With `prefix_id`, such as BOS, that id is put before
    every text; with `suffix_id`, such as a language's, that id after the last token of every text."""

    def __init__(
        self, embed: Embedding, stack: Stack, pad: int = 0, prefix_id: int | None = None, suffix_id: int | None = None
    ):
        super().__init__()
        self.embed, self.stack, self.pad, self.prefix_id, self.suffix_id = embed, stack, pad, prefix_id, suffix_id

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        if self.prefix_id is not None:
            ids = F.pad(ids, (1, 0), value=self.prefix_id)  # (B, T) -> (B, 1 + T)
        if self.suffix_id is not None:
            lengths = (ids != self.pad).sum(1, keepdim=True)  # (B, 1)
            ids = F.pad(ids, (0, 1), value=self.pad).scatter(1, lengths, self.suffix_id)  # (B, T) -> (B, T + 1)
        stream, stack_ctx = self.embed(ids, build_keep_mask(ids, self.pad)), ctx.at("encoder", ctx.outputs_needed)
        if any(isinstance(part, Part) and part.reads_token_types for part in self.stack.parts):
            stream = replace(stream, token_types=number_texts(ids))
        ctx.side.add("embedding", stack_ctx.path, stream)
        return self.stack(stream, stack_ctx)

    def drop_prefix(self, stream: Stream) -> Tensor:
        """The vectors of the ids alone, without that of the prefix: (B, T, C)."""
        return stream.x if self.prefix_id is None else stream.x[:, 1:]

    def read(self, ids: Tensor) -> dict[str, Stream]:
        """The memory of a decoder: streams to attend to, by name."""
        ctx = Context()
        if not self.stack.returns_layers:
            return {"encoder": self(ids, ctx)}
        from headwise.blocks.record import Collector  # which imports attention, and that the embedding of this file

        side = Collector("embedding", "layer", onward=ctx.side)
        outputs = self(ids, replace(ctx, side=side))
        layers = (*side.list_values("embedding"), *side.list_values("layer")[:-1], outputs)
        x = torch.cat([stream.x for stream in layers], dim=-1)  # L x (B, T, C) -> (B, T, LC)
        return {"encoder": outputs, LAYERS: outputs.with_x(x)}


class PaddedEncoder(Encoder):
    """An encoder that pads texts longer than the shortest of these chunks to a multiple of all, as the Reformer of
    `transformers` does, whose layers depend on the padding; the padding's outputs are dropped."""

    def __init__(self, embed: Embedding, stack: Stack, chunks: Sequence[int]):
        super().__init__(embed, stack)
        self.shortest, self.multiple = min(chunks), math.lcm(*chunks)

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        length = ids.shape[1]
        if length > self.shortest:
            ids = F.pad(ids, (0, -length % self.multiple), value=self.pad)
        return super().forward(ids, ctx).take_first(length)


def build_keep_mask(ids: Tensor, pad: int, first: bool = False) -> Tensor | None:
    """The padding mask (B, T), True = real token; None where all are real, so that layers need no mask. With `first`,
    the first token of a row is real in any case: some models start from the padding id."""
    keep = ids != pad
    if first:
        keep[:, :1] = True
    # checked on CPUs alone: elsewhere the synchronisation would cost more than the mask
    checks = ids.device.type == "cpu" and not torch.compiler.is_compiling()
    return None if checks and bool(keep.all()) else keep


class Decoder(nn.Module):
    """The decoder: ids -> a stream that the language model head turns into logits of the next token. Padding is on the
    right, where the causal mask hides it. `prefix_id` is read before the start token: BART decodes from EOS, BOS (in
    Hugging Face `decoder_start_token_id` and `forced_bos_token_id`)."""

    def __init__(self, embed: Embedding, stack: Stack, head: OutputLayer, prefix_id: int | None = None):
        super().__init__()
        self.embed, self.stack, self.head, self.prefix_id = embed, stack, head, prefix_id
        for part in stack.parts:
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
        if self.prefix_id is not None:
            ids = F.pad(ids, (1, 0), value=self.prefix_id)  # (B, T) -> (B, 1 + T)
        stream = self.embed(ids, start=start, pos=pos)
        stream = replace(stream, segment=segment, decoder_keep=build_keep_mask(ids, PAD, first=True))
        stream = self.stack(stream, ctx.at("decoder"))
        return stream if self.prefix_id is None else replace(stream, x=stream.x[:, 1:], pos=stream.pos[1:])

    def forward_next(self, tokens: Tensor, length: int, padding_lengths: Tensor | None, ctx: Context) -> Tensor:
        """The output (R, C) for a token (R,) of each row after `length` others, of which `padding_lengths` (R, 1) were
        padding."""
        ids = tokens.unsqueeze(1)  # (R,) -> (R, 1)
        stream = (
            self.embed(ids, start=length) if padding_lengths is None else self.embed(ids, pos=length - padding_lengths)
        )
        return self.stack(stream, ctx.at("decoder")).x[:, 0]  # (R, 1, C) -> (R, C)

    def build_decode_step(self, ctx: Context) -> Callable[[Tensor, int, Tensor | None], Tensor]:
        """The decode step of `forward_next`."""
        embed, step, shared = (
            self.embed.build_decode_step(),
            build_decode_step(self.stack, ctx.at("decoder")),
            ctx.shared,
        )

        def run(tokens: Tensor, length: int, padding_lengths: Tensor | None) -> Tensor:
            shared.clear()  # layers of one step share masks, steps do not
            stream = embed(tokens, length, padding_lengths)
            return step(stream.x.squeeze(1), stream)  # (R, 1, C) -> (R, C)

        return run


def count_parameters(model: nn.Module) -> int:
    """Number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
