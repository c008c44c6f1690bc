"""Files of recorded outcomes stand for runs with the same settings, and for no others."""

import json
from pathlib import Path

import pytest

from headwise.cli.main import main
from headwise.compare.cell import build_cells
from headwise.compare.config import SHIPPED, ComparisonConfig
from headwise.compare.records import Records
from headwise.compare.run import compare
from headwise.errors import UserError


@pytest.fixture(scope="module")
def file(config, runs, result, tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "small.json"
    Records().add(build_cells(config, runs)).write(path)
    return path


def test_a_table_is_printed_from_its_records(config, result, file, tmp_path):
    recorded = compare(config.select(seeds=[1]).replace(records=str(file)), tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    for name, arm in result.arms.items():
        ours, theirs = arm.outcomes[1], recorded.arms[name].outcomes[1]
        assert (ours.scores, ours.parameters, ours.steps) == (theirs.scores, theirs.parameters, theirs.steps)
        assert not ours.recorded and "torch" in theirs.recorded


def test_other_settings_are_not_recorded(config, file, tmp_path):
    records = Records.read(file)
    cells = list(build_cells(config, tmp_path))
    assert [bool(records.find(cell)) for cell in cells] == [True, True, False, False]  # seeds 1 and 2
    changed = config.replace(changes={"train": {"batch_size": 16}})
    assert not any(records.find(cell) for cell in build_cells(changed, tmp_path))
    other_evaluation = config.replace(evaluate={"language": "de"})
    assert not any(records.find(cell) for cell in build_cells(other_evaluation, tmp_path))


def test_a_run_measured_again_replaces_its_record(config, runs, file):
    again = Records.read(file).add(build_cells(config, runs))
    assert {name: len(entries) for name, entries in again.entries.items()} == {"post-norm-1": 1, "pre-1": 1}


def test_the_command_reads_and_writes_records(table, runs, result, tmp_path, capsys):
    file = tmp_path / "mine.json"
    command = ["compare", str(table), "--seeds", "1", "--records", str(file)]
    main([*command, "--runs", str(runs)])
    assert "recorded" not in capsys.readouterr().out and len(Records.read(file).entries) == 2
    main([*command, "--runs", str(tmp_path / "elsewhere")])
    assert "recorded, not trained here: 2 of 2 runs" in capsys.readouterr().out
    main([*command, "--runs", str(tmp_path / "elsewhere"), "--dry-run"])
    assert "2 runs, 0 of them to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as records of runs"),
        ('{"format": 9}', "its format is 9"),
        ('{"format": 1, "runs": [{"run": "a"}]}', "these are no records of runs"),
        ('{"format": 1, "experiment": {}, "runs": 3}', "these are no records of runs"),
        ("[]", "these are no records of runs"),
    ],
)
def test_damaged_records_are_named(content, message, tmp_path):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(UserError, match=message):
        Records.read(tmp_path / "r.json")


def test_shipped_records_fit_their_tables(tmp_path):
    """Every record that comes with Headwise has its cell in a table: a changed table must be measured again."""
    found: dict[Path, int] = {}
    for path in sorted(SHIPPED[1].glob("*.toml")):
        if "\nrecords = " in path.read_text():
            config = ComparisonConfig.read(path)
            records = Records.read(config.records)
            count = sum(records.find(cell) is not None for cell in build_cells(config, tmp_path))
            file = Path(config.records).resolve()
            found[file] = found.get(file, 0) + count
    assert set(found) == set((SHIPPED[1].parent / "records").resolve().glob("*.json"))
    for file, count in found.items():
        assert count == len(json.loads(file.read_text())["runs"]), file
