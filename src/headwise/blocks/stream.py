"""The contract of parts: `part(stream, ctx)`, with the data that flows through a stack (`Stream`), the state of one
forward call (`Context`), and what a part declares (`Properties`).

Letters: B rows of a batch, T length, C width, H heads, D head_width.

A `Stream` is a frozen value; a `Context` belongs to one call of a model. A call stores nothing on a module, so a module
may stand in a stack twice, be called from two threads, or be shared by two models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from headwise.blocks.decode_step import HasDecodeStep, Step, calls

if TYPE_CHECKING:
    from headwise.blocks.attention.score_mods import ApproximateMap, AttentionInputs

LayerPath = tuple[int | str, ...]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Stream:
    """Token vectors with their positions and masks."""

    x: Tensor  # (B, T, C)
    pos: Tensor  # (T,) or (B, T): positions in the sequence
    keep: Tensor | None = None  # (B, T) padding mask, True = real token; None: all are real
    grid: tuple[int, int] | None = None  # rows and columns of an image
    segment: Tensor | None = None  # (B, T) number of the packed document
    tree: Tensor | None = None  # (B, T) heads of the words in a dependency tree, from 1; 0: the root
    decoder_keep: Tensor | None = (
        None  # (B, T) the padding mask of a decoder, whose causal mask makes `keep` superfluous
    )
    token_types: Tensor | None = None  # (B, T) number of the token's text, where attention reads it
    pair: Tensor | None = (
        None  # (P, T, T, K) vectors of pairs of tokens, for a pair bias; B / P rows in a row share one
    )

    @classmethod
    def of(cls, x: Tensor, keep: Tensor | None = None, start: int = 0) -> Stream:
        """A stream of consecutive positions."""
        return cls(x, torch.arange(start, start + x.shape[1], device=x.device), keep)

    def with_x(self, x: Tensor) -> Stream:
        """The same stream with other vectors."""
        masks = (self.keep, self.grid, self.segment, self.tree, self.decoder_keep, self.token_types)
        return Stream(x, self.pos, *masks, self.pair)

    @property
    def real_mask(self) -> Tensor | None:
        """(B, T) True = real token, whether attention needs the mask or not; None: all are real."""
        return self.keep if self.keep is not None else self.decoder_keep

    def take_first(self, count: int) -> Stream:
        """The first `count` tokens, without a grid."""
        keep, segment, tree, decoder_keep, token_types = (
            None if tensor is None else tensor[:, :count]
            for tensor in (self.keep, self.segment, self.tree, self.decoder_keep, self.token_types)
        )
        pair = None if self.pair is None else self.pair[:, :count, :count]
        masks = (keep, None, segment, tree, decoder_keep, token_types)
        return Stream(self.x[:, :count], self.pos[..., :count], *masks, pair)


class Cache:
    """The interface of the KV cache. This one is the null cache of training: there are no earlier steps.

    Parts call it in training too, so no part checks whether it is decoding.
    """

    def extend(self, path: LayerPath, dim: int, *new: Tensor) -> tuple[Tensor, ...]:
        """Append keys and values along `dim`: what earlier calls stored at `path`, then `new`."""
        return new

    def extend_keep(self, path: LayerPath, stream: Stream) -> Tensor | None:
        """The padding mask (B, T) of all that `extend` stored at `path`, this stream last; None: all tokens are real.
        Call it after `extend`."""
        return stream.keep

    def build_mask(self, path: LayerPath, stream: Stream) -> Tensor | None:
        """The padding mask of `extend_keep` for a fused kernel, (B, 1, 1, T): True = real token, or scores to add."""
        keep = self.extend_keep(path, stream)
        return None if keep is None else keep[:, None, None]

    def extend_positions(self, path: LayerPath, pos: Tensor) -> Tensor:
        """The positions (T,) or (B, T) of all that `extend` stored at `path`, `pos` last."""
        return pos

    def prepend_memory(self, path: LayerPath, stream: Stream) -> Stream:
        """Segment-level recurrence: `stream` after the tokens that earlier segments stored at `path`. Stores `stream`
        for the next segment."""
        return stream

    def compute_once(self, path: LayerPath, compute: Callable[[], Value], dim: int | None = None) -> Value:
        """Compute once per source, at the first call (keys and values of cross-attention); one row for each source,
        whatever the number of beams. When sources join it is computed again, unless `dim` says which dimension of its
        tensors runs over the source's tokens: then sources of different lengths are padded along it."""
        return compute()

    def get_state(self, path: LayerPath, initial: Callable[[], Tensor]) -> Tensor:
        """The recurrent state that `put_state` stored at `path`: sums of linear attention, hidden states of an RNN."""
        return initial()

    def put_state(self, path: LayerPath, value: Tensor) -> None:
        """Store a recurrent state for the next call."""


