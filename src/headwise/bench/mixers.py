"""Benchmark of one token-mixing layer, ours or a package's, in its own process: time, memory and error by length.

A layer includes the input and output projections, so that all are compared with the same products around them.
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
    BASE_MASKS,
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


def build_ours(job: MixerJob, length: int) -> nn.Module:
    """A part with the initial weights of a Transformer: queries, keys and values have unit variance."""
    build_ctx = BuildContext(job.width, job.heads, 4 * job.width, head_width=job.head_width, causal=job.causal)
    part: nn.Module = with_max_length(job.mixer, length).build(build_ctx)
    init_xavier(part, job.width)
    return part


def with_max_length(config: Any, length: int) -> Any:
    """A config whose `max_length` is at least `length`."""
    if hasattr(config, "score"):
        config = config.replace(score=with_max_length(config.score, length))
    return config.replace(max_length=length) if getattr(config, "max_length", length) < length else config


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


# Each has the settings of our mixer of the same name.
PACKAGES: dict[str, Callable[[MixerJob, int], nn.Module]] = {
    "linformer (PyPI)": linformer,
    "performer-pytorch": performer_pytorch,
    "reformer-pytorch": reformer_pytorch,
}


class LayerBenchmark:
    """Measures the layer of a job, which is built for one length at a time."""

    def __init__(self, job: MixerJob):
        self.job, self.length = job, 0
        self.make = PACKAGES.get(job.engine, build_ours)

    def __call__(self, length: int = 256, backward: bool = False, first: bool = False) -> dict[str, Any]:
        """Wall time and CPU time of one forward pass, or forward and backward, in seconds; on the `first` call at a
        length also the peak memory in bytes and, for forward, the error."""
        if length != self.length:
            self._prepare(length)
        memory_before = memory.reset_peak() if first else None
        start, cpu_start = perf_counter(), process_time()
        self._forward_backward() if backward else self._forward()
        result: dict[str, Any] = {"seconds": perf_counter() - start, "cpu": process_time() - cpu_start}
        if first:
            result |= {"bytes": memory.peak_growth(memory_before), "error": None if backward else self._error()}
        memory.reset_peak()  # return freed memory for the next process
        return result

    def _prepare(self, length: int) -> None:
        torch.manual_seed(0)
        self.length, self.layer = length, self.make(self.job, length)
        rows = max(1, self.job.tokens // length)
        self.x = (self.job.spread * torch.randn(rows, length, self.job.width)).requires_grad_()

    @torch.no_grad()
    def _forward(self) -> None:
        self.layer.eval()(self.x)

    def _forward_backward(self) -> None:
        self.layer.zero_grad()
        self.x.grad = None
        self.layer.train()(self.x).backward(self.x.detach())

    @torch.no_grad()
    def _error(self) -> float | None:
        if self.make is not build_ours:
            return None
        return relative_error(*observe_layer(self.layer.eval(), self.x[:1]), self.job.causal)


class ExactInputsRecorder(Recorder):
    """Records the inputs of exact softmax attention over all keys."""

    exact: AttentionInputs | None = None

    def observe(self, path: LayerPath, inputs: AttentionInputs | ApproximateMap) -> None:
        if isinstance(inputs, ApproximateMap):
            self.exact = inputs.exact() if inputs.exact else None
        elif isinstance(
            inputs.score, Dot | Scaled
        ):  # windowed attention counts as an approximation of attention to all keys
            always = tuple(mod for mod in inputs.score_mods if isinstance(mod, Causal) or mod in BASE_MASKS)
            self.exact = replace(inputs, score_mods=always)


def observe_layer(layer: nn.Module, x: Tensor) -> tuple[Tensor | None, AttentionInputs | None]:
    """The output of a layer for `x` before its output projection, (B, H, T, D), and the inputs of exact softmax
    attention with the same queries, keys and values."""
    outputs: list[Tensor] = []
    recorder = ExactInputsRecorder()
    out = getattr(layer, "out", None)
    hook = out.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0])) if out is not None else None
    layer(Stream.of(x), Context(record=recorder))
    if hook is not None:
        hook.remove()
    if recorder.exact is None or not outputs:
        return None, None
    heads = recorder.exact.q.shape[1]
    return outputs[-1].unflatten(-1, (heads, -1)).transpose(1, 2), recorder.exact  # (B, T, HD) -> (B, H, T, D)


def relative_error(
    mixed: Tensor | None, inputs: AttentionInputs | None, causal: bool, rows: int = 128, blocks: int = 4
) -> float | None:
    """|mixed - exact| / |exact| (Frobenius) over blocks of queries spread over the text, each with all its keys; None
    if there is nothing to compare with."""
    if mixed is None or inputs is None:
        return None
    length = mixed.shape[2]
    error = norm = torch.zeros((), dtype=torch.float64, device=mixed.device)
    for start in range(0, length, max(rows, (length - rows) // max(blocks - 1, 1))):
        end = min(start + rows, length)
        exact = plain(slice_queries(inputs, start, end, causal))
        error = error + (mixed[:, :, start:end] - exact).double().square().sum()
        norm = norm + exact.double().square().sum()
    return float((error / norm).sqrt())


def slice_queries(inputs: AttentionInputs, start: int, end: int, causal: bool) -> AttentionInputs:
    """The attention inputs of some queries. Score mods align the last query with the last key: later keys are dropped
    if they are masked, and otherwise moved before the first, since the order of keys does not matter."""
    k, v = (x[:, :, :end] if causal else x.roll(-end, dims=2) for x in (inputs.k, inputs.v))
    return replace(
        inputs, q=inputs.q[:, :, start:end], k=k, v=v, layout=AttentionLayout(end - start, k.shape[2]), shared={}
    )


def build_benchmark(job: MixerJob) -> LayerBenchmark:
    """The benchmark of a layer, warmed up. All engines keep freed memory in the allocator, as our training does:
    otherwise tensors of more than 32 MB would be mapped anew and cost more than twice as much as half the length."""
    tune_allocator()
    subject = LayerBenchmark(job)
    subject(backward=True)
    return subject
