"""A trained model, ready to use: `headwise.load("runs/demo").translate(["transformer"])`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device
from headwise.config.base import validate
from headwise.data.read import Pair
from headwise.data.word_pieces import words
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.text import decode_continuation
from headwise.decode.unk_replacement import replace_unknown
from headwise.errors import UserError
from headwise.inference.few_shot import TEMPLATE, few_shot
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, check_finite, save, unique_tensors
from headwise.tasks.base import AnyModelTask, Evaluation, ImageDescription
from headwise.text.tokenisers import Tokenisers
from headwise.vision.pixels import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.experiment.config import Experiment
    from headwise.inference.completion import Completion
    from headwise.inference.maps import Maps
    from headwise.tasks.mask_filling import FilledMask
    from headwise.vision.boxes import Found


@dataclass(frozen=True)
class Translation:
    """One output of a source, with its scores."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class TrainedModel:
    """A generator with the tokenisers and the experiment that it came from."""

    model: Any  # an nn.Module, an ensemble of them, or a deployment engine
    tokenisers: Tokenisers
    experiment: Experiment

    def on(self, device: str | torch.device) -> TrainedModel:
        """The same on another device."""
        return replace(self, model=self.model.to(device))

    def save(self, path: str | Path) -> Run:
        """A new run of it, with one checkpoint: to be used, exported and trained further like any other."""
        checkpoint = Checkpoint({"step": 0}, unique_tensors(self.model))
        check_finite(checkpoint)  # before there is a folder
        run = Run.create(path, self.experiment.model_dump(mode="json"))
        self.tokenisers.save(run.tokenizer)
        save(run, checkpoint)
        return run

    @property
    def task(self) -> AnyModelTask:
        return self.experiment.create_task(self.tokenisers)

    def check_task(self, *kinds: str) -> Any:
        """The task, where it is of one of these kinds; another one is refused in a sentence."""
        if self.task.kind not in kinds:
            raise UserError(f"this run was trained to {self.task.kind}, not to {' or '.join(kinds)}; name another run")
        return self.task

    def check_command(self, command: str) -> Any:
        """The task, where `headwise COMMAND` uses its runs; another one is refused in a sentence."""
        if self.experiment.task.command != command:
            own = self.experiment.task.command
            instead = f"use `headwise {own}`, or name another run" if own else "name another run"
            raise UserError(
                f"this run was trained to {self.task.kind}, which `headwise {command}` does not do; {instead}"
            )
        return self.task

    def translate(self, texts: Iterable[str], **settings: Any) -> list[str]:
        """The best output of each text. Settings are those of `[decode]`: beams, temperature, ..."""
        return [found[0].text for found in self.candidates(texts, **settings)]

    def candidates(self, texts: Iterable[str], **settings: Any) -> list[list[Translation]]:
        """The `nbest` outputs of each text, best first."""
        self.check_task("transduce")
        texts = [self.experiment.data.prefixed(text) for text in texts]
        config, device = self.decoding(**settings), get_device(self.model)
        sides = self.tokenisers.source, self.tokenisers.target
        found = decode(self.model, sides[0].encode_batch(texts), config, device)
        outputs = replace_unknown(self.model, texts, found, sides, config, device)
        return [
            [Translation(text, h.score, h.log_prob) for text, h in zip(*each, strict=True)]
            for each in zip(outputs, found, strict=True)
        ]

    def generate(self, prompts: Iterable[str] = ("",), **settings: Any) -> list[list[Translation]]:
        """Each prompt and how a language model goes on with it, `nbest` ways. Settings are those of `[decode]`."""
        prompts, tokeniser = list(prompts), self.tokenisers.target
        known = [tokeniser.decode(ids) for ids in tokeniser.encode_batch(prompts)]
        return [
            [replace(each, text=prompt + each.text) for each in own]
            for prompt, own in zip(known, self.continuations(prompts, **settings), strict=True)
        ]

    def continuations(self, prompts: Iterable[str], **settings: Any) -> list[list[Translation]]:
        """The same without the prompts: what follows each of them."""
        self.check_task("language-model")
        tokeniser, config = self.tokenisers.target, self.decoding(**settings)
        ids = tokeniser.encode_batch(list(prompts))
        found = decode(self.model, ids, config, get_device(self.model), tokeniser)
        return [
            [Translation(decode_continuation(tokeniser, prompt, h.ids, config.stop), h.score, h.log_prob) for h in own]
            for prompt, own in zip(ids, found, strict=True)
        ]

    def few_shot(
        self,
        examples: Sequence[Pair],
        inputs: Iterable[str],
        template: str = TEMPLATE,
        count: int | None = None,
        **settings: Any,
    ) -> list[str]:
        """What a language model answers to each input after `count` examples, up to the end of the line."""
        prompts = [few_shot(examples, text, template, count) for text in inputs]
        return [own[0].text.strip() for own in self.continuations(prompts, **{"stop": ["\n"], **settings})]

    def complete(self, text: str, count: int = 5) -> list[Completion]:
        """The most probable ways in which a language model ends the last word of a text."""
        from headwise.inference.completion import Completer

        self.check_task("language-model")
        return Completer(self.model, self.tokenisers.target, get_device(self.model))(text, count)

    def tag(self, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
        """Each word of each text with its tag."""
        found = self.check_task("tag").predict_tags(self.model, texts)
        own = [words(self.tokenisers.source, text) for text in texts]
        return [list(zip(*each, strict=True)) for each in zip(own, found, strict=True)]

    def classify(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """The probability of each label, for each text; they sum to 1 unless a text may have several labels."""
        return self.check_task("classify").predict_probabilities(self.model, texts)

    def regress(self, texts: Sequence[str]) -> list[float]:
        """The number that a regression gives each text."""
        return self.check_task("regress").predict_values(self.model, texts)

    def classify_images(self, images: Iterable[str | Path | Image]) -> list[dict[str, float]]:
        """The probability of each label, for each image: a file, or one that Pillow has opened."""
        task = self.check_task("classify-images")
        read = [task.pixels.read(image) for image in images]
        return task.predict_probabilities(self.model, torch.stack(read)) if read else []

    def detect(self, images: Iterable[str | Path | Image], above: float = 0.5) -> list[Found]:
        """What is in each image and where, in its own pixels: what has at least the score `above`, the surest first."""
        from headwise.vision.decode import shown

        return self.check_task("detect").detect_in_images(self.model, [shown(image) for image in images], above)

    def caption(self, images: Iterable[str | Path | Image], **settings: Any) -> list[str]:
        """A sentence about each image. Settings are those of `[decode]`."""
        task = self.check_task("caption")
        read = [task.pixels.read(image) for image in images]
        return task.caption_images(self.model, torch.stack(read), self.decoding(**settings)) if read else []

    def describe_image(self, image: str | Path | Image, **settings: Any) -> ImageDescription:
        """What the model says of an image, whatever its task: labels or a sentence."""
        pixels = self.tokenisers.source
        if not isinstance(pixels, Pixels):
            raise UserError("this run reads texts; name one that reads images")
        return self.task.describe_image(self.model, pixels.read(image)[None], self.decoding(**settings))

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[str]:
        """What each question asks for, in the words of the text beside it."""
        from headwise.text.paired import BETWEEN

        return self.check_task("answer").predict_answers(self.model, [BETWEEN.join(pair) for pair in questions])

    def fill_mask(self, texts: Sequence[str], count: int = 5) -> list[list[list[FilledMask]]]:
        """The most probable words for each [MASK] of each text, best first; of a denoising run, any number of words."""
        return self.check_command("fill-mask").fill_masks(self.model, texts, count)

    def embed(self, texts: Sequence[str], pool: str = "mean", normalised: bool = False) -> Tensor:
        """A vector for each text, (N, C): the mean of its tokens' last states, or another `pool` of them."""
        from headwise.inference.sentence_embeddings import embed

        return embed(self.model, self.tokenisers, texts, pool, normalised)

    def decoding(self, **settings: Any) -> DecodeConfig:
        """The run's own way of decoding, with some settings changed."""
        config = validate(DecodeConfig, {**dict(self.experiment.decode), **settings}, "decode")
        return config if config.context else config.replace(context=self.task.get_max_context(self.model))

    def evaluate(self, pairs: Sequence[Pair] = (), language: str = "en", **settings: Any) -> Evaluation:
        """Scores on these pairs, or on the experiment's test part (its validation part where there is none)."""
        given = [(self.experiment.data.prefixed(source), target) for source, target in pairs]
        return self.task.evaluate(self.model, given or self.held_out(), self.decoding(**settings), language)

    def held_out(self) -> Any:
        """The experiment's test part, or its validation part where there is none."""
        return self.task.load_test_pairs(self.experiment.data)

    def inspect(self, text: str, target: str = "", **settings: Any) -> Maps:
        """The attention of every layer and head while reading `text` and writing `target` (its own output if empty)."""
        from headwise.inference.attention_maps import collect_attention

        return collect_attention(self.model, self.tokenisers, text, target, self.decoding(**settings))
