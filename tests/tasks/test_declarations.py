"""What tasks declare of themselves, on which commands, studio, fine-tuning and auto-fit rely."""

import re
from importlib import resources
from typing import get_args

import pytest

from headwise.autofit.baselines import IMAGE_BASELINES, MEAN_BOXES, NGRAM, TEXT_BASELINES
from headwise.autofit.roles import Shape
from headwise.cli.main import COMMANDS
from headwise.studio.run_registry import describe_task
from headwise.tasks.tables import TASKS, task_config

KINDS = TASKS.names
KNOWN = {name for group in COMMANDS.values() for name in group}


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_of_a_task_exists(kind):
    assert task_config(kind).command in KNOWN


@pytest.mark.parametrize("kind", KINDS)
def test_declarations_agree_with_each_other(kind):
    config = task_config(kind)
    assert not (config.confusion and not config.labelled)
    assert not (config.labelled and config.unpaired)
    assert not (config.one_to_one and not config.labelled)
    assert config().transduces == (kind == "transduce")


@pytest.mark.parametrize("shape", get_args(Shape))
def test_fit_finds_one_task_for_each_shape_of_data(shape):
    assert len([kind for kind in KINDS if task_config(kind).fits == shape]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_baselines_of_a_task_exist(kind):
    config = task_config(kind)
    known = IMAGE_BASELINES if config.reads == "images" else TEXT_BASELINES
    assert set(config.baselines) <= {*known, NGRAM, MEAN_BOXES}
    assert bool(config.baselines) == bool(config.fits)


@pytest.mark.parametrize("kind", [*KINDS, "", "of a plug-in"])
def test_the_studio_takes_a_page_from_the_declaration(kind):
    told = describe_task(kind)
    if kind in TASKS:
        assert (told["input"], told["output"]) == (task_config(kind).reads, task_config(kind).writes)
    else:
        assert told["input"] == "texts" and bool(told["output"]) == told["transduces"] == (kind == "")


def test_no_page_of_the_studio_lists_tasks():
    pages = resources.files("headwise.studio").joinpath("static", "views")
    quoted = re.compile("|".join(f"[\"']{kind}[\"']" for kind in ("transduce", "language-model", "denoise", "masked")))
    assert not [page.name for page in pages.iterdir() if quoted.search(page.read_text("utf-8"))]
