"""LSTM decoders of image captioners: with attention, Xu et al. (2015, "Show, Attend and Tell"); with the image as the
first input, Vinyals et al. (2015, "Show and Tell").

Letters: B images, R rows (beams of an image), T length of the caption, L annotations of an image, D their width, E
width of the word embedding, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headwise.blocks.attention.score_mods import AttentionInputs, Score, ScoreMod
from headwise.blocks.bridge import InitialStates
from headwise.blocks.images import ImageEncoder, mean_patches
from headwise.blocks.mixers.recurrent import Recurrence
from headwise.blocks.mixers.rnn_attention import AttentionDecoder, SourceAttention, StackedCells, StackedStep
from headwise.blocks.record import Collector
from headwise.blocks.residual import make_dropout
from headwise.blocks.stream import Context, Stream

WEIGHTS = "attention_weights"  # side output


class CollectWeights(ScoreMod):
    """Adds the attention weights to the side outputs."""

    def edit_weights(self, weights: Tensor, inputs: AttentionInputs) -> Tensor:
        inputs.side.add(WEIGHTS, inputs.path, weights)
        return weights


class AnnotationEncoder(ImageEncoder):
    """An image encoder whose bridge computes, from the mean of the annotations, what a caption decoder starts from."""

    def __init__(self, stem: nn.Module, stack: nn.Module, bridge: nn.Module, start: str):
        super().__init__(stem, stack)
        self.bridge, self.start = bridge, start

    def read(self, pixels: Tensor) -> dict[str, Stream]:
        memory = super().read(pixels)
        return memory | {self.start: Stream.of(self.bridge(mean_patches(memory["encoder"])))}


class MeanImage(nn.Linear):
    """W times the mean of the annotations, as one input of a decoder: (B, D) -> (B, 1, E)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).unsqueeze(1)


class ShowAttendTellDecoder(AttentionDecoder):
    """The soft or hard attention decoder of a captioner (Xu et al. 2015, sections 3.1 and 4):

        a_t = softmax(v tanh(W h_{t-1} + U annotation_i)),  z_t = sigmoid(f_b(h_{t-1})) sum_i a_ti annotation_i
        h_t, c_t = LSTM([E y_{t-1}; z_t], h_{t-1}, c_{t-1})
        p(y_t) ~ exp(L_o (E y_{t-1} + L_h h_t + L_z z_t))

    h_0 and c_0 are tanh(W mean(annotations)) each. In training, the doubly stochastic regulariser
    weight * sum_i (1 - sum_t a_ti)^2 of each image is an auxiliary loss (eq. 14).
    """

    def __init__(
        self,
        recurrence: Recurrence,
        score: Score,
        score_mods: Sequence[ScoreMod],
        widths: tuple[int, int],
        dropout: float = 0.0,
        doubly_stochastic: float = 0.0,
    ):
        super().__init__(score.length_free)
        words, annotations = widths
        self.glimpse = SourceAttention(score, [CollectWeights(), *score_mods])
        self.tower = StackedCells([recurrence])
        self.gate = nn.Linear(recurrence.hidden, 1)
        self.from_state = nn.Linear(recurrence.hidden, words, bias=False)
        self.from_image = nn.Linear(annotations, words, bias=False)
        self.drop, self.doubly_stochastic = make_dropout(dropout), doubly_stochastic

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        side = Collector(WEIGHTS, onward=ctx.side)
        h, z = self.run_steps(stream, replace(ctx, side=side))
        if self.training and self.doubly_stochastic:
            weights = torch.cat(side.list_values(WEIGHTS), dim=2).squeeze(1)  # T x (B, 1, 1, L) -> (B, T, L)
            ctx.side.add("aux", ctx.path, self.doubly_stochastic * compute_coverage_error(weights, stream.decoder_keep))
        return self.drop(stream.x + self.from_state(h) + self.from_image(z))

    def run_steps(self, stream: Stream, ctx: Context) -> tuple[Tensor, Tensor]:
        """h_1 ... h_T (R, T, H) and z_1 ... z_T (R, T, D)."""
        keys, steps = self.glimpse.project_keys(ctx), StackedStep(self.tower, stream.x, ctx)
        states, contexts = [steps.top], []
        for t in range(stream.x.shape[1]):
            inputs = self.glimpse.build_inputs(steps.top.unsqueeze(1), keys, stream.pos[..., t : t + 1], ctx)
            context = self.glimpse.compute_context(inputs, ctx).reshape(stream.x.shape[0], -1)  # (R, D)
            contexts.append(self.gate(steps.top).sigmoid() * context)
            states.append(steps.advance(t, contexts[-1]))
        steps.store(ctx)
        h = torch.stack(states, dim=1)  # h_0 ... h_T: (R, T + 1, H)
        ctx.record.observe(ctx.path, self.glimpse.build_inputs(h[:, :-1], keys, stream.pos, ctx))
        return h[:, 1:], torch.stack(contexts, dim=1)


def compute_coverage_error(weights: Tensor, keep: Tensor | None) -> Tensor:
    """The doubly stochastic regulariser of attention weights (B, T, L): sum_i (1 - sum_t a_ti)^2 of all images over the
    number of their words, since losses are means over words.

    >>> compute_coverage_error(torch.tensor([[[0.5, 0.5], [1.0, 0.0]]]), None)
    tensor(0.2500)
    """
    if keep is not None:
        weights = weights * keep.unsqueeze(-1)
    words = weights.shape[0] * weights.shape[1] if keep is None else keep.sum().clamp(min=1)
    return (1 - weights.sum(1)).square().sum() / words


class ShowAndTellDecoder(AttentionDecoder):
    """The decoder of Show and Tell: an LSTM whose first input is the image, and whose further inputs are the words
    (Vinyals et al. 2015, eqs. 10-12). No probability belongs to the image's step."""

    def __init__(self, recurrence: Recurrence, dropout: float = 0.0):
        super().__init__()
        self.recurrence, self.drop = recurrence, make_dropout(dropout)
        self.output_width = recurrence.hidden

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        rows = stream.x.shape[0]

        def read_image() -> Tensor:
            image = ctx.memory["image"].x  # (B, 1, E)
            state = self.recurrence(image, image.new_zeros(len(image), self.recurrence.state_width))[1]
            return state.repeat_interleave(rows // state.shape[0], 0)  # beams of one image are contiguous rows

        h, state = self.recurrence(stream.x, ctx.cache.get_state(ctx.path, read_image))
        ctx.cache.put_state(ctx.path, state)
        return self.drop(h)


def make_initial_states(annotations: int, recurrence: Recurrence) -> InitialStates:
    """h_0 and c_0 of one LSTM layer from the mean annotation."""
    return InitialStates(annotations, recurrence.state_width, 1)
