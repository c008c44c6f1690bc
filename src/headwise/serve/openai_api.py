"""OpenAI's completions, chats, embeddings and models, as its clients expect them."""

from __future__ import annotations

import base64
import secrets
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any

from headwise.serve.errors import RequestError
from headwise.serve.pool import Job, ServedModel
from headwise.serve.routing import Answer, Call, EventStream, Route
from headwise.serve.schemas import ChatRequest, CompletionRequest, EmbeddingRequest, OpenAIFields
from headwise.web.channel import Message

DEFAULT_TOKENS = 16  # of a completion, as OpenAI's
DEFAULT_CHAT_TOKENS = 256


@dataclass(frozen=True)
class Generation:
    """A request to a worker, and how its answer is written."""

    call: Call
    model: ServedModel
    work: Message
    copies: int  # answers that are equal because the most probable token is always taken
    chat: bool
    number: str
    created: int

    def submit(self) -> AbstractContextManager[Job]:
        return self.model.submit("generate", self.work)

    @property
    def head(self) -> Message:
        kind = "chat.completion" if self.chat else "text_completion"
        if self.chat and self.work["stream"]:
            kind += ".chunk"
        return {"id": self.number, "object": kind, "created": self.created, "model": self.model.spec.name}

    def get_index(self, prompt: int, output: int) -> int:
        """The number of a choice."""
        return prompt * self.work["nbest"] * self.copies + output

    def format_choice(self, prompt: int, place: int, found: Message, echo: str) -> Message:
        """A whole answer."""
        choice: Message = {"index": self.get_index(prompt, place), "finish_reason": found["reason"], "logprobs": None}
        tokens = found.get("tokens")
        if self.chat:
            if tokens is not None:
                choice["logprobs"] = {"content": [format_chat_token(each) for each in tokens], "refusal": None}
            return choice | {"message": {"role": "assistant", "content": found["text"], "refusal": None}}
        if tokens is not None:
            known = found.get("prompt_tokens", []) if echo else []
            choice["logprobs"] = format_logprobs([*known, *tokens], 0 if known else len(echo))
        return choice | {"text": echo + found["text"]}

    def format_piece(self, index: int, text: str, reason: str | None, tokens: Any, offset: int) -> Message:
        """A piece of an answer that is streamed."""
        choice: Message = {"index": index, "finish_reason": reason, "logprobs": None}
        if self.chat:
            if tokens:
                choice["logprobs"] = {"content": [format_chat_token(each) for each in tokens], "refusal": None}
            return {**self.head, "choices": [choice | {"delta": {"content": text} if text else {}}]}
        if tokens:
            choice["logprobs"] = format_logprobs(tokens, offset)
        return {**self.head, "choices": [choice | {"text": text}]}


def format_chat_token(token: Message) -> Message:
    def describe(text: str, log_prob: float) -> Message:
        return {"token": text, "logprob": log_prob, "bytes": list(text.encode())}

    return describe(token["text"], token["log_prob"]) | {"top_logprobs": [describe(*each) for each in token["top"]]}


def format_logprobs(tokens: Sequence[Message], start: int) -> Message:
    """The log-probabilities of a completion; those of the first token of a text are not known."""
    offsets, at = [], start
    for each in tokens:
        offsets.append(at)
        at += len(each["text"])
    return {
        "tokens": [each["text"] for each in tokens],
        "token_logprobs": [each["log_prob"] for each in tokens],
        "top_logprobs": [dict(each["top"]) if each["top"] else {each["text"]: each["log_prob"]} for each in tokens],
        "text_offset": offsets,
    }


def build_settings(body: OpenAIFields, most: int) -> Message:
    """Decoding settings, all of them: those of the run are for its own commands."""
    temperature = 1.0 if body.temperature is None else body.temperature
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    settings: Message = {
        "beams": 1, "nbest": (body.n or 1) if temperature else 1, "coverage_penalty": 0.0, "temperature": temperature,
        "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "max_ratio": 0.0, "max_extra": most,
        "max_length": most, "stop": stops, "repetition_penalty": body.repetition_penalty or 1.0,
        "seed": secrets.randbelow(2**31) if body.seed is None else body.seed,
    }  # fmt: skip
    if temperature:  # without it the most probable token is taken, whatever the others are
        settings |= {"top_k": body.top_k or 0, "top_p": body.top_p or 1.0, "min_p": body.min_p or 0.0}
    return settings


