"""Makes the shared checks importable, with pytest's readable assertions, whatever the import mode."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("pairwise")
