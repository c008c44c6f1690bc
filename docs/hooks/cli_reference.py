"""The page of the command line, as cyclopts knows it: every command with its text, examples and options."""

from __future__ import annotations

import re

from headwise.cli.main import build_app

SECTION = re.compile(r"^### headwise (\S+)\n(.*?)(?=^### |\Z)", flags=re.S | re.M)


def render() -> str:
    """One section for each group of commands, one below it for each command."""
    app = build_app()
    groups: dict[str, list[str]] = {}
    for name in app:
        if not name.startswith("-"):
            groups.setdefault(app[name].group[0].name, []).append(name)
            if app[name].default_command is not None:
                app[name].help = None  # the whole docstring, instead of the line of `headwise --help`
    page = app.generate_docs(heading_level=2).replace(" -m mkdocs", "")  # cyclopts names commands by who runs
    sections = dict(SECTION.findall(page))
    text = ["# Command line", app.help, app.help_epilogue]
    for group, names in groups.items():
        text += [f"## {group}", *(f"### headwise {name}\n{sections[name]}" for name in names)]
    return "\n\n".join(text)
