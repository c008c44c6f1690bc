"""Requests as a worker prepares them."""

import pytest

import headwise
from headwise.errors import UserError
from headwise.inference.backends import choose_backend
from headwise.serve.generation import GenerationJob


def build_job(trained, **settings) -> GenerationJob:
    switches = {"nbest": 1, "top_logprobs": 0, "logprobs": False, "echo": False, "echo_text": False, "stream": False}
    settings = {"max_ratio": 0.0, "max_extra": 12, "max_length": 12, **settings}
    return GenerationJob(
        trained, {"inputs": [{"text": "to be"}], "settings": settings, "max_tokens": 12, **switches}, None, 0
    )


def test_what_an_engine_does_not_do_is_refused_and_not_ignored(runs):
    native = headwise.load(runs / "reverse")
    engine = choose_backend(native, "ctranslate2")
    refused = (
        {"stop": ["a"]},
        {"repetition_penalty": 2.0},
        {"no_repeat_ngram_size": 2},
        {"beams": 2, "coverage_penalty": 0.5},
    )
    for settings in refused:
        assert build_job(native, **settings).requests
        with pytest.raises(UserError, match="runs on CTranslate2: it has no"):
            build_job(engine, **settings)
