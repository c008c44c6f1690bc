"""`headwise generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Int8, Json, Seed, Threads, TopK, TopP, With, chunks, opened
from headwise.errors import UserError
from headwise.inference.few_shot import TEMPLATE, build_few_shot_prompt

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel, Translation

POSITIVE = validators.Number(gte=1)


def generate(
    run: Path,
    *prompts: str,
    file: File = None,
    length: Annotated[int, Parameter(validator=POSITIVE, help="Write at most this many tokens.")] = 200,
    min_length: Annotated[int | None, Parameter(help="Write at least this many tokens.")] = None,
    stop: Annotated[
        list[str] | None, Parameter(negative="", help="End a text before this string; may be given again.")
    ] = None,
    temperature: Annotated[
        float | None, Parameter(help="Draw from P^(1/t); 0 takes the most probable token. 0.8, or 0 with --shots.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    repetition_penalty: Annotated[float | None, Parameter(help="Above 1: tokens come again less easily.")] = None,
    no_repeat: Annotated[int | None, Parameter(help="No sequence of so many tokens comes twice.")] = None,
    context: Annotated[
        int | None, Parameter(validator=POSITIVE, help="Have so many tokens in sight; unless said, as in training.")
    ] = None,
    samples: Annotated[int, Parameter(validator=POSITIVE, help="Ways to go on with each prompt.")] = 1,
    shots: Annotated[
        Path | None, Parameter(help="Examples, input TAB output: prompts are inputs, whose output is printed.")
    ] = None,
    count: Annotated[int | None, Parameter(help="Show so many of the examples; 0 shows none.")] = None,
    template: Annotated[
        str | None, Parameter(help=f"How an example is written; unless said, {json.dumps(TEMPLATE)}.")
    ] = None,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    int8: Int8 = False,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Go on with prompts, with a language model.

    The prompt is printed with what follows it; several texts have a line of three dashes between them. An empty prompt
    "" begins a new text. Prompts are arguments, lines of --file, or lines of stdin; on a terminal without any of these
    it asks. In --stop and --template, \\n is a new line and \\t a tab. A text may grow longer than those of training:
    a window moves over it.

    With --shots each prompt is an input: the examples stand before it as --template says, and what the model writes up
    to the end of the line is printed (up to --stop, where it is given).

    For example:

        headwise generate runs/shakespeare-lstm "To be" --length 400
        headwise generate runs/shakespeare-ngram "ROMEO:" --temperature 1 --top-p 0.9 --seed 7 --stop "\\n\\n"
        headwise generate runs/shakespeare-lstm "" --samples 5 --json
        headwise generate runs/gpt --shots capitals.tsv --count 4 "France" "Peru"

    Parameters
    ----------
    run
        A run folder of a language model.
    prompts
        How texts begin, each in quotes.
    """
    from headwise.inference.backends import choose_backend

    loaded = opened(run, checkpoint, device, threads, with_)
    loaded.check_task("language-model")
    write = _prompter(shots, template, count)
    stops = [_typed(text) for text in stop or ()] or (["\n"] if shots else None)
    given = {
        "top_k": top_k, "top_p": top_p, "seed": seed, "min_length": min_length, "stop": stops,
        "repetition_penalty": repetition_penalty, "no_repeat_ngram_size": no_repeat, "context": context,
    }  # fmt: skip
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    settings |= {"beams": 1, "nbest": samples, "max_ratio": 0, "max_extra": length, "max_length": length}
    settings["temperature"] = temperature if temperature is not None else 0.0 if shots else 0.8
    loaded = choose_backend(loaded, "native", int8, config=loaded.build_decode_config(**settings))
    live = samples == 1 and sys.stdout.isatty()
    marks = chain([""], repeat("---\n"))
    for chunk in chunks(prompts, file):
        texts = [write(text) for text in chunk]
        if json_:
            _tell(texts, loaded.continue_prompts(texts, **settings))
        elif shots:
            for each in chain.from_iterable(loaded.continue_prompts(texts, **settings)):
                print(each.text.strip())
        elif live:
            for text in texts:
                _show(_growing(loaded, text, settings), next(marks))
        else:
            for each in chain.from_iterable(loaded.generate(texts, **settings)):
                _show([each.text], next(marks))


def _tell(prompts: Sequence[str], found: Sequence[Sequence[Translation]]) -> None:
    for prompt, own in zip(prompts, found, strict=True):
        ways = [{"text": each.text, "log_prob": each.log_prob} for each in own]
        print(json.dumps({"prompt": prompt, "samples": ways}, ensure_ascii=False))


def _prompter(shots: Path | None, template: str | None, count: int | None) -> Callable[[str], str]:
    """What makes a prompt of a text: the examples before it, or nothing."""
    if shots is None:
        if template is not None or count is not None:
            raise UserError("--template and --count are about examples; name their file with --shots")
        return str
    if not shots.is_file():
        raise UserError(f"--shots {shots}: there is no such file; check the path")
    from headwise.data.read import read_pairs

    examples = list(read_pairs((shots,)))
    return lambda text: build_few_shot_prompt(examples, text, TEMPLATE if template is None else _typed(template), count)


def _typed(text: str) -> str:
    """A text as it was meant: shells pass \\n as two characters.

    >>> _typed(r"Q:\\n")
    'Q:\\n'
    """
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _growing(loaded: TrainedModel, prompt: str, settings: dict[str, Any]) -> Iterator[str]:
    """The text of a prompt, and what follows it as it is found."""
    from headwise.blocks.evaluation import get_device
    from headwise.decode.driver import stream
    from headwise.decode.text import stream_text

    tokeniser, config = loaded.tokenisers.target, loaded.build_decode_config(**settings)
    ids = tokeniser.encode(prompt)
    tokens = stream(loaded.model, ids, config, get_device(loaded.model), tokeniser)
    yield tokeniser.decode(ids)
    yield from stream_text(tokeniser, ids, tokens, config.stop)


def _show(pieces: Iterable[str], mark: str) -> None:
    print(mark, end="")
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
