"""Spectra of attention: what they are where it is known, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import headwise
from headwise import UserError
from headwise.cli.main import main
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.spectrum import RELATIVE_INDICES, compute_spectrum
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

LETTERS = Characters("abcdefgh ")


def loaded(model: dict[str, Any]) -> TrainedModel:
    torch.manual_seed(0)
    tables = {"task": {"kind": "masked", "context": 18}, "data": {"train": "x"}, "model": model, "train": {"steps": 1}}
    experiment, sides = parse_experiment(tables), Tokenisers(LETTERS, LETTERS)
    return TrainedModel(experiment.create_task(sides).build(experiment.model).eval(), sides, experiment)


def test_a_uniform_map_has_rank_one() -> None:
    run = loaded({"kind": "bert-tiny"})
    for layer in run.model.encoder.stack.layers:
        torch.nn.init.zeros_(layer.parts[0].qkv.project.weight[:64])  # queries and keys
    spectrum = compute_spectrum(run, "abcdefgh" * 2)  # 18 tokens with its marks
    assert spectrum.curves.shape == (2, 4, len(RELATIVE_INDICES)) and (spectrum.texts, spectrum.tokens) == (1, 16)
    assert spectrum.curves[..., RELATIVE_INDICES >= 1 / 18] == pytest.approx(1.0)


def test_an_identity_map_has_equal_singular_values() -> None:
    alone = {"kind": "attention", "score_mods": [{"kind": "window", "left": 0, "right": 0}]}
    spectrum = compute_spectrum(loaded({"kind": "bert-tiny", "mixer": alone}), "abcd bad cab")
    assert spectrum.curves == pytest.approx(np.broadcast_to(RELATIVE_INDICES, (2, 4, len(RELATIVE_INDICES))))
    assert spectrum.at_quarter == pytest.approx(0.25)


def test_long_texts_are_split_into_segments_of_the_context() -> None:
    run = loaded({"kind": "bert-tiny"})
    spectrum = compute_spectrum(run, "abcdefgh" * 5)
    assert (spectrum.texts, spectrum.tokens) == (3, 40)  # 16 + 16 + 8
    assert compute_spectrum(run, "abcdefgh" * 5, most=2).tokens == 32


def test_approximate_mixers_use_the_exact_map() -> None:
    run = loaded({"kind": "linformer-tiny"})
    full = loaded({"kind": "bert-tiny", "token_types": 0})
    full.model.load_state_dict(run.model.state_dict(), strict=False)
    first, approximated = compute_spectrum(full, "abcdefgh").curves[0], compute_spectrum(run, "abcdefgh").curves[0]
    assert first == pytest.approx(approximated, abs=1e-5)  # layers above read what the first one made


def test_a_run_without_an_encoder_is_refused() -> None:
    gpt = headwise.build("gpt2-tiny", vocab=LETTERS.size)
    with pytest.raises(UserError, match="--spectrum: looks at encoders, and this run has none"):
        compute_spectrum(
            TrainedModel(gpt, Tokenisers(LETTERS, LETTERS), loaded({"kind": "bert-tiny"}).experiment), "abc"
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spectrum")
    (folder / "texts.txt").write_text("\n".join(["a bad cab", "feed a bee", "he had a bad egg", "a cafe"] * 6))
    tables = {
        "name": "letters", "task": {"kind": "masked", "context": 16}, "tokeniser": "characters", "model": "bert-tiny",
        "data": {"train": str(folder / "texts.txt"), "format": "lines", "valid_size": 4, "cache": str(folder)},
        "train": {"steps": 2, "batch_size": 4, "threads": 1},
    }  # fmt: skip
    return train_experiment(parse_experiment(tables), folder / "runs")[0].path


def command(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def test_the_command_prints_a_table_and_draws(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("inspect", run, "--spectrum", "--out", tmp_path / "spectrum.svg")
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["layer", *(word for n in "1234" for word in ("head", n)), "mean"] and len(rows) == 2
    shares = [[float(cell) for cell in row.split()[1:]] for row in rows]
    assert all(25 <= share <= 100 for row in shares for share in row)
    assert ElementTree.parse(tmp_path / "spectrum.svg").getroot().tag.endswith("svg")
    command("inspect", run, "a bad egg", "--spectrum", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (
        printed["texts"] == 1
        and printed["tokens"] == 9
        and np.shape(printed["curves"]) == (2, 4, len(RELATIVE_INDICES))
    )
    assert np.diff(printed["curves"]).min() >= 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--spectrum", "--head", "2"), "--spectrum: shows all layers and heads"),
        (("--spectrum", "--out", "x.html"), "x.html: the file ends in '.html'"),
        (("--json",), "--json: attention is drawn, not printed"),
    ],
)
def test_runs_without_encoder_attention_are_refused(
    run: Path, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command("inspect", run, "a bad egg", *arguments)
    assert sentence in capsys.readouterr().err
