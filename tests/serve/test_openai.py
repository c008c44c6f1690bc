"""OpenAI's API, by OpenAI's own client; what is written must be what the model itself writes."""

from pathlib import Path

import openai
import pytest

import headwise
from headwise.inference.trained_model import TrainedModel

PROMPT = "to be"


@pytest.fixture(scope="module")
def trained(runs: Path) -> TrainedModel:
    return headwise.load(runs / "lm")


def continue_greedily(trained: TrainedModel, prompt: str, tokens: int) -> str:
    settings = {"max_ratio": 0.0, "max_extra": tokens, "max_length": tokens}
    return trained.continue_prompts([prompt], **settings)[0][0].text


def test_models_are_listed(server):
    client = server.client()
    assert [model.id for model in client.models.list()] == ["lm", "reverse", "bert", "polar", "seen"]
    assert client.models.retrieve("lm").id == "lm"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("../lm")


def test_a_completion_is_what_the_model_writes(server, trained):
    answer = server.client().completions.create(model="lm", prompt=PROMPT, max_tokens=12, temperature=0)
    (choice,) = answer.choices
    assert choice.text == continue_greedily(trained, PROMPT, 12) and choice.finish_reason == "length"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 12, 17)


def test_a_stream_has_the_same_text(server, trained):
    stream = server.client().completions.create(
        model="lm", prompt=PROMPT, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == continue_greedily(trained, PROMPT, 12)
    assert len(chunks) > 10 and chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12


def test_samples_follow_their_seed(server):
    def draw(seed: int) -> list[str]:
        answer = server.client().completions.create(
            model="lm", prompt=[PROMPT, "a"], n=3, max_tokens=10, temperature=1, seed=seed
        )
        assert [choice.index for choice in answer.choices] == list(range(6))
        return [choice.text for choice in answer.choices]

    assert draw(1) == draw(1) != draw(2) and len(set(draw(1))) > 1


def test_samples_that_are_streamed_are_those_that_are_not(server):
    asked = {"model": "lm", "prompt": PROMPT, "n": 2, "max_tokens": 9, "temperature": 1, "seed": 7}
    client = server.client()
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(**asked, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert sorted(texts.values()) == sorted(choice.text for choice in client.completions.create(**asked).choices)


def test_stop_strings_end_a_text_before_them(server, trained):
    text = server.client().completions.create(model="lm", prompt=PROMPT, max_tokens=20, temperature=1, seed=3)
    whole = text.choices[0].text
    stop = whole[4:6]
    cut = server.client().completions.create(
        model="lm", prompt=PROMPT, max_tokens=20, temperature=1, seed=3, stop=[stop]
    )
    assert cut.choices[0].text == whole[: whole.find(stop)] and cut.choices[0].finish_reason == "stop"


def test_log_probabilities_are_those_of_the_model(server):
    answer = server.client().completions.create(model="lm", prompt=PROMPT, max_tokens=4, temperature=0, logprobs=3)
    (choice,) = answer.choices
    told = choice.logprobs
    assert "".join(told.tokens) == choice.text and all(len(row) == 3 for row in told.top_logprobs)
    assert told.text_offset == [0, 1, 2, 3]
    scored = server.post("/api/score", {"text": PROMPT + choice.text, "ends": False})["outputs"][0]["tokens"]
    assert told.token_logprobs == pytest.approx([each["log_prob"] for each in scored[-4:]], abs=1e-4)


def test_echo_gives_the_prompt_back(server):
    answer = server.client().completions.create(model="lm", prompt=PROMPT, max_tokens=3, temperature=0, echo=True)
    assert answer.choices[0].text.startswith(PROMPT) and len(answer.choices[0].text) == len(PROMPT) + 3


def test_echo_has_the_log_probabilities_of_the_prompt(server):
    answer = server.client().completions.create(
        model="lm", prompt=PROMPT, max_tokens=3, temperature=0, echo=True, logprobs=1
    )
    told = answer.choices[0].logprobs
    assert "".join(told.tokens) == answer.choices[0].text and told.text_offset == list(range(8))
    scored = server.post("/api/score", {"text": answer.choices[0].text, "ends": False})["outputs"][0]["tokens"]
    assert told.token_logprobs == pytest.approx([each["log_prob"] for each in scored], abs=1e-4)


def test_token_ids_are_prompts_too(server, trained):
    ids = trained.tokenisers.target.encode(PROMPT)
    client = server.client()
    by_ids, by_text = (
        client.completions.create(model="lm", prompt=prompt, max_tokens=5, temperature=0).choices[0].text
        for prompt in (ids, PROMPT)
    )
    assert by_ids == by_text


def test_embeddings_are_those_of_the_model(server, runs):
    texts = ["a fine film", "film"]
    expected = headwise.load(runs / "bert").embed(texts, normalised=True)
    for packing in ("float", "base64"):
        answer = server.client().embeddings.create(model="bert", input=texts, encoding_format=packing)
        for row, vector in zip(answer.data, expected, strict=True):
            found = row.embedding
            if packing == "base64":
                import base64
                import struct

                found = struct.unpack(f"<{len(vector)}f", base64.b64decode(found)) if isinstance(found, str) else found
            assert list(found) == pytest.approx(vector.tolist(), abs=1e-4)
    assert answer.usage.prompt_tokens > 0


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"n": 10**6}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"prompt": "a" * 100}, None),
        ({"max_tokens": 63}, None),
        ({"extra_body": {"promt": "a"}}, "promt"),
    ],
)
def test_bad_requests_have_openais_errors(server, changes, param):
    asked = {"model": "lm", "prompt": PROMPT, "max_tokens": 5, **changes}
    with pytest.raises(openai.BadRequestError) as error:
        server.client().completions.create(**asked)
    assert error.value.body["type"] == "invalid_request_error" and error.value.body["param"] == param


def test_unknown_models_and_missing_templates(server):
    client = server.client()
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="/etc/passwd", prompt="a")
    with pytest.raises(openai.BadRequestError, match="has no chat template"):
        client.chat.completions.create(model="lm", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.BadRequestError, match="does not generate"):
        client.completions.create(model="bert", prompt="a")
