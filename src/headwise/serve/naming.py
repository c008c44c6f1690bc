"""Names of models on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from headwise.errors import UserError, nearest
from headwise.serve.pool import ModelSpec

NAME = re.compile(r"[\w][\w.+:-]{0,99}", re.ASCII)


def parse_specs(
    runs: Sequence[str],
    languages: Sequence[str],
    engine: str,
    checkpoint: str,
    device: str,
    threads: int,
    chat_template: Path | None,
) -> tuple[ModelSpec, ...]:
    """The models that the words RUN and NAME=RUN name."""
    if not runs:
        raise UserError("headwise serve: name a run, as in: headwise serve runs/demo")
    pairs = parse_languages(languages)
    specs: dict[str, ModelSpec] = {}
    for word in runs:
        name, path = split_name(word)
        if not path.exists():
            raise UserError(f"{path}: there is no such run or file; name one (see `headwise runs`)")
        if name in specs:
            raise UserError(f"{word}: there is already a model called {name}; give another name, as in NAME={path}")
        spec = ModelSpec(name, path, engine, checkpoint, device, threads, chat_template)
        specs[name] = spec if name not in pairs else ModelSpec(**{**vars(spec), "languages": pairs.pop(name)})
    if pairs:
        unknown = next(iter(pairs))
        raise UserError(f"--languages {unknown}=...: no model has this name; {nearest(unknown, specs)}")
    return tuple(specs.values())


def split_name(word: str) -> tuple[str, Path]:
    """Name and path of a word; a run whose name clients could not write has hyphens for other signs.

    >>> split_name("speller=runs/codespell")[0], split_name("runs/my mails")[0], split_name("tiny.gguf")[0]
    ('speller', 'my-mails', 'tiny')
    """
    name, sign, rest = word.partition("=")
    if sign and not Path(word).exists():
        path = Path(rest)
    else:
        path = Path(word)
        name = re.sub(r"[^\w.+:-]+", "-", path.resolve().name.removesuffix(".gguf"), flags=re.ASCII).strip("-")[:100]
    if not NAME.fullmatch(name):
        raise UserError(f"{word}: the name {name!r} has other signs than letters, digits and . + : - _; use NAME=RUN")
    return name, path


def parse_languages(words: Sequence[str]) -> dict[str, tuple[str, str]]:
    """NAME=SOURCE:TARGET by name.

    >>> parse_languages(["demo=en:de"])
    {'demo': ('en', 'de')}
    """
    found = {}
    for word in words:
        match = re.fullmatch(r"([^=]+)=([\w-]{1,20}):([\w-]{1,20})", word)
        if match is None:
            raise UserError(f"--languages {word}: is not NAME=SOURCE:TARGET, as in demo=en:de")
        found[match[1]] = (match[2], match[3])
    return found
