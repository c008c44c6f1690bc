"""Two runs' cross-attention for one text in one picture."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from headwise.cli.main import main
from headwise.errors import UserError
from headwise.inspect import Maps, compare_alignments, draw_alignment
from headwise.inspect.svg import Grid, Rect, Text


def maps(layers: int, heads: int, target: str) -> Maps:
    scores = np.exp(np.random.default_rng(layers).normal(size=(layers, heads, len(target), 3)))
    return Maps({"cross": scores / scores.sum(-1, keepdims=True)}, tuple("abc"), tuple(target))


def test_two_maps_are_drawn_side_by_side_on_one_scale() -> None:
    left, right = maps(1, 1, "AB"), Maps({"cross": np.eye(3)[None, None]}, tuple("abc"), tuple("ABC"))
    drawing = compare_alignments(left, right, ("first", "second"))
    first, second = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
    assert first.y == second.y and first.x + 3 * first.cell < second.x
    assert first.pixels.shape[:2] == (2, 3) and second.pixels.shape[:2] == (3, 3)
    alone = draw_alignment(left.matrix("cross", -1), left.source_tokens, left.target_tokens, "first")
    (single,) = [shape for shape in alone.shapes if isinstance(shape, Grid)]
    assert first.pixels.sum() > single.pixels.sum()  # lighter: the scale ends at the other's weight of 1
    titles = {shape.text: shape.x for shape in drawing.shapes if isinstance(shape, Text)}
    assert titles["first"] < second.x - 60 and first.x + 3 * first.cell < titles["second"]
    assert all(0 <= shape.x <= drawing.width for shape in drawing.shapes if isinstance(shape, Text | Rect))


def test_heads_are_averaged_and_layers_selected() -> None:
    left, right = maps(3, 4, "AB"), maps(1, 1, "AB")
    last, chosen = compare_alignments(left, right, ("l", "r")), compare_alignments(left, right, ("l", "r"), (0, -1))

    def darkest(drawing) -> list[int]:
        (grid, _) = [shape for shape in drawing.shapes if isinstance(shape, Grid)]
        return grid.pixels.sum(-1).argmin(1).tolist()

    assert darkest(last) == left.weights["cross"][2].mean(0).argmax(1).tolist()
    assert darkest(chosen) == left.weights["cross"][0].mean(0).argmax(1).tolist()


def test_missing_layers_are_refused_by_name() -> None:
    none = Maps({"encoder": np.full((1, 1, 3, 3), 1 / 3)}, tuple("abc"), ("A",))
    with pytest.raises(UserError, match="old: there is no cross-attention to draw"):
        compare_alignments(maps(1, 1, "A"), none, ("new", "old"))
    with pytest.raises(UserError, match="new: there is no layer 3; it has 2"):
        compare_alignments(maps(2, 1, "A"), maps(1, 1, "A"), ("new", "old"), (2, -1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A recurrent model with attention and a Transformer, both hardly trained."""
    from headwise.experiment.config import Experiment
    from headwise.experiment.run import train_experiment

    folder = tmp_path_factory.mktemp("beside")
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in ("ab", "bca", "cab")))
    paths = {}
    for kind in ("bahdanau", "transformer"):
        file = folder / f"{kind}.toml"
        file.write_text(
            f'[data]\ntrain = "{folder}/pairs.tsv"\ncache = "{folder}/cache"\nvalid_size = 1\n'
            f'[tokeniser]\nkind = "characters"\ntarget = {{kind = "words"}}\n[model]\nkind = "{kind}-tiny"\n'
            "[train]\nsteps = 1\nbatch_size = 2\nthreads = 1\n"
        )
        paths[kind] = train_experiment(Experiment.read(file), folder / "runs")[0].path
    return paths


def command(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def test_the_command_draws_two_runs(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "both.svg"
    command("inspect", runs["bahdanau"], "abc", "--target", "A B", "--beside", runs["transformer"], "--out", out)
    assert capsys.readouterr().out == f"{out}\n"
    words = [node.text for node in ElementTree.parse(out).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("a") == words.count("B") == 2
    assert {"bahdanau", "transformer"} <= set(words)


def test_options_of_a_single_run_are_refused_for_two(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["inspect", runs["bahdanau"], "abc", "--beside", runs["transformer"], "--out"]
    with pytest.raises(SystemExit, match="2"):
        command(*both, tmp_path / "x.html")
    assert "x.html: the file ends in '.html'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        command(*both, tmp_path / "x.svg", "--head", 2)
    assert "leave out --view, --kind and --head" in capsys.readouterr().err