def build_generation(
    call: Call, body: OpenAIFields, inputs: list[Message], most: int | None, default: int, top: int | None, echo: bool
) -> Generation:
    chat = isinstance(body, ChatRequest)
    limits = call.service.limits
    if most is not None and most > limits.max_tokens:
        raise RequestError(400, f"max_tokens: at most {limits.max_tokens:,} are written here", "max_tokens")
    model = call.service.pool.find(body.model, "generate")
    if chat and not model.info["chat"]:
        raise RequestError(
            400, f"{body.model} has no chat template; use /v1/completions, or start the server with --chat-template",
            "model",
        )  # fmt: skip
    settings = build_settings(body, most or min(default, limits.max_tokens))
    rows = settings["nbest"] * len(inputs)
    if rows > limits.rows * 4:
        raise RequestError(400, f"n: {rows} outputs of one request are too many; at most {limits.rows * 4}", "n")
    if settings["nbest"] > limits.rows:
        raise RequestError(400, f"n: at most {limits.rows} here", "n")
    work = {
        "inputs": inputs, "settings": settings, "nbest": settings["nbest"], "max_tokens": most or 0,
        "logprobs": top is not None, "top_logprobs": top or 0, "echo": echo and top is not None, "echo_text": echo,
        "stream": bool(body.stream),
    }  # fmt: skip
    copies = (body.n or 1) if settings["nbest"] == 1 else 1
    prefix = "chatcmpl-" if chat else "cmpl-"
    return Generation(call, model, work, copies, chat, prefix + secrets.token_hex(12), int(time()))


async def complete(call: Call) -> Answer | EventStream:
    body: CompletionRequest = call.body
    echo = bool(body.echo)
    if echo and body.stream:
        raise RequestError(400, "echo: is not streamed; leave out one of the two", "echo")
    inputs = list_prompts(body.prompt)
    generation = build_generation(call, body, inputs, body.max_tokens, DEFAULT_TOKENS, body.logprobs, echo)
    return await answer(generation, body)


async def chat(call: Call) -> Answer | EventStream:
    body: ChatRequest = call.body
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError(400, "top_logprobs: needs logprobs: true", "top_logprobs")
    messages = [{"role": each.role, "content": each.get_text()} for each in body.messages]
    top = (body.top_logprobs or 0) if body.logprobs else None
    most = body.max_completion_tokens or body.max_tokens
    generation = build_generation(call, body, [{"messages": messages}], most, DEFAULT_CHAT_TOKENS, top, False)
    return await answer(generation, body)


async def answer(generation: Generation, body: OpenAIFields) -> Answer | EventStream:
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        return EventStream(stream_pieces(generation, usage))
    return Answer(await collect(generation))


