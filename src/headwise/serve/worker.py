"""The process of one model: `python -m headwise.serve.worker FD [--with PARTS.py] [--trust]`.

Its first message says what to load; then come requests and cancellations. One thread reads them, one turns texts into
token ids and refuses what does not fit, and the main thread computes: a step of the batcher, a batch of predictions,
and again. It ends when the front process does.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from headwise.config.plugins import take_options
from headwise.errors import UserError
from headwise.web.channel import Channel, Message
from headwise.web.worker import open_channel, read_memory, report

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.serve.chat import ChatTemplate
    from headwise.serve.encoder_batching import EncoderBatcher
    from headwise.serve.generation import GenerationJob

GENERATE = "generate"  # the operation of all requests that write token by token
MAX_LENGTH = 8192  # of an input, as the batches count it; the tasks split what is longer


@dataclass
class Prediction:
    """A request of a verb that is computed in batches."""

    verb: str
    parameters: Message
    inputs: list[Any]
    outputs: dict[int, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Inputs of one group may share a batch."""
        return repr((self.verb, sorted(self.parameters.items())))


@dataclass
class Worker:
    """Requests of one model."""

    channel: Channel
    trained: TrainedModel
    chat: ChatTemplate | None
    rows: int
    jobs: dict[int, GenerationJob] = field(default_factory=dict)
    predictions: dict[int, Prediction] = field(default_factory=dict)
    encoders: dict[str, EncoderBatcher] = field(default_factory=dict)  # by group, those that have something to do
    inbox: SimpleQueue[Any] = field(default_factory=SimpleQueue)  # prepared requests, and numbers of cancelled ones
    raw: SimpleQueue[Any] = field(default_factory=SimpleQueue)  # requests as they were sent
    wanted: set[int] = field(default_factory=set)  # numbers of requests that were not cancelled

    def __post_init__(self) -> None:
        self.batcher = self._make_batcher()

    def _make_batcher(self) -> Any:
        from headwise.blocks.evaluation import get_device
        from headwise.decode.driver import Engine
        from headwise.serve.batching import ContinuousBatcher
        from headwise.serve.whole_batcher import WholeBatcher

        model, tokeniser = self.trained.model, self.trained.tokenisers.target
        if isinstance(model, Engine) or not hasattr(model, "step"):  # of a model that writes nothing it stays empty
            return WholeBatcher(model, tokeniser, self.rows)
        return ContinuousBatcher(model, tokeniser, get_device(model), max_rows=self.rows)

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._prepare_all, daemon=True).start()
        while True:
            self._take()
            if messages := self.advance():
                self.channel.send({"events": messages, "stats": self._measure()})

    def advance(self) -> list[Message]:
        """Compute a batch of predictions and a step of the batcher; returns what there is to say."""
        return [*self._predict(), *self._generate()]

    def _read(self) -> None:
        while True:
            message = self.channel.receive()
            if message is None:
                os._exit(0)
            if "cancel" in message:
                self.wanted.discard(message["cancel"])
                self.inbox.put(message["cancel"])
            else:
                self.wanted.add(message["id"])
                self.raw.put(message)

    def _prepare_all(self) -> None:
        while True:
            message = self.raw.get()
            number = message["id"]
            if number not in self.wanted:
                continue
            try:
                self.inbox.put((number, self.prepare(number, message["op"], message["body"])))
            except UserError as error:
                self._refuse(number, 400, str(error))
            except Exception as error:
                self._refuse(number, 500, report(error))

    def prepare(self, number: int, operation: str, body: Message) -> GenerationJob | Prediction:
        """Everything that needs no model: tokenising, checks of lengths and settings, decoding of images."""
        from headwise.serve.generation import GenerationJob
        from headwise.serve.verbs import VERBS, check_reads, read_input

        if operation == GENERATE:
            return GenerationJob(self.trained, body, self.chat, find_context(self.trained))
        verb = VERBS[operation]
        for given in body["inputs"]:
            check_reads(self.trained, verb, given)
        return Prediction(operation, body["parameters"], [read_input(verb, each) for each in body["inputs"]])

    def _refuse(self, number: int, status: int, message: str) -> None:
        self.wanted.discard(number)
        self.channel.send({"events": [{"id": number, "type": "error", "status": status, "message": message}]})

    def _take(self) -> None:
        """Take what has arrived; wait for something if there is nothing to do yet."""
        wait: float | None = 0.0
        if self.batcher.idle:
            wait = min((encoder.delay for encoder in self.encoders.values()), default=None)
        with suppress(Empty):
            while True:
                found = self.inbox.get(block=wait != 0, timeout=wait or None)
                wait = 0.0
                if isinstance(found, int):
                    self._drop(found)
                elif found[0] in self.wanted:
                    self.start(*found)

    def start(self, number: int, job: GenerationJob | Prediction) -> None:
        if isinstance(job, Prediction):
            self.predictions[number] = job
            encoder = self.encoders.setdefault(job.group, self._make_encoder(job))
            for index, value in enumerate(job.inputs):
                encoder.submit((number, index), value)
            return
        self.jobs[number] = job
        try:
            for index, request in enumerate(job.requests):
                self.batcher.submit((number, index), request)
        except UserError as error:
            self._drop(number)
            self._refuse(number, 400, str(error))

    def _drop(self, number: int) -> None:
        """Forget a request that is finished, cancelled or failed."""
        self.wanted.discard(number)
        if (job := self.jobs.pop(number, None)) is not None:
            for index in range(len(job.requests)):
                self.batcher.cancel((number, index))
        prediction = self.predictions.pop(number, None)
        encoder = self.encoders.get(prediction.group) if prediction else None
        if prediction is not None and encoder is not None:
            for index in range(len(prediction.inputs)):
                encoder.cancel((number, index))

    def _generate(self) -> list[Message]:
        if self.batcher.idle:
            return []
        try:
            events = self.batcher.step()
        except Exception as error:  # a fault of ours or of the machine, such as too little memory: nothing is certain
            return self._fail_all(report(error))
        messages: list[Message] = []
        for event in events:
            number, index = event.key
            if (job := self.jobs.get(number)) is None:
                continue
            for message in job.take(index, event):
                messages.append({"id": number, **message})
                if message["type"] in ("done", "error"):
                    self._drop(number)
        return messages

    def _fail_all(self, reason: str) -> list[Message]:
        numbers = list(self.jobs)
        self.jobs.clear()
        self.wanted.difference_update(numbers)
        self.batcher = self._make_batcher()
        return [{"id": number, "type": "error", "status": 500, "message": reason} for number in numbers]

    def _make_encoder(self, job: Prediction) -> EncoderBatcher:
        from headwise.serve.encoder_batching import EncoderBatcher
        from headwise.serve.verbs import VERBS

        run, parameters = VERBS[job.verb].run, job.parameters
        return EncoderBatcher(lambda inputs: run(self.trained, inputs, parameters), estimate_tokens)

    def _predict(self) -> list[Message]:
        """The outputs of the batches for which it is time."""
        from headwise.serve.generation import describe_failed
        from headwise.serve.requests import FailedEvent
        from headwise.serve.verbs import make_finite

        messages: list[Message] = []
        for group, encoder in list(self.encoders.items()):
            for event in encoder.step():
                number, index = cast("tuple[int, int]", event.key)
                if (job := self.predictions.get(number)) is None:
                    continue
                if isinstance(event, FailedEvent):
                    messages.append({"id": number, **describe_failed(event)})
                    self._drop(number)
                    continue
                job.outputs[index] = make_finite(event.prediction)
                if len(job.outputs) == len(job.inputs):
                    outputs = [job.outputs[place] for place in range(len(job.inputs))]
                    messages.append({"id": number, "type": "done", "outputs": outputs})
                    self._drop(number)
            if encoder.idle:
                self.encoders.pop(group, None)
        return messages

    def _measure(self) -> Message:
        batcher = self.batcher
        return {
            "waiting": batcher.waiting + sum(encoder.waiting for encoder in self.encoders.values()),
            "rows": batcher.live_rows,
            "cached_tokens": batcher.cached_tokens, "memory": read_memory(),
        }  # fmt: skip


