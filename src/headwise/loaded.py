"""A trained model, ready to use: `headwise.load("runs/demo").translate(["transformer"])`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise.blocks.record import record
from headwise.blocks.stack import EncoderDecoder
from headwise.config.base import validate
from headwise.config.decode import DecodeConfig
from headwise.config.experiment import Experiment, resolved
from headwise.data.corpora import load_corpus
from headwise.data.read import Pair
from headwise.decode.driver import decode
from headwise.decode.ensemble import Ensemble
from headwise.decode.unknown import written
from headwise.errors import UserError
from headwise.runs import Run
from headwise.runs.checkpoint import restore, weights
from headwise.tasks import task_class
from headwise.tasks.base import Evaluation, Task, device_of
from headwise.text import EOS
from headwise.text.tokenisers import Tokenisers

if TYPE_CHECKING:
    from headwise.complete import Completion
    from headwise.inspect.maps import Maps


@dataclass(frozen=True)
class Translation:
    """One output of a source, with its scores."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class Loaded:
    """A generator with the tokenisers and the experiment that it came from."""

    model: Any  # an nn.Module, an ensemble of them, or a deployment engine
    tokenisers: Tokenisers
    experiment: Experiment

    def on(self, device: str | torch.device) -> Loaded:
        """The same on another device."""
        return replace(self, model=self.model.to(device))

    @property
    def task(self) -> Task:
        return task_of(self.experiment, self.tokenisers)

    def able(self, kind: str) -> Any:
        """The task, where it is of this kind; another one is refused in a sentence."""
        if self.task.kind != kind:
            raise UserError(f"this run was trained to {self.task.kind}, not to {kind}; name another run")
        return self.task

    def translate(self, texts: Iterable[str], **settings: Any) -> list[str]:
        """The best output of each text. Settings are those of `[decode]`: beams, temperature, ..."""
        return [found[0].text for found in self.candidates(texts, **settings)]

    def candidates(self, texts: Iterable[str], **settings: Any) -> list[list[Translation]]:
        """The `nbest` outputs of each text, best first."""
        self.able("transduce")
        texts, config, device = list(texts), self.decoding(**settings), device_of(self.model)
        sides = self.tokenisers.source, self.tokenisers.target
        found = decode(self.model, sides[0].encode_batch(texts), config, device)
        outputs = written(self.model, texts, found, sides, config, device)
        return [
            [Translation(text, h.score, h.log_prob) for text, h in zip(*each, strict=True)]
            for each in zip(outputs, found, strict=True)
        ]

    def generate(self, prompts: Iterable[str] = ("",), **settings: Any) -> list[list[Translation]]:
        """Each prompt and how a language model goes on with it, `nbest` ways. Settings are those of `[decode]`."""
        self.able("language-model")
        tokeniser = self.tokenisers.target
        ids = tokeniser.encode_batch(list(prompts))
        found = decode(self.model, ids, self.decoding(**settings), device_of(self.model))
        return [
            [Translation(tokeniser.decode([*prompt, *h.ids]), h.score, h.log_prob) for h in each]
            for prompt, each in zip(ids, found, strict=True)
        ]

    def complete(self, text: str, count: int = 5) -> list[Completion]:
        """The most probable ways in which a language model ends the last word of a text."""
        from headwise.complete import Completer

        self.able("language-model")
        return Completer(self.model, self.tokenisers.target, device_of(self.model))(text, count)

    def tag(self, texts: Sequence[str]) -> list[list[tuple[str, str]]]:
        """Each word of each text with its tag."""
        found = self.able("tag").tags(self.model, texts)
        normalise = self.tokenisers.source.normalise
        return [list(zip(normalise(text).split(), tags, strict=True)) for text, tags in zip(texts, found, strict=True)]

    def classify(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """The probability of each label, for each text."""
        return self.able("classify").probabilities(self.model, texts)

    def decoding(self, **settings: Any) -> DecodeConfig:
        """The run's own way of decoding, with some settings changed."""
        return validate(DecodeConfig, {**dict(self.experiment.decode), **settings}, "decode")

    def evaluate(self, pairs: Sequence[Pair] = (), language: str = "en", **settings: Any) -> Evaluation:
        """Scores on these pairs, or on the experiment's test part (its validation part where there is none)."""
        if not pairs:
            corpus = load_corpus(self.experiment.data)
            pairs = corpus.test or corpus.valid
        return self.task.evaluate(self.model, pairs, self.decoding(**settings), language)

    @torch.inference_mode()
    def inspect(self, text: str, target: str = "", **settings: Any) -> Maps:
        """The attention of every layer and head while reading `text` and writing `target` (its own output if empty)."""
        from headwise.inspect.maps import Maps

        if not isinstance(self.model, EncoderDecoder):
            raise UserError("only a single run can be inspected, not an ensemble or a deployment engine")
        source_ids = [*self.tokenisers.source.encode(text), EOS]
        if target:
            target_ids = [*self.tokenisers.target.encode(target), EOS]
        else:
            best = decode(self.model, [source_ids[:-1]], self.decoding(**settings), device_of(self.model))[0][0]
            target_ids = [*best.ids, EOS]
        device = device_of(self.model)
        target_in = torch.tensor([[self.model.start_id, *target_ids[:-1]]], device=device)
        with record() as maps:
            self.model(torch.tensor([source_ids], device=device), target_in)
        if not maps.weights:
            raise UserError("this run's model has no attention to look at; inspect another run")
        return Maps(
            maps.by_kind(),
            tuple(self.tokenisers.source.tokens(source_ids)),
            tuple(self.tokenisers.target.tokens(target_ids)),
        )


def load(
    source: str | Path | Sequence[str | Path], *, which: str = "best", device: str | torch.device = "cpu"
) -> Loaded:
    """A run folder, a Hugging Face folder, or several runs as one ensemble.

    `which` names the checkpoint: best, last, average (of the last few) or step-N.
    """
    if not isinstance(source, str | Path):
        members = [load(each, which=which, device=device) for each in source]
        first = members[0]
        if len(members) == 1:
            return first
        if any(member.tokenisers.to_json() != first.tokenisers.to_json() for member in members):
            raise UserError("the runs of an ensemble must have the same tokenisers; train them from the same data")
        return Loaded(Ensemble([member.model for member in members]), first.tokenisers, first.experiment)
    path = Path(source)
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder; name a run (see `headwise runs`)")
    if (path / "config.json").is_file() and not (path / "config.toml").is_file():
        from headwise.interop import from_hf

        return from_hf(path).on(device)
    run = Run.open(path)
    experiment = resolved(run.config, str(path / "config.toml"))
    tokenisers = Tokenisers.load(run.tokenizer)
    model = task_of(experiment, tokenisers).build(experiment.model)
    restore(model, weights(run, which), str(path))
    return Loaded(model.to(device).eval(), tokenisers, experiment)


def task_of(experiment: Experiment, tokenisers: Tokenisers) -> Task:
    """The experiment's task with these vocabularies."""
    return task_class(experiment.task.kind)(experiment.task, tokenisers, experiment.train.smoothing)