class SideOutputs:
    """Named side outputs (load-balancing losses, layer outputs). This one is null: they are dropped."""

    def add(self, name: str, path: LayerPath, value: Any) -> None:
        """Add one value of the part at `path`."""

    def wants(self, name: str) -> bool:
        """Whether values of this name are collected."""
        return False


class Recorder:
    """Observes the inputs of every attention and may edit inputs and outputs (`blocks.record` for attention
    maps, `blocks.intervene` for ablations). This one is null: it observes and changes nothing."""

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        """Observe the inputs of attention, or the map of a mixer that approximates or replaces it."""

    def edit_inputs(self, path: LayerPath, inputs: AttentionInputs) -> AttentionInputs:
        """Edit the inputs of attention before the kernel runs."""
        return inputs

    def edit_heads(self, path: LayerPath, heads: Tensor) -> Tensor:
        """Edit the outputs of the heads, (B, H, T, D), before the output projection."""
        return heads

    def edit_output(self, path: LayerPath, x: Tensor) -> Tensor:
        """Edit the output of a part, (B, T, C)."""
        return x


class ForwardingRecorder(Recorder):
    """Forwards everything to another recorder; a subclass acts before or after that."""

    def __init__(self, onward: Recorder):
        self.onward = onward

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        self.onward.observe(path, inputs)

    def edit_inputs(self, path: LayerPath, inputs: AttentionInputs) -> AttentionInputs:
        return self.onward.edit_inputs(path, inputs)

    def edit_heads(self, path: LayerPath, heads: Tensor) -> Tensor:
        return self.onward.edit_heads(path, heads)

    def edit_output(self, path: LayerPath, x: Tensor) -> Tensor:
        return self.onward.edit_output(path, x)


NO_CACHE, NO_SIDE, NO_RECORD = Cache(), SideOutputs(), Recorder()
RECORDER: ContextVar[Recorder] = ContextVar("recorder", default=NO_RECORD)
SIDE: ContextVar[SideOutputs] = ContextVar("side", default=NO_SIDE)


