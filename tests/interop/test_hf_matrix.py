"""docs/hugging-face.md is what the tables of architectures say."""

from pathlib import Path

import transformers

from headwise.interop.hf import ARCHITECTURES, load_architecture
from headwise.interop.hf.matrix import COLUMNS, TESTED, build_row, render_page


def test_the_page_is_generated() -> None:
    """If it is not: python -m headwise.interop.hf.matrix"""
    page = Path(__file__).parents[2] / "docs" / "hugging-face.md"
    assert page.read_text("utf-8") == render_page()


def test_the_version_is_the_installed_one() -> None:
    assert transformers.__version__.startswith(f"{TESTED}.")


def test_every_task_of_every_architecture_has_a_column() -> None:
    tasks = {task for name in ARCHITECTURES for task in load_architecture(name).classes.values()}
    assert tasks <= {task for names in COLUMNS.values() for task in names}


def test_cells_follow_the_classes() -> None:
    assert build_row("gpt2") == ["`gpt2`", "`gpt2`", "yes", "yes", "yes", *[""] * 7, "`tokenizer.json`"]
    assert build_row("bert")[5:9] == ["yes"] * 4 and build_row("vit")[-1] == "`preprocessor_config.json`"
