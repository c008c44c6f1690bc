"""The console of rich, for tables, trees and progress bars."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def make_console(**options: Any) -> Console:
    """A rich console with these options. Where NO_COLOR is set it prints plain text, without bold and dim: rich itself
    leaves these."""
    from rich.console import Console

    return Console(**options, color_system=None) if os.environ.get("NO_COLOR") else Console(**options)
