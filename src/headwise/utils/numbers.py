"""Numbers as people write them in tables."""

from __future__ import annotations

import re
from math import isfinite

# A comma before three digits may separate thousands: such a number is refused, not guessed.
DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d{1,2}|\d{4,})")


def parse_decimal(text: str) -> float | None:
    """The finite number that a text is, with a decimal point or comma; None if it is none.

    >>> [parse_decimal(text) for text in ("3.5", "3,5", "-1e3", "1,234", "inf", "4 kg")]
    [3.5, 3.5, -1000.0, None, None, None]
    """
    text = text.strip()
    if match := DECIMAL_COMMA.fullmatch(text):
        text = f"{match[1]}.{match[2]}"
    try:
        number = float(text) if "_" not in text else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None