def make_hashable(size: Any) -> Hashable:
    """A size as a part of a key of `Context.shared`: that of torch.export, a symbol, has no hash."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


@dataclass(frozen=True, slots=True)
class Context:
    """The state of one forward call: memory for cross-attention, KV cache, collectors, and the path in the model."""

    memory: Mapping[str, Stream] = field(default_factory=dict)  # that cross-attention reads: "encoder" -> its outputs
    cache: Cache = NO_CACHE  # keys, values and states of earlier decoding steps
    side: SideOutputs = field(default_factory=SIDE.get)  # takes losses and other values beside the outputs
    record: Recorder = field(default_factory=RECORDER.get)  # observes and edits attention
    path: LayerPath = ()  # of the part in the model, under which it stores in the cache
    shared: dict[Hashable, Any] = field(default_factory=dict)  # tensors that layers of one call share, such as masks
    # number of outputs that are read, from the first on; the others may be left out. None: all are read
    outputs_needed: int | None = None

    def at(self, step: int | str, outputs_needed: int | None = None) -> Context:
        """The same call one level deeper. Cache entries belong to paths, not to modules, so a module may be shared.
        `outputs_needed` is not inherited: of a stack it holds for the last layer alone."""
        path = (*self.path, step)
        return Context(self.memory, self.cache, self.side, self.record, path, self.shared, outputs_needed)


class LayerStep(HasDecodeStep):
    """A part, a layer or a stack: `module(stream, ctx)`, with a decode step for its path in the KV cache."""

    @calls("forward")
    def build_decode_step(self, ctx: Context) -> Step:
        assert isinstance(self, nn.Module)
        return run_module(self, ctx)


def build_decode_step(module: nn.Module, ctx: Context) -> Step:
    """The decode step of a part, layer or stack at the path of `ctx`."""
    return module.build_decode_step(ctx) if isinstance(module, LayerStep) else run_module(module, ctx)


def run_module(module: nn.Module, ctx: Context) -> Step:
    """The decode step of any part or layer: the module on a stream of length 1."""

    def step(x: Tensor, at: Stream) -> Tensor:
        out = module(at.with_x(x.unsqueeze(1)), ctx)  # (R, C) -> (R, 1, C)
        return (out.x if isinstance(out, Stream) else out).squeeze(1)

    return step


@dataclass(frozen=True)
class Properties:
    """What a part guarantees. `headwise.testing.check_part` checks each claim, and that each denial is true.

    causal             an output never depends on later inputs
    steppable          token by token through a cache it gives the same outputs as in one pass
    length_free        takes any length
    batch_independent  a row's outputs do not depend on the other rows
    padding            padding on the right changes no real output
    packing            documents packed into one row (`Stream.segment`) do not depend on one another
    exact              the same inputs give the same outputs in evaluation mode
    joins              rows of different lengths may share a decoding state: what grows along the tokens is stored with
                       `cache.extend`, newest tokens last, and masked by `cache.extend_keep`; the rest has a fixed size
                       for each row; and a prompt may be read in chunks
    ragged             joins, and padding on the right of a row does not change the state that it leaves
    unbounded          its state has a fixed size and forgets: it can go on in texts longer than those of training
    """

    causal: bool = False
    steppable: bool = False
    length_free: bool = True
    batch_independent: bool = True
    padding: bool = True
    packing: bool = False
    exact: bool = True
    joins: bool = False
    ragged: bool = False
    unbounded: bool = False


class Part(nn.Module, LayerStep, ABC):
    """`part(stream, ctx) -> x` of the same length; outputs after the first `ctx.outputs_needed` may be left out. Used
    alone it takes a plain tensor, too."""

    by_token: ClassVar[bool] = False  # whether a token's output depends on that token alone
    output_width: int = 0  # of the vectors that it returns; 0: that of its inputs

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "transform" in vars(cls) and "input_linear" not in vars(cls):  # it may read the stream in another way
            setattr(cls, "input_linear", Part.input_linear)  # noqa: B010  (mypy: properties are read-only)

    @property
    def properties(self) -> Properties:
        return Properties()

    @property
    def reads_token_types(self) -> bool:
        """Whether it reads the number of each token's text, `Stream.token_types`, which an encoder then provides."""
        return False

    @property
    def input_linear(self) -> nn.Module | None:
        """The linear layer that alone reads the vectors of the stream, so that a factor of each channel can be folded
        into its weight (`blocks/admin.py`); None: there is no such layer."""
        return None

    def forward(self, stream: Stream | Tensor, ctx: Context | None = None) -> Tensor:
        if isinstance(stream, Tensor):
            stream = Stream.of(stream)
        ctx = ctx if ctx is not None else Context()
        if not (stream.x.shape[0] and stream.x.shape[1]):
            return self.transform_nothing(stream, ctx)
        return ctx.record.edit_output(ctx.path, self.transform(stream, ctx))

    def transform_nothing(self, stream: Stream, ctx: Context) -> Tensor:
        """The outputs of no rows or no tokens, of every part: (B, T, C) with B or T = 0. Many operations of torch
        refuse these, or divide by their number. The sum, 0, keeps the inputs in the graph."""
        x = stream.x
        return x.new_zeros(*x.shape[:-1], self.output_width or x.shape[-1]) + x.sum()

    @abstractmethod
    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        """The forward pass of the part: (B, T, C) -> (B, T, C)."""
