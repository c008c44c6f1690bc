"""What is learnt (`[task]`): each task's own settings. No torch here; what a task does is in `headwise.tasks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from headwise.config.augment import AUGMENTATIONS, AdversarialConfig
from headwise.config.base import Config, Table, slot
from headwise.config.model import ModelConfig
from headwise.config.teaching import OWN_INPUTS, Never

TASKS = Table("task", default="transduce", place="task")


class TaskConfig(Config):
    """A `kind`, and settings of its own."""

    kind: str
    needs: ClassVar[str] = ""  # the kind of model that it is learnt by; empty: one of its own kind
    reads: ClassVar[str] = "texts"  # the kind of data that it is learnt from
    unpaired: ClassVar[bool] = False  # learnt from texts alone, which have no sources

    @property
    def shape(self) -> str:
        """What a model must be able to do, of `ModelConfig.tasks`."""
        return self.needs or self.kind

    def for_model(self, model: ModelConfig) -> Any:
        """The same with what it leaves to the model filled in."""
        return self


if TYPE_CHECKING:
    AnyOwnInputs: TypeAlias = Any
    AnyAugmentation: TypeAlias = Any
else:
    AnyOwnInputs, AnyAugmentation = slot(OWN_INPUTS), slot(AUGMENTATIONS)


@TASKS.add
class TransduceConfig(TaskConfig):
    """Learn to turn one sequence into another. `auto` scores sub-word outputs with BLEU, others with the sequence error
    rate (`ser`: the share of outputs that are not exactly right) and PER or CER. `wer` is the word error rate."""

    kind: Literal["transduce"] = "transduce"
    score: Literal["auto", "bleu", "ser", "wer", "rouge"] = "auto"
    sample: int = Field(500, ge=0)  # how many validation pairs are decoded at each validation; 0: only the loss
    scheduled_sampling: AnyOwnInputs = (
        Never()
    )  # scheduled sampling: how often the decoder reads its own tokens in training
    prefix_lm: bool = False  # by a language model, which reads source and target as one text

    @property
    def shape(self) -> str:
        return "language-model" if self.prefix_lm else self.kind


@TASKS.add
class LanguageModelConfig(TaskConfig):
    """Learn to go on with a text."""

    unpaired = True
    kind: Literal["language-model"] = "language-model"
    context: int = Field(256, ge=1)  # tokens that are read at once; longer texts are cut
    packing: bool = False  # short texts share rows
    # stream: each row of a batch goes on with that of the last one; auto: where the model recalls what it read
    order: Literal["auto", "shuffled", "stream"] = "auto"

    @model_validator(mode="after")
    def _either(self) -> LanguageModelConfig:
        if self.packing and self.order == "stream":
            raise ValueError("a stream has no padding that packing could save; leave out `packing`")
        return self

    def for_model(self, model: ModelConfig) -> LanguageModelConfig:
        if self.order != "auto":
            return self
        recalls = getattr(model, "memory_length", 0) and not self.packing
        return self.changed(order="stream" if recalls else "shuffled")


@TASKS.add
class MaskedConfig(TaskConfig):
    """Learn hidden words from those around them and, in pairs, whether the second text follows the first."""

    unpaired = True
    kind: Literal["masked"] = "masked"
    context: int = Field(128, ge=4)  # tokens that are read at once, special tokens included; longer texts are cut
    mask_rate: float = Field(0.15, gt=0, lt=1)  # of the words, to be guessed
    next_sentence: bool | Literal["auto"] = "auto"  # auto: where the model can tell the texts of a pair apart

    def for_model(self, model: ModelConfig) -> MaskedConfig:
        if self.next_sentence != "auto":
            return self
        able = getattr(model, "token_types", 0) > 1 and getattr(model, "next_sentence_head", True)
        return self.changed(next_sentence=able)


@TASKS.add
class DenoiseConfig(TaskConfig):
    """Learn to write what is missing in a text, by an encoder and a decoder."""

    needs = "transduce"
    unpaired = True
    kind: Literal["denoise"] = "denoise"
    context: int = Field(512, ge=4)  # tokens that are read at once, the end mark included; longer texts are cut
    noise_density: float = Field(0.15, gt=0, lt=1)  # of the tokens, missing
    mean_span: float = Field(3.0, ge=1)  # tokens that are missing in a row, in the mean


@TASKS.add
class TagConfig(TaskConfig):
    """Learn a tag for each word."""

    kind: Literal["tag"] = "tag"


@TASKS.add
class ClassifyConfig(TaskConfig):
    """Learn a label for each text, or for each two. `scores` says what is told of it; the first one chooses the best
    checkpoint, `f1-of` is F1 of one label: f1-of:1."""

    kind: Literal["classify"] = "classify"
    scores: tuple[str, ...] = ("accuracy", "f1")
    # From logits to probabilities. sigmoid: each label by itself, so that a text has any number of them (multi-label);
    # only models from elsewhere have it.
    function: Literal["softmax", "sigmoid"] = "softmax"


@TASKS.add
class ClassifyImagesConfig(TaskConfig):
    """Learn a label for each image. `augment` changes images in training, in this order. A `teacher` is a run that was
    trained before; what it says counts beside the labels (Touvron et al. 2021)."""

    reads = "images"
    kind: Literal["classify-images"] = "classify-images"
    scores: tuple[str, ...] = ("accuracy",)
    augment: tuple[AnyAugmentation, ...] = ()
    adversarial: AdversarialConfig = AdversarialConfig()
    repeats: int = Field(1, ge=1)  # how often an epoch has an image; as many images as before (Berman et al. 2019)
    teacher: str = ""  # RUN, RUN@step-N or a Hugging Face folder
    distillation: Literal["hard", "soft"] = "hard"  # learn the teacher's labels, or its probabilities
    temperature: float = Field(3.0, gt=0)  # of the probabilities
    # of the teacher in the loss; 0: a half if hard, a tenth if soft
    distillation_weight: float = Field(0.0, ge=0, lt=1)


def _in_place(augment: tuple[Any, ...]) -> tuple[Any, ...]:
    for each in augment:
        if each.kind not in IN_PLACE:
            raise ValueError(f"'{each.kind}' would not leave everything in its place; use {' or '.join(IN_PLACE)}")
    return augment


IN_PLACE = ("colour", "grey")
InPlace = Annotated[tuple[AnyAugmentation, ...], AfterValidator(_in_place)]


@TASKS.add
class DetectConfig(TaskConfig):
    """Learn what is in each image, and where: a box and a label for each object."""

    reads = "images"
    kind: Literal["detect"] = "detect"
    flip: float = Field(0.0, ge=0, le=1)  # how probable it is that an image and its boxes are mirrored in training
    augment: InPlace = ()
    sides: tuple[float, float] = (32.0, 96.0)  # roots of areas, in pixels, from which boxes are medium and large


@TASKS.add
class CaptionConfig(TransduceConfig):
    """Learn a sentence for each image. It is scored as other texts are, and by how many are right to the word."""

    reads = "images"
    kind: Literal["caption"] = "caption"  # type: ignore[assignment]
    score: Literal["bleu", "ser", "wer", "rouge"] = "bleu"
    prefix_lm: Literal[False] = False  # an image is no part of a text
    augment: InPlace = ()


@TASKS.add
class RegressConfig(TaskConfig):
    """Learn a number for each text, by a classifier with one output."""

    needs = "classify"
    kind: Literal["regress"] = "regress"


@TASKS.add
class AnswerConfig(TaskConfig):
    """Learn where in a text the answer to a question stands."""

    kind: Literal["answer"] = "answer"


@TASKS.add
class EncodeConfig(TaskConfig):
    """Read texts, by an encoder that comes from elsewhere; nothing is learnt."""

    kind: Literal["encode"] = "encode"


@TASKS.add
class EncodeImagesConfig(TaskConfig):
    """Read images, by an encoder that comes from elsewhere; nothing is learnt."""

    needs = "classify-images"
    reads = "images"
    kind: Literal["encode-images"] = "encode-images"


@TASKS.add
class EmbedConfig(TaskConfig):
    """Learn a vector for each word."""

    unpaired = True
    kind: Literal["embed"] = "embed"
