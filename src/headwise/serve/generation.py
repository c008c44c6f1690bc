"""Generation in a worker: from the JSON of a request to token ids, and from the batcher's events to texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.decode.config import DecodeConfig
from headwise.decode.driver import Engine
from headwise.decode.generator import Source
from headwise.decode.hypothesis import Hypothesis
from headwise.decode.text import TextStreamer, decode_continuation
from headwise.errors import UserError
from headwise.inference.backends import explain_unsupported_settings
from headwise.inference.trained_model import TrainedModel
from headwise.serve.chat import ChatTemplate
from headwise.serve.images import decode_base64_image
from headwise.serve.requests import FAILED, PROMPT, FailedEvent, FinishedEvent, GenerationRequest, TokenEvent
from headwise.text.base import Tokeniser

Message = dict[str, Any]  # to the front process


def describe_failed(event: FailedEvent) -> Message:
    """An error of the client, or one of ours, of which the client learns little."""
    if not event.message.startswith(FAILED):
        return {"type": "error", "status": 400, "message": event.message}
    scarce = "memory" in event.message
    reason = "has too little memory for this request; send a smaller one" if scarce else "failed; its log says why"
    return {"type": "error", "status": 500, "message": f"the server {reason}"}


@dataclass(frozen=True)
class Vocabulary:
    """Tokens of outputs as texts."""

    tokeniser: Tokeniser
    ends: frozenset[int]

    def get_text(self, before: Sequence[int], token: int) -> str:
        """What a token adds to the text of those before it; of a special token its name."""
        if token in self.ends:
            return self.tokeniser.tokens([token])[0]
        last = list(before[-1:])
        return self.tokeniser.decode([*last, token])[len(self.tokeniser.decode(last)) :]

    def describe(self, before: Sequence[int], event: TokenEvent) -> Message:
        """A token with its log P, and the most probable ones in its place."""
        top = [[self.get_text(before, token), log_prob] for token, log_prob in event.top]
        return {"text": self.get_text(before, event.token), "log_prob": event.log_prob, "top": top}


@dataclass
class Prompt:
    """One prompt of a request, and what has been written for it."""

    prompt_ids: Sequence[int]  # what a continuation goes on from; empty for an encoder-decoder
    config: DecodeConfig
    streamers: dict[int, TextStreamer] = field(default_factory=dict)
    tokens: dict[int, list[TokenEvent]] = field(default_factory=dict)  # by output


class GenerationJob:
    """A request of one or several prompts."""

    def __init__(self, trained: TrainedModel, body: Message, chat: ChatTemplate | None, max_context: int):
        self.body, self.trained = body, trained
        self.tokeniser = trained.tokenisers.target
        config = trained.build_decode_config(**body["settings"])
        model = trained.model
        if isinstance(model, Engine) and (reason := explain_unsupported_settings(config)):
            raise UserError(f"this model runs on CTranslate2: {reason}; leave such settings out")
        ends = frozenset({getattr(model, "end_id", -1), *config.eos_token_ids})
        self.vocabulary = Vocabulary(self.tokeniser, ends)
        sources = [self._encode(each, chat) for each in body["inputs"]]
        continues = bool(getattr(model, "continues_prompt", False))
        self.prompts = [Prompt(list(source) if continues else [], config) for source in sources]
        self.requests = [
            GenerationRequest(source, self._limit(config, source, max_context), body["top_logprobs"], body["echo"])
            for source in sources
        ]
        self.left = len(sources)

    def _encode(self, given: Message, chat: ChatTemplate | None) -> Source:
        trained = self.trained
        if "image" in given:
            image = decode_base64_image(given["image"])
            pixels = trained.check_command("caption").pixels
            scaled: Source = pixels.scale(pixels.read(image)[None])[0]
            return scaled
        if "ids" in given:
            size = trained.tokenisers.target.size
            if any(not 0 <= token < size for token in given["ids"]):
                raise UserError(f"prompt: this model has token ids from 0 to {size - 1:,}")
            return list(given["ids"])
        if "messages" in given:
            if chat is None:
                raise UserError("this model has no chat template; use /v1/completions, or start with --chat-template")
            return chat.encode(given["messages"], trained.tokenisers.target)
        if trained.experiment.task.writes == "continuation":
            return trained.tokenisers.target.encode(given["text"])
        ids = trained.tokenisers.source.encode(trained.experiment.data.add_prefix(given["text"]))
        if not ids:
            raise UserError("there is no text; send some")
        return ids

    def _limit(self, config: DecodeConfig, source: Source, max_context: int) -> DecodeConfig:
        """The config with an output that fits in the context; raises if the client asked for more."""
        if not max_context or "image" in self.body["inputs"][0]:
            return config
        continues = self.trained.experiment.task.writes == "continuation"
        free = max_context - 1 - (len(source) if continues else 0)  # BOS is the first
        asked = self.body["max_tokens"]
        if (not continues and len(source) >= max_context) or free < 1 or (asked and asked > free):
            raise UserError(
                f"this model's context is {max_context:,} tokens, the text has {len(source):,}"
                + (f" and the output {asked:,}" if asked else "")
                + "; shorten the text or max_tokens"
            )
        most = min(config.max_length, free)
        return config.replace(max_length=most, context=0) if continues else config.replace(max_length=most)

    def take(self, index: int, event: TokenEvent | FinishedEvent | FailedEvent) -> Iterator[Message]:
        """The messages of an event of a prompt."""
        if isinstance(event, FailedEvent):
            yield describe_failed(event)
        elif isinstance(event, TokenEvent):
            yield from self._take_token(self.prompts[index], index, event)
        else:
            yield from self._finish(self.prompts[index], index, event)

    def _take_token(self, prompt: Prompt, index: int, event: TokenEvent) -> Iterator[Message]:
        tokens = prompt.tokens.setdefault(event.output, [])
        tokens.append(event)
        if not self.body["stream"] or event.output == PROMPT or event.token in self.vocabulary.ends:
            return
        streamer = prompt.streamers.get(event.output)
        if streamer is None:
            streamer = TextStreamer(self.tokeniser, prompt.prompt_ids, prompt.config.stop)
            prompt.streamers[event.output] = streamer
        message: Message = {
            "type": "text", "prompt": index, "output": event.output, "text": streamer.push(event.token)
        }  # fmt: skip
        if self.body["logprobs"]:
            before = [*prompt.prompt_ids[-1:], *(each.token for each in tokens[-2:-1])]
            message["tokens"] = [self.vocabulary.describe(before, event)]
        yield message

    def _finish(self, prompt: Prompt, index: int, event: FinishedEvent) -> Iterator[Message]:
        numbers = event.outputs or tuple(range(len(event.hypotheses)))
        outputs = []
        for number, hypothesis, reason in zip(numbers, event.hypotheses, event.reasons, strict=True):
            output = self._describe(prompt, number, hypothesis, reason)
            if self.body["stream"]:
                streamer = prompt.streamers.get(number)
                output["rest"] = streamer.finish() if streamer else output["text"]
            outputs.append(output)
        self.left -= 1
        yield {
            "type": "prompt", "prompt": index, "outputs": outputs,
            "prompt_text": self.tokeniser.decode(prompt.prompt_ids) if self.body["echo_text"] else "",
            "prompt_tokens": event.prompt_tokens, "completion_tokens": event.completion_tokens,
        }  # fmt: skip
        if not self.left:
            yield {"type": "done"}

    def _describe(self, prompt: Prompt, number: int, hypothesis: Hypothesis, reason: str) -> Message:
        if self.trained.experiment.task.writes == "continuation":
            text = decode_continuation(self.tokeniser, prompt.prompt_ids, hypothesis.ids, prompt.config.stop)
        else:
            text = self.tokeniser.decode(hypothesis.ids)
        output: Message = {
            "text": text, "output": number, "reason": reason, "score": hypothesis.score,
            "log_prob": hypothesis.log_prob,
        }  # fmt: skip
        if self.body["logprobs"]:
            tokens = [each for each in prompt.tokens.get(number, []) if each.token not in self.vocabulary.ends]
            output["tokens"] = list(self._describe_tokens(list(prompt.prompt_ids[-1:]), tokens))
            output["prompt_tokens"] = list(self._describe_tokens([], prompt.tokens.get(PROMPT, [])))
        return output

    def _describe_tokens(self, before: list[int], events: Sequence[TokenEvent]) -> Iterator[Message]:
        for event in events:
            yield self.vocabulary.describe(before, event)
            before = [event.token]
