"""`headwise embed`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import Json, warnings_to_stderr
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.embeddings.vectors import Found, Vectors

Action = Literal["nearest", "analogy", "export"]
NEEDS = {"nearest": "a word", "analogy": "three words, such as king man woman", "export": "one file to write"}
TAKES = {"nearest": 1, "analogy": 3, "export": 1}


def embed(
    vectors: Path,
    action: Action,
    /,
    *words: str,
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="How many words to show.")] = 10,
    json_: Json = False,
) -> None:
    """Ask word vectors for the nearest words or an analogy, or write them in word2vec's text format.

    The analogy of king, man and woman is king - man + woman.

    For example:

        headwise embed runs/words nearest king --count 5
        headwise embed runs/words analogy king man woman
        headwise embed runs/words export vectors.txt
        headwise embed vectors.txt nearest king

    Parameters
    ----------
    vectors
        A run, or a text file of word2vec (.gz too).
    action
        What to do.
    words
        The words to ask for, or the file to write.
    """
    warnings_to_stderr()
    if len(words) != TAKES[action]:
        raise UserError(f"embed {action}: takes {NEEDS[action]}, and there are {len(words)} words")
    from headwise.embeddings.vectors import Vectors

    known = Vectors.of(vectors)
    if action == "export":
        print(known.save(words[0]))
        return
    found = asked(known, action, words, count)
    if json_:
        print(json.dumps([{"word": word, "cosine": cosine} for word, cosine in found], ensure_ascii=False, indent=1))
    else:
        for word, cosine in found:
            print(f"{cosine:.3f}  {word}")


def asked(vectors: Vectors, action: Action, words: tuple[str, ...], count: int) -> Found:
    return vectors.nearest(*words, count=count) if action == "nearest" else vectors.analogy(*words, count=count)
