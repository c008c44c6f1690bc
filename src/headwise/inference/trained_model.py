"""A trained model, ready to use: `headwise.load("runs/demo").translate(["transformer"])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.blocks.evaluation import get_device
from headwise.config.base import validate
from headwise.config.plugins import collect_parts
from headwise.data.config import DataConfig
from headwise.data.locate import locate_data, warn_of_changes
from headwise.data.read import Pair
from headwise.data.word_pieces import split_words
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.text import decode_continuation
from headwise.decode.unk_replacement import replace_unknown
from headwise.errors import UserError
from headwise.inference.few_shot import TEMPLATE, build_few_shot_prompt
from headwise.runs import Run
from headwise.runs.checkpoint import Checkpoint, check_finite, save, unique_tensors
from headwise.runs.data_record import read_record, write_record
from headwise.tasks.base import AnyModelTask, Evaluation, ImageDescription
from headwise.tasks.tables import TASKS, task_config
from headwise.text.tokenisers import Tokenisers
from headwise.vision.pixels import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

    from headwise.experiment.config import Experiment
    from headwise.inference.completion import Completion
    from headwise.inference.maps import Maps
    from headwise.tasks.mask_filling import FilledMask
    from headwise.vision.boxes import Detections

ACTS = "acts in an environment and reads no text; use `headwise act watch`, or the studio's page Play"
WITHOUT_TEXT: Mapping[str, str] = {  # what a task reads instead of texts or images -> what its runs do
    "chains": "folds chains and reads no text; use `headwise inspect RUN`, or the studio's page Fold",
    "episodes": ACTS,
    "environment": ACTS,
    "graphs": "places operators on devices and reads no text; use `headwise place`, which draws a timeline",
}


@dataclass(frozen=True)
class Translation:
    """One output of a source, with its scores."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with its tokenisers and its experiment config."""

    model: Any  # an nn.Module, an ensemble of them, or a deployment engine
    tokenisers: Tokenisers
    experiment: Experiment
    run: Run | None = None  # that it was loaded from
    data_root: str | Path = ""  # the folder that has the run's data; empty: see headwise.data.locate
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)  # the repository that it was imported from

    def __repr__(self) -> str:
        where = f", run={str(self.run.path)!r}" if self.run else ""
        return f"TrainedModel(task={self.experiment.task.kind!r}, model={type(self.model).__name__}{where})"

    def _repr_html_(self) -> str | None:
        """In a notebook, the curves of its run and the tree of its modules."""
        shown = [part._repr_html_() for part in (self.run, self.model) if hasattr(part, "_repr_html_")]
        return "".join(shown) or None

    def to(self, device: str | torch.device) -> TrainedModel:
        """The trained model on another device."""
        return replace(self, model=self.model.to(device))

    def save(self, path: str | Path) -> Run:
        """Save as a new run with one checkpoint, which can be used, exported and trained further like any other."""
        checkpoint = Checkpoint({"step": 0}, unique_tensors(self.model))
        check_finite(checkpoint)  # before the folder is created
        info = {"origin": dict(self.origin)} if self.origin else {}
        run = Run.create(path, self.experiment.model_dump(mode="json"), collect_parts(self.experiment), info)
        self.tokenisers.save(run.tokenizer)
        save(run, checkpoint)
        if self.run and (record := read_record(self.run)).folder:
            write_record(run, Path(record.folder), record.files)
        run.seal()
        return run

    @cached_property
    def data(self) -> DataConfig:
        """The data config of the experiment, with the folder in which its files are now; warns of changed files."""
        if self.run is None:
            return self.experiment.data
        record = read_record(self.run)
        location = locate_data(self.experiment.data, self.run.path, record, self.data_root)
        warn_of_changes(location, record)
        return location.data

    @property
    def task(self) -> AnyModelTask:
        return self.experiment.create_task(self.tokenisers)

    def check_task(self, *kinds: str) -> Any:
        """The task; raises if it is of none of these kinds, nor a user's own subclass of one."""
        is_own = self.task.kind not in TASKS.homes
        if self.task.kind not in kinds and not (
            is_own and any(isinstance(self.task, task_config(kind).task_class) for kind in kinds)
        ):
            raise UserError(f"this run was trained to {self.task.kind}, not to {' or '.join(kinds)}; name another run")
        return self.task

    def check_command(self, command: str) -> Any:
        """The task; raises if `headwise COMMAND` does not serve it."""
        if self.experiment.task.command != command:
            other = self.experiment.task.command
            remedy = f"use `headwise {other}`, or name another run" if other else "name another run"
            raise UserError(
                f"this run was trained to {self.task.kind}, which `headwise {command}` does not do; {remedy}"
            )
        return self.task

    def translate(self, texts: Iterable[str], **settings: Any) -> list[str]:
        """The best output of each text. Settings are those of `[decode]`: beams, temperature, ..."""
        return [nbest[0].text for nbest in self.translate_nbest(texts, **settings)]

    def translate_nbest(self, texts: Iterable[str], **settings: Any) -> list[list[Translation]]:
        """The `nbest` outputs of each text, best first."""
        self.check_task("transduce")
        texts = [self.experiment.data.add_prefix(text) for text in texts]
        config, device = self.build_decode_config(**settings), get_device(self.model)
        sides = self.tokenisers.source, self.tokenisers.target
        hypotheses = decode(self.model, sides[0].encode_batch(texts), config, device)
        outputs = replace_unknown(self.model, texts, hypotheses, sides, config, device)
        return [
            [Translation(text, h.score, h.log_prob) for text, h in zip(*pair, strict=True)]
            for pair in zip(outputs, hypotheses, strict=True)
        ]

    def generate(self, prompts: Iterable[str] = ("",), **settings: Any) -> list[list[Translation]]:
        """Each prompt with its `nbest` continuations by a language model. Settings are those of `[decode]`."""
        prompts, tokeniser = list(prompts), self.tokenisers.target
        decoded = [tokeniser.decode(ids) for ids in tokeniser.encode_batch(prompts)]
        return [
            [replace(output, text=prompt + output.text) for output in nbest]
            for prompt, nbest in zip(decoded, self.continue_prompts(prompts, **settings), strict=True)
        ]

    def continue_prompts(self, prompts: Iterable[str], **settings: Any) -> list[list[Translation]]:
        """The `nbest` continuations of each prompt, without the prompt."""
        self.check_task("language-model")
        tokeniser, config = self.tokenisers.target, self.build_decode_config(**settings)
        ids = tokeniser.encode_batch(list(prompts))
        hypotheses = decode(self.model, ids, config, get_device(self.model), tokeniser)
        return [
            [
                Translation(decode_continuation(tokeniser, prompt, h.ids, config.stop), h.score, h.log_prob)
                for h in nbest
            ]
            for prompt, nbest in zip(ids, hypotheses, strict=True)
        ]

    def few_shot(
        self,
        examples: Sequence[Pair],
        inputs: Iterable[str],
        template: str = TEMPLATE,
        count: int | None = None,
        **settings: Any,
    ) -> list[str]:
        """The answer of a language model to each input after `count` examples, up to the end of the line."""
        prompts = [build_few_shot_prompt(examples, text, template, count) for text in inputs]
        return [nbest[0].text.strip() for nbest in self.continue_prompts(prompts, **{"stop": ["\n"], **settings})]

    def complete(self, text: str, count: int = 5) -> list[Completion]:
        """The most probable completions of the last word of a text by a language model."""
        from headwise.inference.completion import Completer

        self.check_task("language-model")
        return Completer(self.model, self.tokenisers.target, get_device(self.model))(text, count)

    def tag(self, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
        """Each word of each text with its tag."""
        predict_tags = self.check_task("tag").predict_tags(self.model, texts)
        sentences = [split_words(self.tokenisers.source, text) for text in texts]
        return [list(zip(*pair, strict=True)) for pair in zip(sentences, predict_tags, strict=True)]

    def predict_states(self, sequences: Sequence[str]) -> list[str]:
        """The secondary structure of proteins, a letter for each residue."""
        task = self.check_task("tag")
        if task.config.scheme != "dssp":
            raise UserError("this run tags words, not residues; name one whose task.scheme is 'dssp'")
        return ["".join(tags) for tags in task.predict_tags(self.model, [" ".join(each) for each in sequences])]

    def classify(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """The probability of each label for each text; they sum to 1 unless the task is multi-label."""
        return self.check_task("classify").predict_probabilities(self.model, texts)

    def regress(self, texts: Sequence[str]) -> list[float]:
        """The predicted number of each text."""
        return self.check_task("regress").predict_values(self.model, texts)

    def classify_images(self, images: Iterable[str | Path | Image]) -> list[dict[str, float]]:
        """The probability of each label for each image: a path or a Pillow image."""
        task = self.check_task("classify-images")
        pixels = [task.pixels.read(image) for image in images]
        return task.predict_probabilities(self.model, torch.stack(pixels)) if pixels else []

    def detect(self, images: Iterable[str | Path | Image], above: float = 0.5) -> list[Detections]:
        """The objects of each image with boxes in its pixels: those with a score of at least `above`, best first."""
        from headwise.vision.decode import load_upright

        return self.check_task("detect").detect_in_images(self.model, [load_upright(image) for image in images], above)

    def caption(self, images: Iterable[str | Path | Image], **settings: Any) -> list[str]:
        """A caption of each image. Settings are those of `[decode]`."""
        task = self.check_task("caption")
        pixels = [task.pixels.read(image) for image in images]
        return (
            task.caption_images(self.model, torch.stack(pixels), self.build_decode_config(**settings)) if pixels else []
        )

    def describe_image(self, image: str | Path | Image, **settings: Any) -> ImageDescription:
        """The output of the model for an image: labels or a caption, depending on its task."""
        pixels = self.tokenisers.source
        if not isinstance(pixels, Pixels):
            raise UserError("this run reads texts; name one that reads images")
        return self.task.describe_image(self.model, pixels.read(image)[None], self.build_decode_config(**settings))

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[str]:
        """Extractive question answering: the answer to each (question, text) pair, a span of the text."""
        from headwise.text.paired import SEPARATOR

        return self.check_task("answer").predict_answers(self.model, [SEPARATOR.join(pair) for pair in questions])

    def fill_mask(self, texts: Sequence[str], count: int = 5) -> list[list[list[FilledMask]]]:
        """The most probable words for each [MASK] of each text, best first; a denoising run fills in several words."""
        return self.check_command("fill-mask").fill_masks(self.model, texts, count)

    def embed(self, texts: Sequence[str], pool: str = "mean", normalised: bool = False) -> Tensor:
        """Sentence embeddings, (N, C): the mean of the last hidden states, or another `pool` of them."""
        from headwise.inference.sentence_embeddings import embed

        return embed(self.model, self.tokenisers, texts, pool, normalised)

    def build_decode_config(self, **settings: Any) -> DecodeConfig:
        """The decoding config of the run with some settings changed."""
        config = validate(DecodeConfig, {**dict(self.experiment.decode), **settings}, "decode")
        return config if config.context else config.replace(context=self.task.get_max_context(self.model))

    def evaluate(self, pairs: Sequence[Pair] = (), language: str = "en", **settings: Any) -> Evaluation:
        """Scores on these pairs, or else on the test split of the experiment (or on its validation split)."""
        examples = [(self.experiment.data.add_prefix(source), target) for source, target in pairs]
        return self.task.evaluate(
            self.model, examples or self.held_out(), self.build_decode_config(**settings), language
        )

    def held_out(self) -> Any:
        """The test split of the experiment, or its validation split if there is none."""
        return self.task.load_test_pairs(self.data)

    def inspect(self, text: str, target: str = "", **settings: Any) -> Maps:
        """The attention maps of every layer and head for `text` and `target` (the output of the model if empty)."""
        from headwise.inference.attention_maps import collect_attention

        if other := WITHOUT_TEXT.get(self.experiment.task.reads):
            raise UserError(f"this run {other}")
        return collect_attention(self.model, self.tokenisers, text, target, self.build_decode_config(**settings))
