"""Routes under /api/, LibreTranslate's, and what describes them."""

import base64
import json
from io import BytesIO

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from PIL import Image

import headwise
from headwise.serve.errors import RequestError
from headwise.serve.limits import ServeLimits
from headwise.serve.pool import ModelPool, ModelSpec

QUICK = settings(
    max_examples=3, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def test_models_that_are_being_loaded_say_so(runs):
    pool = ModelPool([ModelSpec("reverse", runs / "reverse")], ServeLimits())
    for name in ("reverse", ""):
        with pytest.raises(RequestError, match="being loaded; try again") as refused:
            pool.find(name, "translate")
        assert refused.value.status == 503 and refused.value.wait


def test_nbest_translations_are_those_of_the_model(server, runs):
    found = server.post("/api/translate", {"text": ["abc", "hello"], "beams": 3, "nbest": 2, "alignments": True})
    expected = headwise.load(runs / "reverse").translate_nbest(["abc", "hello"], beams=3, nbest=2)
    for row, nbest in zip(found["outputs"], expected, strict=True):
        assert [each["text"] for each in row["outputs"]] == [each.text for each in nbest]
        assert [each["score"] for each in row["outputs"]] == pytest.approx([each.score for each in nbest], abs=1e-3)
        weights = row["alignment"]["weights"]
        assert all(sum(line) == pytest.approx(1, abs=1e-3) for line in weights)


def test_a_translation_is_streamed_in_pieces(server, runs):
    status, headers, content = server.ask("POST", "/api/translate", {"text": "abc", "stream": True, "beams": 1})
    events = [json.loads(line.removeprefix("data: ")) for line in content.decode().split("\n\n")[:-2]]
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert "".join(event["text"] for event in events) == headwise.load(runs / "reverse").translate(["abc"], beams=1)[0]


def test_texts_and_images_are_classified(server, runs):
    found = server.post("/api/classify", {"model": "polar", "text": ["a fine film", "film"]})["outputs"]
    expected = headwise.load(runs / "polar").classify(["a fine film", "film"])
    assert [row["probabilities"] for row in found] == [pytest.approx(row, abs=1e-5) for row in expected]
    image = Image.new("L", (9, 9), 70)
    content = BytesIO()
    image.save(content, "png")
    text = base64.b64encode(content.getvalue()).decode()
    (row,) = server.post("/api/classify", {"model": "seen", "image": text})["outputs"]
    assert row["probabilities"] == pytest.approx(headwise.load(runs / "seen").classify_images([image])[0], abs=1e-5)


def test_masks_words_and_maps(server, runs):
    (row,) = server.post("/api/fill-mask", {"text": "a [MASK] film", "count": 2})["outputs"]
    assert len(row["masks"]) == 1 and len(row["masks"][0]) == 2
    (maps,) = server.post("/api/attention", {"model": "lm", "text": "to be", "layer": 1})["outputs"]
    weights = headwise.load(runs / "lm").inspect("to be").weights["decoder"][1]
    assert maps["weights"][0][0] == [pytest.approx(row.tolist(), abs=1e-4) for row in weights[0]]


def test_libretranslate(server, runs):
    trained = headwise.load(runs / "reverse")
    asked = {"q": "abc", "source": "en", "target": "ne", "format": "text"}
    assert server.post("/translate", asked) == {"translatedText": trained.translate(["abc"])[0]}
    several = server.post("/translate", asked | {"q": ["abc", "hello"], "source": "auto", "alternatives": 1})
    assert len(several["translatedText"]) == 2 and [len(row) for row in several["alternatives"]] == [1, 1]
    status, _, content = server.ask(
        "POST", "/translate", b"q=abc&source=en&target=ne", Content_Type="application/x-www-form-urlencoded"
    )
    assert status == 200 and json.loads(content) == server.post("/translate", asked)
    assert json.loads(server.ask("GET", "/languages")[2]) == [{"code": "en", "name": "en", "targets": ["ne"]}]
    status, _, content = server.ask("POST", "/translate", asked | {"target": "de"})
    assert status == 400 and list(json.loads(content)) == ["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b'{"text": "\\ud800"}',
        b'{"text": "a\\u0000b"}',
        b'{"text": NaN}',
        b'{"text": 1e999}',
        b'{"text": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
        b'{"a":' * 30_000,
        json.dumps({f"k{number}": 0 for number in range(20_000)}).encode(),
        b'{"text": "a"}{}',
        b"[]",
        b"",
        b" " * (256 * 1024 + 1),
        b'{"text": "a", "model": "lm", "layer": -1}',
        json.dumps({"text": "a" * 100_001}).encode(),
        json.dumps({"text": ["a"] * 65}).encode(),
    ],
)
@pytest.mark.parametrize("path", ["/api/generate", "/v1/completions", "/translate"])
def test_strange_bodies_are_refused_in_a_sentence(server, path, body):
    status, headers, content = server.ask("POST", path, body)
    assert 400 <= status < 500 and headers["content-type"] == "application/json"
    assert json.loads(content)["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "/v1/completions", 405), ("POST", "/health", 405), ("GET", "/static/../x", 404)],
)
def test_other_paths_and_methods(server, method, path, status):
    assert server.ask(method, path, b"{}" if method == "POST" else None)[0] == status


def test_damaged_images_are_refused(server):
    for image in ("?", "data:text/html,x", base64.b64encode(b"GIF89a").decode(), "A" * 40):
        status, _, content = server.ask("POST", "/api/classify", {"model": "seen", "image": image})
        assert status == 400 and json.loads(content)["error"].startswith("image: ")


def test_no_request_breaks_the_server(server):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @QUICK
        @given(operation.as_strategy())
        def ask(case):
            assert case.call().status_code < 500, case.as_curl_command()

        ask()


def test_the_examples_of_the_description_are_answered(server):
    described = json.loads(server.ask("GET", "/openapi.json")[2])
    served = {"/api/generate", "/api/translate", "/api/fill-mask", "/api/score", "/api/embed", "/api/complete",
              "/api/attention", "/api/classify"}  # fmt: skip
    for path in served:
        server.post(path, described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"])


def test_measurements(server):
    server.post("/api/generate", {"text": "a", "max_tokens": 4})
    text = server.ask("GET", "/metrics")[2].decode()
    for name in ("headwise_requests_total", "headwise_request_seconds_bucket", "headwise_worker_waiting",
                 "headwise_worker_memory", 'headwise_completion_tokens_total{model="lm"}'):  # fmt: skip
        assert name in text