def estimate_tokens(value: Any) -> int:
    """About how many tokens an input has, to run inputs of similar length together."""
    texts = value.values() if isinstance(value, dict) else (value,)
    return min(MAX_LENGTH, 1 + sum(len(text) for text in texts if isinstance(text, str)) // 4)


def find_context(trained: TrainedModel) -> int:
    """The tokens that a model takes at once, BOS included; 0: any number."""
    config = trained.build_decode_config()
    limits = (config.context, getattr(trained.model, "max_length", 0) or 0)
    return min((limit for limit in limits if limit), default=0)


def describe(trained: TrainedModel, chat: ChatTemplate | None, spec: Message) -> Message:
    """What the front process needs to know of a model."""
    from torch import nn

    from headwise.serve.verbs import list_verbs

    task, model, decode = trained.experiment.task, trained.model, trained.build_decode_config()
    size = sum(each.numel() for each in model.parameters()) if isinstance(model, nn.Module) else 0
    return {
        "task": task.kind, "reads": task.reads, "verbs": list_verbs(trained), "context": find_context(trained),
        "parameters": size, "chat": chat is not None, "engine": spec["engine"], "beams": decode.beams,
        "kind": trained.experiment.model.kind,
    }  # fmt: skip


def main(words: list[str]) -> None:
    channel = open_channel(words[0])
    try:
        take_options(words[1:])
        from headwise.serve.loading import load_for_serving  # torch: seconds, before it is known which model is wanted

        if (spec := channel.receive()) is None:
            return
        trained, chat = load_for_serving(spec)
        worker = Worker(channel, trained, chat, spec["limits"]["rows"])
        channel.send({"ready": describe(trained, chat, spec)})
    except UserError as error:
        channel.send({"failed": str(error)})
        return
    worker.run()


if __name__ == "__main__":
    main(sys.argv[1:])
