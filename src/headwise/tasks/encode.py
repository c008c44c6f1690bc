"""Reading alone: an encoder from elsewhere that gives vectors of texts, and of which nothing is asked but these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from torch import nn

from headwise.blocks.heads import Loss, Pooler
from headwise.blocks.pool import Pool
from headwise.data.config import DataConfig
from headwise.data.examples import Examples
from headwise.data.prepare import Prepared
from headwise.data.read import Pair
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.models.text_classifier import TextEncoder
from headwise.tasks.base import Evaluation, Task, TaskConfig
from headwise.text.config import TokeniserConfig
from headwise.text.tokenisers import Tokenisers
from headwise.train.state import LossState, Metric


def nothing_to_learn() -> NoReturn:
    raise UserError(
        "task.kind: an encoder alone has nothing to learn and nothing to be scored by; `headwise embed` uses it for "
        "texts, and init_from = its folder with a task such as 'classify' or 'classify-images' trains it further"
    )


class Encode(Task[TaskConfig]):
    """An encoder of texts, of which nothing is asked but their vectors."""

    @classmethod
    def prepare(cls, data: DataConfig, tokeniser: TokeniserConfig | Tokenisers) -> Prepared:
        nothing_to_learn()

    @property
    def checkpoint_metric(self) -> Metric:
        nothing_to_learn()

    def loss(self, model: nn.Module, batch: Any, state: LossState) -> Loss:
        nothing_to_learn()

    def validate(self, model: nn.Module, examples: Examples, pairs: Sequence[Pair]) -> dict[str, float]:
        nothing_to_learn()

    def evaluate(
        self, model: Any, pairs: Sequence[Pair], config: DecodeConfig = GREEDY, language: str = "en"
    ) -> Evaluation:
        nothing_to_learn()


class EncodeImages(Encode):
    """The same of an encoder that reads images: a vector for each, by the model's `pool`."""

    def load_test_pairs(self, data: DataConfig) -> Any:
        nothing_to_learn()

    def build(self, model: Any) -> TextEncoder:
        pixels: Any = self.tokenisers.source
        own = model.with_image_size(pixels.height, pixels.width, pixels.channels)
        pooler = own.pooling == "pooler"
        pool = nn.Sequential(Pool("first"), Pooler(own.outer)) if pooler else Pool(own.pooling)
        return TextEncoder(own.encoder(), pool)


class EncodeConfig(TaskConfig):
    """Read texts, by an encoder that comes from elsewhere; nothing is learnt."""

    task_class = Encode
    command = "embed"
    kind: Literal["encode"] = "encode"


class EncodeImagesConfig(TaskConfig):
    """Read images, by an encoder that comes from elsewhere; nothing is learnt."""

    task_class = EncodeImages
    command = "inspect"
    needs = "classify-images"
    reads = "images"
    kind: Literal["encode-images"] = "encode-images"
