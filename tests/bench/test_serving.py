"""Servers under load, with real processes over a tiny model."""

import asyncio
import json
from statistics import mean, pstdev

import pytest
import torch

import headwise
from headwise.bench.serve_arms import build_own_body
from headwise.bench.serve_load import AnswerError, Load, Measured, draw_arrivals, find_text, run_load
from headwise.bench.serve_offline import run_offline
from headwise.bench.serving import Point, find_percentile
from headwise.bench.serving_report import list_ratios
from headwise.cli.bench import app
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.manual_seed(1)
    task = {"kind": "language-model", "context": 64}
    given = {"task": task, "model": "gpt-tiny", "data": {"train": "none.tsv"}, "train": {"steps": 1}}
    experiment, letters = Experiment.model_validate(given), Characters("abcdefgh ")
    tokenisers = Tokenisers(letters, letters)
    trained = TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)
    return trained.save(tmp_path_factory.mktemp("serving") / "lm").path


def test_servers_give_the_same_texts_and_are_timed(run, capsys, tmp_path):
    """Ours, and transformers behind FastAPI."""
    sizes = "--clients 1 3 --rounds 1 --rates 50 100 --arrivals 4 --prompt 4 --length 6 --repeats 1"
    words = ["serve", str(run), *sizes.split(), "--out", str(tmp_path / "s.svg"), "--json"]
    app([*words, "--engines", "headwise", "headwise-ctranslate2"], result_action="return_value")
    found = json.loads(capsys.readouterr().out)
    named = {each["engine"]: each for each in found["results"]}
    assert named["headwise-ctranslate2"]["missing"] == "does not generate"
    assert [len(named[name]["points"]) for name in ("headwise", "naive")] == [4, 4]
    for result in named.values():
        for point in result["points"]:
            assert point["errors"] == 0 and point["agreement"] == 1
            assert 0 < point["first_token_p50"] <= point["latency_p50"] <= point["latency_p99"]
            assert point["tokens_per_second"] == pytest.approx(6 * point["requests_per_second"])
        assert result["missing"] or min(result["memory"]) > 10e6
    assert "tokens/s" in (tmp_path / "s.svg").read_text()


def test_the_engine_without_http_writes_what_it_writes_alone(run):
    trained = headwise.load(run)
    bodies = [build_own_body(text, tokens, False) for text, tokens in (("abc", 9), ("d", 4), ("ef gh", 6))]
    measured = run_offline(trained, Load(0, "", bodies, clients=2))
    settings = {"beams": 1, "max_ratio": 0.0}
    for body, text, first, latency in zip(bodies, measured.texts, measured.first, measured.latencies, strict=True):
        length = {"min_length": body["min_length"], "max_extra": body["max_tokens"], "max_length": body["max_tokens"]}
        assert trained.continue_prompts([body["text"]], **settings, **length)[0][0].text == text
        assert 0 < first < latency <= measured.seconds


def test_the_command_refuses_what_it_cannot_measure(run, tmp_path):
    with pytest.raises(UserError, match="did you mean litserve"):
        app(["serve", str(run), "--engines", "litserv"], result_action="return_value")
    with pytest.raises(UserError, match="there is no such folder"):
        app(["serve", str(tmp_path / "none")], result_action="return_value")


def test_an_open_loop_does_not_wait_for_answers():
    """Eight requests that each take 0.2 s are due within 0.1 s: answered at the same time, and counted from then."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.2)
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{"text": "a"}')
        writer.close()

    async def run_both() -> tuple[Measured, Measured]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            open_loop = Load(port, "/", [{}] * 8, rate=80.0)
            return await run_load(open_loop), await run_load(Load(port, "/", [{}] * 8, clients=1))

    opened, closed = asyncio.run(run_both())
    assert opened.texts == closed.texts == ["a"] * 8 and not opened.errors + closed.errors
    assert min(opened.latencies) >= 0.2 and closed.seconds >= 1.6 > opened.seconds


def test_failures_are_counted_and_not_timed():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\nconnection: close\r\n\r\nfull")
        writer.close()

    async def run_refused() -> Measured:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            return await run_load(Load(server.sockets[0].getsockname()[1], "/", [{}] * 3, clients=2))

    measured = asyncio.run(run_refused())
    assert measured.errors == ["status 503: full"] * 3 and measured.latencies == [0.0] * 3
    assert Point(2, 0.0, 3, [measured]).requests_per_second == 0
    with pytest.raises(AnswerError, match="the worker ended"):
        find_text({"error": {"message": "the worker ended"}})


def test_arrivals_are_a_poisson_process():
    due = list(draw_arrivals(Load(0, "", [{}] * 5000, rate=20.0, seed=1)))
    gaps = [after - before for before, after in zip([0.0, *due], due, strict=False)]
    assert (
        mean(gaps) == pytest.approx(1 / 20, rel=0.05) == pstdev(gaps)
    )  # of an exponential distribution both are equal


def test_points_are_medians_over_repeats():
    repeats = [Measured([1.0, 2.0], [0.5, 1.0], ["a", "b"], [], seconds, 0.0, 4.0, 20) for seconds in (1.0, 2.0, 9.0)]
    point = Point(2, 0.0, 2, repeats)
    assert point.requests_per_second == 1.0 and point.tokens_per_second == 10.0 and point.cpu == 2.0
    assert point.percentile(0.5) == 2.0 and point.percentile(0.0, "first") == 0.5
    assert find_percentile(range(100), 0.99) == 99 and list_ratios([]) == []
    other = Point(2, 0.0, 2, [Measured([1.0, 2.0], [], ["a ", "c"])] * 3)
    assert point.agreement(other) == 0.5
