import json
import subprocess
import sys
from pathlib import Path


def test_killed_runs_end_with_the_same_bits():
    """Nine kills, one at each stage of a save, and three at random moments; see benchmarks/kills.py."""
    script = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    command = [sys.executable, str(script), "--kills", "12", "--inside", "9", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["kills"], found["inside"], found["loadable"]) == (12, 9, 12)
    assert len(found["stages"]) == 10
    assert found["identical"] == found["runs"] >= 1
