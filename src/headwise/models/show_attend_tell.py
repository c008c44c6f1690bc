"""Recurrent image captioners: a convolutional network reads the image, an LSTM writes.

    show-attend-tell  attention to the features of the last stage before each word (Xu et al. 2015, "Show, Attend and
                      Tell"): soft, or hard with `score_mods = ["hard"]`, trained by REINFORCE with a baseline
    show-and-tell     the mean of the features is the LSTM's first input (Vinyals et al. 2015, "Show and Tell")

DISCREPANCY: the papers take features of networks pretrained on ImageNet and keep them fixed at first; here the network
is a small residual one, trained with the decoder, and `init_from` or `tuning.freeze` do the rest. Xu et al. share one
f_init of two layers per state; here it is one layer with tanh. The baseline of hard attention is that of the batch's
other captions instead of a moving average, and there is no entropy term (blocks/attention/hard.py).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.blocks.attention.scores import AdditiveConfig
from headwise.blocks.heads import VocabularyHead
from headwise.blocks.mixers.caption_decoder import (
    AnnotationEncoder,
    MeanImage,
    ShowAndTellDecoder,
    ShowAttendTellDecoder,
    make_initial_states,
)
from headwise.blocks.mixers.recurrent import Lstm
from headwise.blocks.part import BuildContext
from headwise.blocks.positions.base import NoPositions
from headwise.blocks.residual import NoResidual, ResidualAdd
from headwise.blocks.stack import Decoder, Embedding, Stack
from headwise.blocks.tables import AnyScore, AnyScoreMod
from headwise.models.cnn import CnnConfig
from headwise.models.config import ModelConfig
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.entry import Check, Entry
from headwise.models.image_fields import ImageFields
from headwise.models.init_weights import init_residual
from headwise.models.recurrent import init_embeddings


class CaptionLstmFields(ImageFields):
    """Settings of both: the convolutional network, and the LSTM."""

    backbone: CnnConfig = CnnConfig(stride=2)
    width: int = Field(512, ge=1)  # of the LSTM
    embedding_width: int = Field(0, ge=0)  # of the words; 0: the width
    dropout: float = Field(0.5, ge=0, lt=1)

    @property
    def word_width(self) -> int:
        return self.embedding_width or self.width

    @property
    def output_width(self) -> int:
        return self.backbone.output_width

    def connect(self, outputs: int, part: nn.Module, bridge: nn.Module, start: str, head_width: int) -> EncoderDecoder:
        """The captioner whose decoder is this part; `start` is the memory that the bridge computes."""
        images = self.backbone.with_image_size(*self.image, self.channels).encoder()
        embedding = Embedding(nn.Embedding(outputs, self.word_width), NoPositions())
        stack = Stack([NoResidual([part], add=lambda: ResidualAdd(0.0))])
        model = EncoderDecoder(
            AnnotationEncoder(images.stem, images.stack, bridge, start),
            Decoder(embedding, stack, VocabularyHead(head_width, outputs, bias=True)),
        )
        init_residual(model.encoder)
        init_embeddings(model, self.word_width)
        return model


class ShowAttendTellConfig(CaptionLstmFields, ModelConfig):
    """`doubly_stochastic` is the weight of the regulariser by which all parts of an image get about the same attention
    over a caption (lambda of eq. 14); 0: none."""

    tasks = ("caption",)
    kind: Literal["show-attend-tell"] = "show-attend-tell"
    score: AnyScore = AdditiveConfig()
    score_mods: tuple[AnyScoreMod, ...] = ()  # "hard": hard attention
    doubly_stochastic: float = Field(1.0, ge=0)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> EncoderDecoder:
        self.resolve_task(task)
        annotations, words = self.output_width, self.word_width
        recurrence = Lstm(words + annotations, self.width)
        build_ctx = BuildContext(self.width, heads=1, hidden=self.width, causal=True, memory_width=annotations)
        part = ShowAttendTellDecoder(
            recurrence,
            self.score.build(self.width, annotations, 1),
            [mod.build(build_ctx, self.width) for mod in self.score_mods],
            (words, annotations),
            self.dropout,
            self.doubly_stochastic,
        )
        return self.connect(outputs, part, make_initial_states(annotations, recurrence), "final", words)


class ShowAndTellConfig(CaptionLstmFields, ModelConfig):
    """No attention: all that the LSTM knows of the image is in its first state."""

    tasks = ("caption",)
    kind: Literal["show-and-tell"] = "show-and-tell"

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> EncoderDecoder:
        self.resolve_task(task)
        part = ShowAndTellDecoder(Lstm(self.word_width, self.width), self.dropout)
        return self.connect(outputs, part, MeanImage(self.output_width, self.word_width), "image", self.width)


TINY = {"image": 16, "channels": 1, "width": 32, "embedding_width": 24, "dropout": 0.1, "backbone": {"width": 8}}
SIZES: dict[str, dict[str, Any]] = {
    "base": {"backbone": {"width": 128, "stride": 4, "depths": (2, 2, 2)}},
    "small": {"image": 64, "width": 128, "dropout": 0.1, "backbone": {"width": 32}},
    "tiny": TINY,
}

ATTEND_ENTRY = Entry(
    name="show-attend-tell",
    paper="Xu et al., Show, Attend and Tell: Neural Image Caption Generation with Visual Attention",
    year=2015,
    family="vision",
    config=ShowAttendTellConfig,
    sizes=SIZES,
    vocab=0,
    outputs=10_000,
    checks=(
        Check("its equations, unrolled in float64", "tests/parity/test_captioners_unrolled.py::test_show_attend_tell"),
    ),
)

TELL_ENTRY = Entry(
    name="show-and-tell",
    paper="Vinyals et al., Show and Tell: A Neural Image Caption Generator",
    year=2015,
    family="vision",
    config=ShowAndTellConfig,
    sizes=SIZES,
    vocab=0,
    outputs=10_000,
    checks=(
        Check("its equations, unrolled in float64", "tests/parity/test_captioners_unrolled.py::test_show_and_tell"),
    ),
)
