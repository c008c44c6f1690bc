"""Imported encoders without a head: embeddings of texts or images, no training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from headwise.blocks.losses import Loss
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.models.config import ModelConfig
from headwise.models.image_fields import ImageFields
from headwise.models.text_classifier import TextEncoder
from headwise.tasks.base import Evaluation, TaskConfig, TextTask
from headwise.tasks.classify_images import set_image_size
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState, Metric
from headwise.vision.pixels import Pixels


def refuse_training() -> NoReturn:
    raise UserError(
        "task.kind: an encoder alone has nothing to learn and nothing to be scored by; `headwise embed` uses it for "
        "texts, and init_from = its folder with a task such as 'classify' or 'classify-images' trains it further"
    )


class Encode(TextTask[TaskConfig, TextEncoder]):
    """Embeddings of texts by an imported encoder."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        refuse_training()

    @property
    def checkpoint_metric(self) -> Metric:
        refuse_training()

    def loss(self, model: TextEncoder, batch: Any, state: LossState) -> Loss:
        refuse_training()

    def validate(self, model: TextEncoder, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        refuse_training()

    def evaluate(
        self, model: TextEncoder, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        refuse_training()


class EncodeImages(Encode):
    """Embeddings of images by an imported encoder, pooled as the model declares."""

    def load_test_pairs(self, data: DataConfig) -> NoReturn:
        refuse_training()

    def set_sizes(self, model: ModelConfig) -> ModelConfig:
        assert isinstance(self.tokenisers.source, Pixels)
        return set_image_size(model, self.tokenisers.source)

    def build(self, model: ModelConfig) -> TextEncoder:
        config = self.set_sizes(model)
        assert isinstance(config, ImageFields)
        return TextEncoder(config.encoder(), config.build_pool())


class EncodeConfig(TaskConfig):
    """Embeddings of texts by an imported encoder; it cannot be trained."""

    task_class = Encode
    command = "embed"
    kind: Literal["encode"] = "encode"


class EncodeImagesConfig(TaskConfig):
    """Embeddings of images by an imported encoder; it cannot be trained."""

    task_class = EncodeImages
    command = "inspect"
    model_of = "classify-images"
    reads = "images"
    kind: Literal["encode-images"] = "encode-images"
