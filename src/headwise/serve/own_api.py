"""Headwise's own routes: `/api/VERB` for everything that the tasks of the served models can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from headwise.serve.errors import RequestError
from headwise.serve.limits import MAX_IMAGE_BODY, MAX_JSON_BYTES
from headwise.serve.pool import ServedModel
from headwise.serve.routing import Answer, Call, EventStream, Route
from headwise.serve.schemas import (
    AnswerRequest,
    AttentionRequest,
    CaptionRequest,
    ClassifyRequest,
    CountedRequest,
    DetectRequest,
    EmbedRequest,
    GenerateRequest,
    RequestBody,
    ScoreRequest,
    TextsRequest,
    TranslateRequest,
)
from headwise.web.channel import Message


def list_texts(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def build_work(call: Call, inputs: list[Message], settings: Message, stream: bool = False) -> Message:
    """The body of a generation request to a worker."""
    limits = call.service.limits
    most = settings.get("max_length", 0)
    if most > limits.max_tokens:
        raise RequestError(400, f"max_tokens: at most {limits.max_tokens:,} are written here", "max_tokens")
    rows = max(settings.get("beams", 1), settings.get("nbest", 1))
    if rows > limits.rows:
        raise RequestError(400, f"beams, nbest: at most {limits.rows} here", "beams")
    if stream and (len(inputs) > 1 or rows > 1):
        raise RequestError(400, "stream: one text with one output can be streamed; send it alone", "stream")
    if not most:
        settings = {**settings, "max_length": limits.max_tokens}
    return {
        "inputs": inputs, "settings": settings, "nbest": settings.get("nbest", 1), "max_tokens": most,
        "logprobs": False, "top_logprobs": 0, "echo": False, "echo_text": False, "stream": stream,
    }  # fmt: skip


async def generate(call: Call) -> Answer | EventStream:
    body: GenerateRequest = call.body
    settings: Message = {"beams": 1, "coverage_penalty": 0.0, "stop": body.stop, "max_ratio": 0.0, "max_extra": 200}
    settings |= body.get_settings()
    return await write(call, "generate", body, settings, body.stream)


async def translate(call: Call) -> Answer | EventStream:
    body: TranslateRequest = call.body
    settings = body.get_settings()
    if body.coverage_penalty is not None:
        settings["coverage_penalty"] = body.coverage_penalty
    return await write(call, "translate", body, settings, body.stream, body.alignments)


async def write(
    call: Call,
    verb: str,
    body: GenerateRequest | TranslateRequest,
    settings: Message,
    stream: bool,
    alignments: bool = False,
) -> Answer | EventStream:
    model = call.service.pool.find(body.model, verb)
    texts = list_texts(body.text)
    work = build_work(call, [{"text": text} for text in texts], settings, stream)
    if stream:
        return EventStream(stream_text(call, model, work))
    outputs = await collect_outputs(call, model, work)
    if alignments:
        for text, row in zip(texts, outputs, strict=True):
            row["alignment"] = await align(model, text, row["outputs"][0]["text"])
    return Answer({"model": model.spec.name, "outputs": outputs})


async def align(model: ServedModel, text: str, target: str) -> Message | None:
    """Cross-attention, mean over layers and heads; None where the output is empty."""
    if not target:
        return None
    given = {"text": text, "target": target, "kind": "", "layer": None}
    with model.submit("attention", {"inputs": [given], "parameters": {}}) as job:
        (maps,) = (await job.next())["outputs"]
    heads = [head for layer in maps["weights"] for head in layer]
    means = [
        [round(sum(head[row][column] for head in heads) / len(heads), 5) for column in range(len(maps["columns"]))]
        for row in range(len(maps["rows"]))
    ]
    return {"source": maps["columns"], "target": maps["rows"], "weights": means}


async def collect_outputs(call: Call, model: ServedModel, work: Message) -> list[Message]:
    """The outputs of each text, best first."""
    rows: dict[int, list[Message]] = {}
    read = written = 0
    with model.submit("generate", work) as job:
        async for message in job:
            if message["type"] == "prompt":
                read += message["prompt_tokens"]
                written += message["completion_tokens"]
                rows[message["prompt"]] = [
                    {
                        "text": each["text"],
                        "score": each["score"],
                        "log_prob": each["log_prob"],
                        "ended": each["reason"],
                    }
                    for each in message["outputs"]
                ]
    call.service.metrics.count_tokens(model.spec.name, read, written)
    return [{"outputs": rows[index]} for index in sorted(rows)]


async def stream_text(call: Call, model: ServedModel, work: Message) -> AsyncIterator[Message]:
    begun = False
    with model.submit("generate", work) as job:
        async for message in job:
            if not begun:
                seconds = perf_counter() - call.started
                call.service.metrics.first_token.labels(model.spec.name).observe(seconds)
                begun = True
            if message["type"] == "text" and message["text"]:
                yield {"text": message["text"]}
            if message["type"] == "prompt":
                (found,) = message["outputs"]
                call.service.metrics.count_tokens(
                    model.spec.name, message["prompt_tokens"], message["completion_tokens"]
                )
                yield {"text": found["rest"], "ended": found["reason"], "log_prob": found["log_prob"]}


async def caption(call: Call) -> Answer | EventStream:
    body: CaptionRequest = call.body
    model = call.service.pool.find(body.model, "caption")
    settings = {} if body.beams is None else {"beams": body.beams}
    outputs = await collect_outputs(call, model, build_work(call, [{"image": body.image}], settings))
    return Answer({"model": model.spec.name, "outputs": outputs})


@dataclass(frozen=True)
class Prediction:
    """A verb that a worker computes in batches: what it sends there of a body."""

    verb: str
    list_inputs: Callable[[Any], list[Message]]
    parameters: tuple[str, ...] = ()

    async def __call__(self, call: Call) -> Answer | EventStream:
        body = call.body
        model = call.service.pool.find(body.model, self.verb)
        work = {
            "inputs": self.list_inputs(body),
            "parameters": {name: getattr(body, name) for name in self.parameters},
        }
        with model.submit(self.verb, work) as job:
            outputs = (await job.next())["outputs"]
        return Answer({"model": model.spec.name, "outputs": outputs})


def from_texts(body: TextsRequest) -> list[Message]:
    return [{"text": text} for text in list_texts(body.text)]


def from_texts_or_image(body: ClassifyRequest) -> list[Message]:
    if (body.text is None) == (body.image is None):
        raise RequestError(400, "text, image: send one of them", "text")
    return [{"image": body.image}] if body.text is None else [{"text": text} for text in list_texts(body.text)]


def from_fields(*names: str) -> Callable[[Any], list[Message]]:
    return lambda body: [{name: getattr(body, name) for name in names}]


def predict(
    verb: str,
    summary: str,
    body: type[RequestBody],
    list_inputs: Callable[[Any], list[Message]],
    example: Message,
    output: Message,
    parameters: tuple[str, ...] = (),
    max_bytes: int = MAX_JSON_BYTES,
) -> Route:
    return Route(
        f"/api/{verb}", Prediction(verb, list_inputs, parameters), summary, "Headwise", body, example,
        {"model": "name", "outputs": [output]}, max_bytes, computes=True,
    )  # fmt: skip


OUTPUT = {"text": "Wir sind hier.", "score": -0.4, "log_prob": -0.9, "ended": "stop"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
WORD = {"word": "hat", "probability": 0.7}
ROUTES = [
    Route(
        "/api/generate", generate, "Continue texts with a language model.", "Headwise", GenerateRequest,
        {"text": "To be", "max_tokens": 20, "temperature": 0.8, "seed": 1},
        {"model": "name", "outputs": [{"outputs": [OUTPUT]}]}, computes=True,
    ),
    Route(
        "/api/translate", translate, "Turn sources into targets: n-best outputs, scores, alignments.", "Headwise",
        TranslateRequest, {"text": "We are here.", "beams": 4, "nbest": 2},
        {"model": "name", "outputs": [{"outputs": [OUTPUT]}]}, computes=True,
    ),
    Route(
        "/api/caption", caption, "Describe an image.", "Headwise", CaptionRequest, {"image": PNG},
        {"model": "name", "outputs": [{"outputs": [OUTPUT]}]}, MAX_IMAGE_BODY, computes=True,
    ),
    predict("classify", "Classify texts or an image; predict a number.", ClassifyRequest, from_texts_or_image,
            {"text": "a fine film"}, {"label": "positive", "probabilities": {"positive": 0.9, "negative": 0.1}},
            max_bytes=MAX_IMAGE_BODY),
    predict("tag", "Tag the words of texts.", TextsRequest, from_texts, {"text": "dogs bark"},
            {"words": [{"word": "dogs", "tag": "NOUN"}]}),
    predict("fill-mask", "The most probable words for each [MASK].", CountedRequest, from_texts,
            {"text": "the [MASK] sat", "count": 3}, {"masks": [[WORD]]}, ("count",)),
    predict("detect-replaced", "The probability that each word was replaced.", TextsRequest, from_texts,
            {"text": "a man rides a sandwich"}, {"words": [WORD]}),
    predict("answer", "Answer a question with a span of a text.", AnswerRequest, from_fields("question", "text"),
            {"question": "Where is the cat?", "text": "The cat is in the hat."}, {"answer": "in the hat"}),
    predict("complete", "The most probable completions of the last word.", CountedRequest, from_texts,
            {"text": "to be or n", "count": 3}, {"words": [{"word": "not", "probability": 0.6}]}, ("count",)),
    predict("embed", "Embed texts.", EmbedRequest, from_texts, {"text": "a river", "pool": "mean"},
            {"embedding": [0.1, -0.2], "tokens": 3}, ("pool", "normalised")),
    predict("detect", "Find the objects of an image.", DetectRequest, from_fields("image"), {"image": PNG},
            {"objects": [{"label": "circle", "score": 0.9, "box": [1.0, 2.0, 9.0, 8.0]}]}, ("above",), MAX_IMAGE_BODY),
    predict("score", "log P of a text.", ScoreRequest, from_fields("text", "source", "ends"), {"text": "to be"},
            {"log_prob": -7.1, "tokens": [{"token": "t", "id": 23, "log_prob": -2.0}]}),
    predict("attention", "The attention maps of a text: weights[layer][head][row][column].", AttentionRequest,
            from_fields("text", "target", "kind", "layer"), {"text": "to be", "layer": 0},
            {"kind": "decoder", "kinds": ["decoder"], "rows": ["b"], "columns": ["<bos>"], "weights": [[[[1.0]]]]}),
]  # fmt: skip
