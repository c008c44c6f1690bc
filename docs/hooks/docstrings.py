"""A griffe extension that turns the docstrings of Headwise into Markdown.

They are plain text with indented examples, doctests and equations. Markdown reads `>>>` as a quotation, `<pad>` as
HTML, `[a][b]` as a link and `2*a*b` as emphasis; here doctests become code blocks and such characters are escaped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

_CODE_SPAN = re.compile(r"(`[^`]+`)")
_MARKUP = re.compile(r"([\[\]<*]|__)")
_COMMENT = re.compile(r"  # (?!type: |noqa|fmt: )(.*)$")
_LIST_ITEM = re.compile(r"(\s*[*-] )(.*)", flags=re.S)


def to_markdown(text: str) -> str:
    """The Markdown of a docstring.

    >>> to_markdown("Sum of a[i][j].\\n>>> 1 + 1\\n2").splitlines()
    ['Sum of a\\\\[i\\\\]\\\\[j\\\\].', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    blank, in_doctest, in_code = True, False, False
    for line in text.splitlines():
        if in_doctest and not line.strip():
            lines += ["```", ""]
            in_doctest = False
        elif not in_doctest and line.startswith(">>> "):
            lines += ["", "```pycon", line]
            in_doctest = True
        elif in_doctest:
            lines.append(line)
        else:
            in_code = line.startswith("    ") and (blank or in_code)
            lines.append(line if in_code or not line.strip() else escape(line))
        blank = not line.strip()
    if in_doctest:
        lines += ["```", ""]
    return "\n".join(lines)


def escape(line: str) -> str:
    """A line of prose whose brackets, asterisks and double underscores mean themselves; code spans stay as they are.

    >>> escape("* of `a[0]`, <pad> and 2*a")
    '* of `a[0]`, &lt;pad> and 2\\\\*a'
    """
    item = _LIST_ITEM.fullmatch(line)
    marker, rest = item.groups() if item else ("", line)
    parts = _CODE_SPAN.split(rest)
    parts[::2] = [_MARKUP.sub(_escaped, prose) for prose in parts[::2]]
    return marker + "".join(parts)


def _escaped(match: re.Match[str]) -> str:
    return {"<": "&lt;", "__": r"\_\_"}.get(match[0], "\\" + match[0])


def find_comment(attribute: Attribute) -> str:
    """The comment beside a field of a class, or the comment above it: what a docstring would say."""
    if attribute.lineno is None or not isinstance(attribute.filepath, Path):
        return ""
    lines = attribute.lines_collection[attribute.filepath]
    last = attribute.endlineno or attribute.lineno
    beside = _COMMENT.search(lines[last - 1])
    if beside:
        return beside[1]
    above: list[str] = []
    for line in reversed(lines[: attribute.lineno - 1]):
        if not (text := line.strip()).startswith("#"):
            break
        above.insert(0, text.lstrip("# "))
    return " ".join(above)


class MarkdownDocstrings(Extension):
    """Rewrites each docstring when griffe has read its object; a field without one has its comment."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if isinstance(obj, Attribute) and obj.docstring is None and obj.parent is not None and obj.parent.is_class:
            comment = find_comment(obj)
            obj.docstring = Docstring(comment, lineno=obj.lineno, parent=obj) if comment else None
        if obj.docstring is not None:
            obj.docstring = Docstring(
                to_markdown(obj.docstring.value), lineno=obj.docstring.lineno, endlineno=obj.docstring.endlineno,
                parent=obj, parser=obj.docstring.parser, parser_options=obj.docstring.parser_options,
            )  # fmt: skip
