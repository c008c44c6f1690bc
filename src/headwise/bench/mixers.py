"""One layer that mixes tokens, ours or a package's, in a process of its own: its time, memory and error at a length.

A layer is projections, mixing and output, so that all are compared with the same products around them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

from headwise.bench import memory
from headwise.bench.jobs import MixerJob
from headwise.blocks.attention.kernels import plain
from headwise.blocks.attention.score_mods import (
    ALWAYS,
    ApproximateMap,
    AttentionInputs,
    AttentionLayout,
    Causal,
    Dot,
    Scaled,
)
from headwise.blocks.mixers.favor import PerformerConfig
from headwise.blocks.mixers.lowrank import LowRankConfig
from headwise.blocks.mixers.lsh import LshConfig
from headwise.blocks.part import BuildContext
from headwise.blocks.stream import Context, LayerPath, Recorder, Stream
from headwise.models.init_weights import init_xavier
from headwise.train.hardware import tune_allocator


def ours(job: MixerJob, length: int) -> nn.Module:
    """A part with the weights it would begin with in a Transformer: queries, keys and values of unit variance."""
    site = BuildContext(job.width, job.heads, 4 * job.width, head_width=job.head_width, causal=job.causal)
    part: nn.Module = reaching(job.mixer, length).build(site)
    init_xavier(part, job.width)
    return part


def reaching(config: Any, length: int) -> Any:
    """A mixer or a score that is made for so many places, with enough of them."""
    if hasattr(config, "score"):
        config = config.changed(score=reaching(config.score, length))
    return config.changed(max_length=length) if getattr(config, "max_length", length) < length else config


def linformer(job: MixerJob, length: int) -> nn.Module:
    from linformer import LinformerSelfAttention

    assert isinstance(job.mixer, LowRankConfig)
    rank, limit = job.mixer.rank, max(length, job.mixer.max_length)
    return LinformerSelfAttention(job.width, limit, k=rank, heads=job.heads, dim_head=job.head_width)


def performer_pytorch(job: MixerJob, length: int) -> nn.Module:
    from performer_pytorch import SelfAttention

    assert isinstance(job.mixer, PerformerConfig)
    shape = {"heads": job.heads, "dim_head": job.head_width, "nb_features": job.mixer.features}
    return SelfAttention(job.width, job.causal, **shape)


def reformer_pytorch(job: MixerJob, length: int) -> nn.Module:
    from reformer_pytorch import LSHSelfAttention

    assert isinstance(job.mixer, LshConfig)
    shape = {"dim_head": job.head_width, "bucket_size": job.mixer.chunk, "n_hashes": job.mixer.rounds}
    return LSHSelfAttention(job.width, job.heads, causal=job.causal, **shape)


# Each with the settings of our mixer of the same name.
PACKAGES: dict[str, Callable[[MixerJob, int], nn.Module]] = {
    "linformer (PyPI)": linformer,
    "performer-pytorch": performer_pytorch,
    "reformer-pytorch": reformer_pytorch,
}


class Subject:
    """The layer of a job. It is made for one length at a time."""

    def __init__(self, job: MixerJob):
        self.job, self.length = job, 0
        self.make = PACKAGES.get(job.engine, ours)

    def __call__(self, length: int = 256, backward: bool = False, first: bool = False) -> dict[str, Any]:
        """Seconds of one pass forward, or forward and backward, of the clock and of the processor; the first time at a
        length also its peak memory in bytes, and forward the error."""
        if length != self.length:
            self._prepare(length)
        before = memory.begin() if first else None
        begin, worked = perf_counter(), process_time()
        self._both() if backward else self._forward()
        found: dict[str, Any] = {"seconds": perf_counter() - begin, "cpu": process_time() - worked}
        if first:
            found |= {"bytes": memory.peak(before), "error": None if backward else self._error()}
        memory.begin()  # whoever is next needs what this one has freed
        return found

    def _prepare(self, length: int) -> None:
        torch.manual_seed(0)
        self.length, self.layer = length, self.make(self.job, length)
        rows = max(1, self.job.tokens // length)
        self.x = (self.job.spread * torch.randn(rows, length, self.job.width)).requires_grad_()

    @torch.no_grad()
    def _forward(self) -> None:
        self.layer.eval()(self.x)

    def _both(self) -> None:
        self.layer.zero_grad()
        self.x.grad = None
        self.layer.train()(self.x).backward(self.x.detach())

    @torch.no_grad()
    def _error(self) -> float | None:
        if self.make is not ours:
            return None
        return error(*observed(self.layer.eval(), self.x[:1]), self.job.causal)


class Observer(Recorder):
    """Keeps what softmax attention over all keys would look at."""

    found: AttentionInputs | None = None

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if isinstance(inputs, ApproximateMap):
            self.found = inputs.exact() if inputs.exact else None
        elif isinstance(inputs.score, Dot | Scaled):  # with a window it approximates attention to all keys
            always = tuple(mod for mod in inputs.score_mods if isinstance(mod, Causal) or mod in ALWAYS)
            self.found = replace(inputs, score_mods=always)


def observed(layer: nn.Module, x: Tensor) -> tuple[Tensor | None, AttentionInputs | None]:
    """What a layer mixes for `x` before its output projection, (B, H, T, D), and the look of softmax attention at the
    same queries, keys and values."""
    taken: list[Tensor] = []
    observer = Observer()
    out = getattr(layer, "out", None)
    hook = out.register_forward_pre_hook(lambda _, given: taken.append(given[0])) if out is not None else None
    layer(Stream.of(x), Context(record=observer))
    if hook is not None:
        hook.remove()
    if observer.found is None or not taken:
        return None, None
    heads = observer.found.q.shape[1]
    return taken[-1].unflatten(-1, (heads, -1)).transpose(1, 2), observer.found  # (B, T, HD) -> (B, H, T, D)


def error(
    mixed: Tensor | None, inputs: AttentionInputs | None, causal: bool, rows: int = 128, blocks: int = 4
) -> float | None:
    """|mixed - exact| / |exact| (Frobenius) over blocks of queries spread over the text, each at all its keys; None
    where there is nothing to compare with."""
    if mixed is None or inputs is None:
        return None
    length = mixed.shape[2]
    wrong = whole = torch.zeros((), dtype=torch.float64, device=mixed.device)
    for start in range(0, length, max(rows, (length - rows) // max(blocks - 1, 1))):
        end = min(start + rows, length)
        exact = plain(block(inputs, start, end, causal))
        wrong = wrong + (mixed[:, :, start:end] - exact).double().square().sum()
        whole = whole + exact.double().square().sum()
    return float((wrong / whole).sqrt())


def block(inputs: AttentionInputs, start: int, end: int, causal: bool) -> AttentionInputs:
    """The part of a look that belongs to some of its queries. Terms take the last query to stand at the last key: later
    keys are cut off where they are hidden, and put before the first where they are not, as nobody asks for places."""
    k, v = (x[:, :, :end] if causal else x.roll(-end, dims=2) for x in (inputs.k, inputs.v))
    return replace(
        inputs, q=inputs.q[:, :, start:end], k=k, v=v, layout=AttentionLayout(end - start, k.shape[2]), shared={}
    )


def timed(job: MixerJob) -> Subject:
    """What measures a layer at any length; what torch makes once for all passes is there. Ours and the packages' keep
    the memory that a pass frees until its end, as our training does: fetched anew, tensors of more than 32 MB would
    cost more than twice what those of half the length do."""
    tune_allocator()
    subject = Subject(job)
    subject(backward=True)
    return subject
