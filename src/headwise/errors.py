"""The one exception for a user's mistake, and the "did you mean" that goes with it."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Something the user can put right.

    The message is one sentence that names the file, the line or the key and says what to do.
    The command line prints it without a traceback and exits with status 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the nearest valid names, or all of them.

    >>> nearest("widht", ["width", "depth"])
    'did you mean width?'
    >>> nearest("zzz", ["width", "depth"])
    'known: depth, width'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
