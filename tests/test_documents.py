"""What the documents say holds."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_python_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    outcome = doctest.testfile(str(ROOT / "docs/python.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 15 and outcome.failed == 0


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("file", sorted(ROOT.glob("experiments/*.toml")), ids=lambda path: path.name)
def test_experiments_are_valid(file):
    from headwise.config.experiment import Experiment

    assert Experiment.read(file).name == file.stem
