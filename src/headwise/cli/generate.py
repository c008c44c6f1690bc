"""`headwise generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Json, Seed, Threads, TopK, TopP, With, chunks, opened

if TYPE_CHECKING:
    from headwise.decode.hypothesis import Hypothesis
    from headwise.text.base import Tokeniser

POSITIVE = validators.Number(gte=1)
UNFINISHED = "\ufffd"  # what the first bytes of a character are decoded to


def generate(
    run: Path,
    *prompts: str,
    file: File = None,
    length: Annotated[int, Parameter(validator=POSITIVE, help="Write at most this many tokens.")] = 200,
    temperature: Annotated[float, Parameter(help="Draw from P^(1/t); 0 takes the most probable token.")] = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    samples: Annotated[int, Parameter(validator=POSITIVE, help="Ways to go on with each prompt.")] = 1,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Go on with prompts, with a language model.

    The prompt is printed with what follows it; several texts have a line of three dashes between them. An empty prompt
    "" begins a new text. Prompts are arguments, lines of --file, or lines of stdin; on a terminal without any of these
    it asks.

    For example:

        headwise generate runs/shakespeare-lstm "To be" --length 400
        headwise generate runs/shakespeare-ngram "ROMEO:" --temperature 1 --top-p 0.9 --seed 7
        headwise generate runs/shakespeare-lstm "" --samples 5 --json

    Parameters
    ----------
    run
        A run folder of a language model.
    prompts
        How texts begin, each in quotes.
    """
    loaded = opened(run, checkpoint, device, threads, with_)
    loaded.able("language-model")
    from headwise.decode.driver import decode, stream
    from headwise.tasks.base import device_of

    given = {"top_k": top_k, "top_p": top_p, "seed": seed}
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    config = loaded.decoding(
        beams=1, nbest=samples, temperature=temperature, max_ratio=0, extra=length, max_length=length, **settings
    )
    tokeniser, where = loaded.tokenisers.target, device_of(loaded.model)
    live = samples == 1 and not json_ and sys.stdout.isatty()
    marks = chain([""], repeat("---\n"))
    for chunk in chunks(prompts, file):
        ids = tokeniser.encode_batch(chunk)
        if live:
            for prompt in ids:
                _show(_growing(tokeniser, prompt, stream(loaded.model, prompt, config, where)), next(marks))
            continue
        for text, prompt, found in zip(chunk, ids, decode(loaded.model, ids, config, where), strict=True):
            wholes = [tokeniser.decode([*prompt, *each.ids]) for each in found]
            if json_:
                ways = _ways(wholes, found, len(tokeniser.decode(prompt)))
                print(json.dumps({"prompt": text, "samples": ways}, ensure_ascii=False))
            else:
                for whole in wholes:
                    _show([whole], next(marks))


def _ways(wholes: Sequence[str], found: Sequence[Hypothesis], known: int) -> list[dict[str, Any]]:
    """Each sample without its prompt: what a model adds may depend on it, as a space between two words does."""
    return [{"text": whole[known:], "log_prob": each.log_prob} for whole, each in zip(wholes, found, strict=True)]


def _growing(tokeniser: Tokeniser, prompt: list[int], tokens: Iterable[int]) -> Iterator[str]:
    """The text of a prompt, and what each further token adds to it; a character's bytes come together."""
    ids = list(prompt)
    shown = tokeniser.decode(ids)
    yield shown
    for token in tokens:
        ids.append(token)
        text = tokeniser.decode(ids)
        if not text.endswith(UNFINISHED):
            yield text[len(shown) :]
            shown = text


def _show(pieces: Iterable[str], mark: str) -> None:
    print(mark, end="")
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
