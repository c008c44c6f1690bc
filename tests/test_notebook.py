"""The notebook of the documentation runs, and its values show themselves."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The executed cells by id."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.id: cell for cell in notebook.cells}


def read_html(cell) -> list[str]:
    return [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


def test_nothing_is_printed_to_stderr(cells):
    streams = [
        output for cell in cells.values() for output in cell.get("outputs", ()) if output.output_type == "stream"
    ]
    assert streams == []


def test_a_model_is_shown_as_a_tree_with_shapes(cells):
    (tree,) = read_html(cells["build"])
    assert "<details" in tree and "100 × " in tree and " parameters" in tree


def test_training_shows_one_bar_and_the_run_its_curves(cells):
    bar, run = read_html(cells["train"])
    assert '<progress value="1.0000"' in bar and "step 200" in bar and "valid" in bar
    assert run.count("<svg") == 2 and "backwards" in run


def test_attention_maps_are_frames_of_their_own(cells):
    (first,), (second,) = read_html(cells["inspect"]), read_html(cells["second"])
    assert first.startswith("<iframe") and second.startswith("<iframe") and first != second


def test_the_notebook_is_stored_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
