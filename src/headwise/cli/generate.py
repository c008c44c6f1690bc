"""`headwise generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from headwise.cli.common import (
    Checkpoint,
    Device,
    Engine,
    File,
    Int8,
    Json,
    Seed,
    Threads,
    TopK,
    TopP,
    load_model,
    read_chunks,
)
from headwise.cli.generate_pixels import write_completions
from headwise.errors import UserError
from headwise.inference.few_shot import TEMPLATE, build_few_shot_prompt

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel, Translation

POSITIVE = validators.Number(gte=1)


def generate(
    run: Path,
    *prompts: str,
    file: File = None,
    length: Annotated[int, Parameter(validator=POSITIVE, help="Maximum number of new tokens.")] = 200,
    min_length: Annotated[int | None, Parameter(help="Minimum number of new tokens.")] = None,
    stop: Annotated[
        list[str] | None, Parameter(negative="", help="End a text before this string; may be repeated.")
    ] = None,
    temperature: Annotated[
        float | None, Parameter(help="Softmax temperature; 0: greedy. Default 0.8, or 0 with --shots.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    repetition_penalty: Annotated[float | None, Parameter(help="Above 1: repeated tokens are less probable.")] = None,
    no_repeat: Annotated[int | None, Parameter(help="Block repeated n-grams of this many tokens.")] = None,
    context: Annotated[
        int | None, Parameter(validator=POSITIVE, help="Tokens of context; by default as in training.")
    ] = None,
    samples: Annotated[int, Parameter(validator=POSITIVE, help="Number of samples for each prompt.")] = 1,
    shots: Annotated[
        Path | None, Parameter(help="Few-shot examples, input TAB output; prompts are inputs, and outputs are printed.")
    ] = None,
    count: Annotated[int | None, Parameter(help="Number of few-shot examples; 0: zero-shot.")] = None,
    template: Annotated[str | None, Parameter(help=f"Format of an example; by default {json.dumps(TEMPLATE)}.")] = None,
    out: Annotated[Path | None, Parameter(help="The picture of completed images; by default completed.png.")] = None,
    keep: Annotated[
        float, Parameter(validator=validators.Number(gte=0, lte=1), help="Share of an image's rows that is given.")
    ] = 0.5,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    int8: Int8 = False,
    json_: Json = False,
) -> None:
    """Generate text after prompts with a language model.

    Prompt and continuation are printed; texts are separated by a line of three dashes. An empty prompt "" starts a new
    text. Prompts are arguments, lines of --file, or lines of stdin; without any of these, a terminal prompts for them.
    In --stop and --template, \\n is a new line and \\t a tab. A text may be longer than the training context,
    which is then a sliding window.

    With --shots each prompt is an input: the examples come before it in the format of --template, and the output up to
    the end of the line, or up to --stop, is printed.

    A model of pixels (task pixels) completes images: prompts are image files, by default the first ones of the run's
    test split; the upper rows are given, and originals, given rows and completions are drawn in --out.

    For example:

        headwise generate runs/shakespeare-lstm "To be" --length 400
        headwise generate runs/shakespeare-ngram "ROMEO:" --temperature 1 --top-p 0.9 --seed 7 --stop "\\n\\n"
        headwise generate runs/shakespeare-lstm "" --samples 5 --json
        headwise generate runs/gpt --shots capitals.tsv --count 4 "France" "Peru"
        headwise generate runs/digits-pixels --out digits.png

    Parameters
    ----------
    run
        A run folder of a language model.
    prompts
        Beginnings of texts, each in quotes.
    """
    from headwise.inference.backends import choose_backend

    loaded = load_model(run, checkpoint, device, threads)
    if loaded.experiment.task.kind == "pixels":
        write_completions(loaded, prompts, out, keep, temperature, seed, json_)
        return
    if out is not None:
        raise UserError("--out: is the picture of a model of pixels; leave it out")
    loaded.check_task("language-model")
    build_prompt = _build_prompt_function(shots, template, count)
    stops = [_unescape(text) for text in stop or ()] or (["\n"] if shots else None)
    options = {
        "top_k": top_k, "top_p": top_p, "seed": seed, "min_length": min_length, "stop": stops,
        "repetition_penalty": repetition_penalty, "no_repeat_ngram_size": no_repeat, "context": context,
    }  # fmt: skip
    settings: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    settings |= {"beams": 1, "nbest": samples, "max_ratio": 0, "max_extra": length, "max_length": length}
    settings["temperature"] = temperature if temperature is not None else 0.0 if shots else 0.8
    loaded = choose_backend(loaded, engine, int8, threads or 1, loaded.build_decode_config(**settings))
    live = samples == 1 and sys.stdout.isatty()
    separators = chain([""], repeat("---\n"))
    for chunk in read_chunks(prompts, file):
        texts = [build_prompt(text) for text in chunk]
        if json_:
            _print_json(texts, loaded.continue_prompts(texts, **settings))
        elif shots:
            for sample in chain.from_iterable(loaded.continue_prompts(texts, **settings)):
                print(sample.text.strip())
        elif live:
            for text in texts:
                _print_text(_stream(loaded, text, settings), next(separators))
        else:
            for sample in chain.from_iterable(loaded.generate(texts, **settings)):
                _print_text([sample.text], next(separators))


def _print_json(prompts: Sequence[str], continuations: Sequence[Sequence[Translation]]) -> None:
    for prompt, samples in zip(prompts, continuations, strict=True):
        rows = [{"text": sample.text, "log_prob": sample.log_prob} for sample in samples]
        print(json.dumps({"prompt": prompt, "samples": rows}, ensure_ascii=False))


def _build_prompt_function(shots: Path | None, template: str | None, count: int | None) -> Callable[[str], str]:
    """A function that puts the few-shot examples before a text; without --shots, the text itself."""
    if shots is None:
        if template is not None or count is not None:
            raise UserError("--template, --count: need few-shot examples; name their file with --shots")
        return str
    if not shots.is_file():
        raise UserError(f"--shots {shots}: there is no such file; check the path")
    from headwise.data.read import read_pairs

    examples = list(read_pairs((shots,)))
    pattern = TEMPLATE if template is None else _unescape(template)
    return lambda text: build_few_shot_prompt(examples, text, pattern, count)


def _unescape(text: str) -> str:
    """Replace \\n and \\t by a new line and a tab: shells pass them as two characters.

    >>> _unescape(r"Q:\\n")
    'Q:\\n'
    """
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _stream(loaded: TrainedModel, prompt: str, settings: dict[str, Any]) -> Iterator[str]:
    """The text of a prompt, and what follows it as it is generated."""
    from headwise.blocks.evaluation import get_device
    from headwise.decode.driver import stream
    from headwise.decode.text import stream_text

    tokeniser, config = loaded.tokenisers.target, loaded.build_decode_config(**settings)
    ids = tokeniser.encode(prompt)
    tokens = stream(loaded.model, ids, config, get_device(loaded.model), tokeniser)
    yield tokeniser.decode(ids)
    yield from stream_text(tokeniser, ids, tokens, config.stop)


def _print_text(pieces: Iterable[str], separator: str) -> None:
    print(separator, end="")
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
