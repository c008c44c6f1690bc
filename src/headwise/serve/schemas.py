"""The bodies of requests. Numbers are checked here, in the front process, before anything is allocated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from headwise.serve import limits

Name = Annotated[str, StringConstraints(max_length=200)]
Text = Annotated[str, StringConstraints(max_length=limits.MAX_CHARACTERS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=limits.MAX_TEXTS)]
Count = Annotated[int, Field(ge=1, le=100)]
ImageText = Annotated[str, StringConstraints(min_length=1, max_length=limits.MAX_IMAGE_BODY)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, le=limits.MAX_SEED)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=2**31)]], Field(min_length=1, max_length=32_768)]
BEAMS, NBEST = Field(ge=1, le=limits.MAX_BEAMS), Field(ge=1, le=limits.MAX_OUTPUTS)
MODEL = Field("", description="the name of a model; empty: the first that does this")


class RequestBody(BaseModel):
    """A JSON body; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Sampling(RequestBody):
    """How tokens are chosen; the names are those of `[decode]`, and what is left out is as the run has it."""

    temperature: float | None = Field(None, ge=0, le=100, allow_inf_nan=False, description="0: the most probable token")
    top_k: int | None = Field(None, ge=0, le=1_000_000)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    min_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    typical_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    seed: Seed | None = None
    repetition_penalty: float | None = Field(None, gt=0, le=100, allow_inf_nan=False)
    no_repeat_ngram_size: int | None = Field(None, ge=0, le=100)
    max_tokens: int | None = Field(None, ge=1, description="most tokens of an output")
    min_length: int | None = Field(None, ge=0, le=100_000)
    beams: Annotated[int, BEAMS] | None = None
    nbest: Annotated[int, NBEST] | None = None
    length_penalty: float | None = Field(None, ge=-100, le=100, allow_inf_nan=False)

    def get_settings(self) -> dict[str, Any]:
        """Those that are given, as `[decode]` names them."""
        found: dict[str, Any] = {
            name: value for name in Sampling.model_fields if (value := getattr(self, name)) is not None
        }
        most = found.pop("max_tokens", None)
        return found | ({"max_ratio": 0.0, "max_extra": most, "max_length": most} if most else {})


class GenerateRequest(Sampling):
    """Continue texts."""

    model: Name = MODEL
    text: Text | Texts = ""
    stop: Annotated[list[Stop], Field(max_length=limits.MAX_STOPS)] = []
    stream: bool = Field(False, description="send pieces of text as server-sent events; of one text")


class TranslateRequest(Sampling):
    """Turn sources into targets."""

    model: Name = MODEL
    text: Text | Texts
    coverage_penalty: float | None = Field(None, ge=0, le=100, allow_inf_nan=False)
    alignments: bool = Field(False, description="the attention of each output token to each source token")
    stream: bool = Field(False, description="send pieces of text as server-sent events; of one text")


class CaptionRequest(RequestBody):
    """Describe an image in a sentence."""

    model: Name = MODEL
    image: ImageText = Field(description="an image file in base64, with or without data:image/...;base64,")
    beams: Annotated[int, BEAMS] | None = None


class ClassifyRequest(RequestBody):
    """The label of texts, or of an image; of a regression the value."""

    model: Name = MODEL
    text: Text | Texts | None = None
    image: ImageText | None = None


class TextsRequest(RequestBody):
    """Texts alone."""

    model: Name = MODEL
    text: Text | Texts


class CountedRequest(TextsRequest):
    """Texts, and how many words are wanted."""

    count: Count = 5


class AnswerRequest(RequestBody):
    """A question about a text."""

    model: Name = MODEL
    question: Text
    text: Text


class EmbedRequest(TextsRequest):
    """Sentence embeddings."""

    pool: Literal["mean", "max", "first", "last", "pooler"] = "mean"
    normalised: bool = False


class DetectRequest(RequestBody):
    """The objects of an image."""

    model: Name = MODEL
    image: ImageText
    above: Share = 0.5


class ScoreRequest(RequestBody):
    """A text to compute log P of."""

    model: Name = MODEL
    text: Text
    source: Text = Field("", description="what an encoder-decoder turns into the text")
    ends: bool = Field(True, description="whether the text ends there: count the EOS, too")


class AttentionRequest(RequestBody):
    """A text to look at."""

    model: Name = MODEL
    text: Text
    target: Text = Field("", description="of an encoder-decoder; empty: its own output")
    kind: str = Field("", max_length=20, description="encoder, decoder, cross or outputs")
    layer: int | None = Field(None, ge=0, le=100_000)


class StreamOptions(RequestBody):
    include_usage: bool = False
    include_obfuscation: bool = False


class OpenAIFields(RequestBody):
    """What completions and chats have in common."""

    model: Name
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    n: int | None = Field(None, ge=1, le=limits.MAX_OUTPUTS)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=limits.MAX_STOPS)] | None = None
    seed: Seed | None = None
    presence_penalty: Literal[0] | float | None = Field(None, ge=0, le=0, description="only 0")
    frequency_penalty: Literal[0] | float | None = Field(None, ge=0, le=0, description="only 0")
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = Field(None, description="only {}")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="not OpenAI's: sample among k tokens")
    min_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="not OpenAI's")
    repetition_penalty: float | None = Field(None, gt=0, le=100, allow_inf_nan=False, description="not OpenAI's")
    user: str | None = Field(None, max_length=1000, description="is not used")
    store: bool | None = Field(None, description="is not used: nothing is stored")
    metadata: dict[str, str] | None = Field(None, max_length=16, description="is not used")


class CompletionRequest(OpenAIFields):
    """OpenAI's /v1/completions."""

    prompt: Text | Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1, max_length=limits.MAX_TEXTS)] = ""
    logprobs: int | None = Field(None, ge=0, le=limits.MAX_TOP_LOGPROBS)
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=1, description="only 1")
    suffix: Annotated[str, StringConstraints(max_length=0)] | None = Field(None, description="only empty")


class TextPart(RequestBody):
    type: Literal["text"]
    text: Text


class ChatMessage(RequestBody):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(min_length=1, max_length=64)]
    name: str | None = Field(None, max_length=64)

    def get_text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(OpenAIFields):
    """OpenAI's /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=256)]
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=limits.MAX_TOP_LOGPROBS)


class EmbeddingRequest(RequestBody):
    """OpenAI's /v1/embeddings."""

    model: Name
    input: Text | Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = Field(None, max_length=1000)


class LibreTranslateRequest(RequestBody):
    """LibreTranslate's /translate."""

    q: Text | Texts
    source: str = Field(max_length=20)
    target: str = Field(max_length=20)
    format: Literal["text"] = Field("text", description="only text: tags of HTML are not kept apart")
    alternatives: int = Field(0, ge=0, le=limits.MAX_OUTPUTS - 1)
    api_key: str = Field("", max_length=1000, description="is not used: send `Authorization: Bearer KEY`")
