"""Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): of a layer only the
inputs are stored, and its activations are computed again in the backward pass. The gradients are the same; a step takes
about a third longer.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headwise.blocks.stream import NO_SIDE, Context, Stream


def checkpoint_layer(layer: nn.Module, stream: Stream, ctx: Context) -> Stream:
    """The outputs of a layer whose activations are recomputed.

    The second pass must find the call as the first one found it: tensors that this layer shared with later ones are
    computed again, and side outputs are dropped, as the loss already has them.
    """
    shared_before, is_first = dict(ctx.shared), True

    def run(x: Tensor) -> Stream:
        nonlocal is_first
        used = ctx if is_first else replace(ctx, side=NO_SIDE, shared=dict(shared_before))
        is_first = False
        outputs: Stream = layer(stream.with_x(x), used)
        return outputs

    # on the meta device there are no random numbers whose state could be kept
    outputs: Stream = checkpoint(run, stream.x, use_reentrant=False, preserve_rng_state=not stream.x.is_meta)
    return outputs