def list_prompts(prompt: Any) -> list[Message]:
    """A text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return [{"text": prompt}]
    if isinstance(prompt[0], int):
        return [{"ids": prompt}]
    return [{"text": each} if isinstance(each, str) else {"ids": each} for each in prompt]


async def collect(generation: Generation) -> Message:
    choices: list[Message] = []
    read = written = 0
    with generation.submit() as job:
        async for message in job:
            if message["type"] == "prompt":
                read += message["prompt_tokens"]
                written += message["completion_tokens"]
                for place, found in enumerate(message["outputs"] * generation.copies):
                    choices.append(generation.format_choice(message["prompt"], place, found, message["prompt_text"]))
    choices.sort(key=lambda choice: choice["index"])
    generation.call.service.metrics.count_tokens(generation.model.spec.name, read, written)
    return {**generation.head, "choices": choices, "usage": format_usage(read, written)}


def format_usage(read: int, written: int) -> Message:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


async def stream_pieces(generation: Generation, usage: bool) -> AsyncIterator[Message]:
    """The events of a stream: pieces, why each choice ended, and at last, if it is asked for, the usage."""
    extra: Message = {"usage": None} if usage else {}
    metrics, name = generation.call.service.metrics, generation.model.spec.name
    offsets: dict[int, int] = {}
    read = written = 0
    with generation.submit() as job:
        begun: set[int] = set()
        async for message in job:
            if not begun and message["type"] in ("text", "prompt"):
                metrics.first_token.labels(name).observe(perf_counter() - generation.call.started)
            if message["type"] == "prompt":
                read += message["prompt_tokens"]
                written += message["completion_tokens"]
            for index, text, reason, tokens in list_pieces(generation, message):
                if generation.chat and index not in begun:
                    role: Message = {"index": index, "delta": {"role": "assistant", "content": ""}}
                    yield {**generation.head, "choices": [role | {"finish_reason": None, "logprobs": None}], **extra}
                begun.add(index)
                if text or reason or tokens:
                    offset = offsets.get(index, 0)
                    offsets[index] = offset + len(text)
                    yield {**generation.format_piece(index, text, reason, tokens, offset), **extra}
    metrics.count_tokens(name, read, written)
    if usage:
        yield {**generation.head, "choices": [], "usage": format_usage(read, written)}


def list_pieces(generation: Generation, message: Message) -> list[tuple[int, str, str | None, Any]]:
    """Choice, text, reason to end and tokens of the pieces in a message of the worker."""
    if message["type"] == "text":
        own, text, tokens = message["output"], message["text"], message.get("tokens")
        copies = range(generation.copies)
        return [(generation.get_index(message["prompt"], own + copy), text, None, tokens) for copy in copies]
    if message["type"] != "prompt":
        return []
    pieces: list[tuple[int, str, str | None, Any]] = []
    for found in message["outputs"]:
        for copy in range(generation.copies):
            index = generation.get_index(message["prompt"], found["output"] + copy)
            if found["rest"]:
                pieces.append((index, found["rest"], None, None))
            pieces.append((index, "", found["reason"], None))
    return pieces


async def embed(call: Call) -> Answer | EventStream:
    body: EmbeddingRequest = call.body
    model = call.service.pool.find(body.model, "embed")
    texts = [body.input] if isinstance(body.input, str) else body.input
    parameters = {"pool": "mean", "normalised": True}
    with model.submit("embed", {"inputs": [{"text": text} for text in texts], "parameters": parameters}) as job:
        outputs = (await job.next())["outputs"]
    width = len(outputs[0]["embedding"])
    if body.dimensions not in (None, width):
        raise RequestError(400, f"dimensions: this model's embeddings have {width}; leave it out", "dimensions")
    packs = body.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": pack_floats(row["embedding"]) if packs else row["embedding"],
        }
        for index, row in enumerate(outputs)
    ]
    read = sum(row["tokens"] for row in outputs)
    call.service.metrics.count_tokens(model.spec.name, read, 0)
    usage = {"prompt_tokens": read, "total_tokens": read}
    return Answer({"object": "list", "data": data, "model": body.model, "usage": usage})


def pack_floats(values: Sequence[float]) -> str:
    """Little-endian 32-bit floats in base64."""
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def describe_model(model: ServedModel, created: int) -> Message:
    info = model.info
    own: Message = {
        key: info[key] for key in ("task", "kind", "verbs", "context", "parameters", "chat", "engine") if key in info
    }
    return {"id": model.spec.name, "object": "model", "created": created, "owned_by": "headwise", **own}


async def list_models(call: Call) -> Answer | EventStream:
    models = call.service.pool.models.values()
    return Answer({"object": "list", "data": [describe_model(model, call.service.created) for model in models]})


async def get_model(call: Call) -> Answer | EventStream:
    model = call.service.pool.models.get(call.path.removeprefix("/v1/models/"))
    if model is None:
        raise RequestError(404, "there is no such model here; see /v1/models", "model", "model_not_found")
    return Answer(describe_model(model, call.service.created))


USAGE = {"prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19}
ROUTES = [
    Route("/v1/models", list_models, "The models that are served.", "OpenAI"),
    Route("/v1/models/{model}", get_model, "One of them.", "OpenAI"),
    Route(
        "/v1/completions", complete, "Continue a text.", "OpenAI", CompletionRequest,
        {"model": "shakespeare", "prompt": "To be", "max_tokens": 16, "temperature": 0},
        {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "shakespeare", "usage": USAGE,
         "choices": [{"index": 0, "text": ", or not to be", "logprobs": None, "finish_reason": "length"}]},
        computes=True,
    ),
    Route(
        "/v1/chat/completions", chat, "Answer the last message of a conversation.", "OpenAI", ChatRequest,
        {"model": "smollm", "messages": [{"role": "user", "content": "Name a river."}], "max_tokens": 16},
        {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": "smollm", "usage": USAGE,
         "choices": [{"index": 0, "message": {"role": "assistant", "content": "The Nile.", "refusal": None},
                      "logprobs": None, "finish_reason": "stop"}]},
        computes=True,
    ),
    Route(
        "/v1/embeddings", embed, "Embed texts: the mean of the last hidden states, of length 1.", "OpenAI",
        EmbeddingRequest, {"model": "bert", "input": ["a river", "a bank"]},
        {"object": "list", "model": "bert", "usage": {"prompt_tokens": 6, "total_tokens": 6},
         "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -0.2]}]},
        computes=True,
    ),
]  # fmt: skip
