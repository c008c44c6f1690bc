"""The command: text with every number, pictures, JSON, and a user's own matrices."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from headwise.cli.explain import app
from headwise.errors import UserError
from headwise.explain.attention import AttentionExample, build_story
from headwise.explain.source import load_shipped
from headwise.explain.story import render_text

TOPICS = ("attention", "positions", "mask")


@pytest.fixture(autouse=True)
def _plain_narrow_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def run(*arguments: str) -> None:
    app(list(arguments), result_action="return_value")


def test_attention_text_holds_the_numbers_of_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    run("attention")
    text = capsys.readouterr().out
    for shown in ("4 16 12", "0.063379 0.468311", "1.936621 6.683105 1.595068", "2.0 7.0 1.5", "1.863874 6.319371"):
        assert shown in text
    assert "\x1b" not in text  # not a terminal: no colours
    assert max(len(line) for line in text.splitlines()) <= 80


def test_on_a_terminal_weights_are_coloured() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=100, record=True, file=sys.stderr)
    with console.capture() as caught:
        console.print(render_text(build_story(load_shipped(AttentionExample, "attention.toml"))))
    assert "\x1b[" in caught.get()
    assert "48;2;" in caught.get()


def test_positions_text_shows_sin_1_and_the_failures(capsys: pytest.CaptureFixture[str]) -> None:
    run("positions", "--shift", "5")
    text = capsys.readouterr().out
    for shown in ("0.841471", "A shift by 5", "slow sine", "sigmoid", "integer", "1000.0000"):
        assert shown in text


def test_mask_text_shows_before_after_and_the_empty_row(capsys: pytest.CaptureFixture[str]) -> None:
    run("mask")
    text = capsys.readouterr().out
    for shown in ("−∞", "NaN NaN NaN NaN", "0.2500 0.2500 0.2500 0.2500", "Headwise"):
        assert shown in text


@pytest.mark.parametrize("topic", TOPICS)
def test_json_is_one_strict_object(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(topic, "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"not JSON: {constant}")

    assert isinstance(json.loads(capsys.readouterr().out, parse_constant=refuse), dict)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_picture_is_well_formed_and_has_the_same_numbers(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(topic, "--out", str(tmp_path / "x.svg"))
    text = capsys.readouterr().out
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    words = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    printed = {word for word in words if word.replace(".", "").isdigit() and len(word) > 4}
    assert printed
    assert all(word in text for word in printed)
    width = float(root.attrib["width"])
    assert all(0 <= float(node.attrib.get("x", 0)) <= width for node in root.iter())


def test_picture_as_png(tmp_path: Path) -> None:
    run("mask", "--json", "--out", str(tmp_path / "deep" / "x.png"))
    assert (tmp_path / "deep" / "x.png").read_bytes().startswith(b"\x89PNG")


def own(tmp_path: Path, **changes: str) -> str:
    entries = {
        "inputs": "[[1.5, -2], [0.25, 3]]",
        "query": "[[1], [0]]",
        "key": "[[0], [1]]",
        "value": "[[1, 2, 3], [4, 5, 6]]",
    } | changes
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in entries.items() if value))
    return str(path)


def test_custom_matrices_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("attention", "--file", own(tmp_path), "--json")
    result = json.loads(capsys.readouterr().out)
    inputs = np.array([[1.5, -2], [0.25, 3]])
    scores = np.outer(inputs[:, 0], inputs[:, 1])
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert np.allclose(result["unscaled"]["outputs"], weights @ inputs @ np.array([[1, 2, 3], [4, 5, 6]]))
    assert result["scaled"]["weights"] == result["unscaled"]["weights"]  # a head of width 1
    assert "rounded" not in result


def test_hostile_tokens_of_custom_matrices_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = own(tmp_path, tokens='["[bold]", "<b>&"]')
    run("attention", "--file", file, "--out", str(tmp_path / "x.svg"))
    assert "[bold]" in capsys.readouterr().out
    ElementTree.parse(tmp_path / "x.svg")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"query": "[[1], [0], [1]]"}, r"mine.toml: query: has 3 rows but needs 2, one for each column of inputs"),
        ({"key": "[[1, 1], [0, 0]]"}, r"key: has 2 columns but needs 1"),
        ({"value": "[[1, 2], [3]]"}, r"value: row 2 has 1 numbers but row 1 has 2"),
        ({"inputs": "[]"}, r"inputs: is empty"),
        ({"tokens": '["a"]'}, r"tokens: has 1 entries but needs 2"),
        ({"rounded": "[[1, 0]]"}, r"rounded: has 1 rows but needs 2"),
        ({"inputs": '[["a", 1]]'}, r"mine.toml: inputs.0.0: .*number"),
        ({"inputs": "[[nan, 1]]"}, r"inputs.0.0: .*finite"),
        ({"inputs": "[[" + "1, " * 13 + "]]"}, r"inputs: is 1×13; .* at most 12"),
        ({"keys": "[[1]]"}, r"keys: unknown key; did you mean key"),
        ({"key": ""}, r"key: field required"),
        ({"key": "[[1"}, r"mine.toml: not valid TOML"),
    ],
)
def test_an_invalid_file_is_refused_in_one_sentence(changes: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        run("attention", "--file", own(tmp_path, **changes))


def test_unreadable_files_and_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'tokens = ["\xe4"]')
    with pytest.raises(UserError, match="not UTF-8 text at byte 11"):
        run("mask", "--file", str(tmp_path / "latin.toml"))
    with pytest.raises(UserError, match="no such file"):
        run("mask", "--file", str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match=r"ends in '.gif'; known: .png, .svg"):
        run("mask", "--out", str(tmp_path / "x.gif"))
    with pytest.raises(UserError, match="--width 7: must be even"):
        run("positions", "--width", "7")


def test_explaining_needs_no_torch() -> None:
    script = (
        "import sys; from headwise.cli.explain import app; app(['mask'], result_action='return_value'); "
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
