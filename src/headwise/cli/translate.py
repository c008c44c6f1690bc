"""`headwise translate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headwise.cli.common import (
    Beams,
    Checkpoint,
    CoveragePenalty,
    Device,
    Engine,
    Ensemble,
    File,
    Int8,
    Json,
    LengthPenalty,
    Seed,
    Threads,
    TopK,
    TopP,
    load_model,
    read_chunks,
)


def translate(
    run: Path,
    *texts: str,
    file: File = None,
    and_: Ensemble = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    coverage_penalty: CoveragePenalty = None,
    nbest: Annotated[int | None, Parameter(help="Print the n best outputs of each text, with scores.")] = None,
    temperature: Annotated[float | None, Parameter(help="Above 0: sample at this softmax temperature.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    replace_unknown: Annotated[
        bool | None, Parameter(negative="", help="Replace unknown words by the source words with most attention.")
    ] = None,
    dictionary: Annotated[str | None, Parameter(help="For --replace-unknown: a file of source TAB target.")] = None,
    engine: Engine = "auto",
    int8: Int8 = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Translate or transduce texts with an encoder-decoder.

    Texts are arguments, lines of --file, or lines of stdin; without any of these, a terminal prompts for them.

    For example:

        headwise translate runs/demo transformer attention
        headwise translate runs/multi30k --file test.en --beams 5 > test.de
        headwise translate runs/gnmt --file test.en --beams 5 --coverage-penalty 0.2 --replace-unknown
        echo "zebra" | headwise translate runs/demo --nbest 3 --beams 5

    Parameters
    ----------
    run
        A run folder, or a Hugging Face Marian folder.
    texts
        Texts, each in quotes.
    """
    loaded = load_model([run, *(and_ or ())], checkpoint, device, threads)
    loaded.check_task("transduce")
    from headwise.inference.backends import choose_backend

    options = {
        "beams": beams, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty, "nbest": nbest,
        "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "seed": seed, "replace_unknown": replace_unknown, "dictionary": dictionary,
    }  # fmt: skip
    settings: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    config = loaded.build_decode_config(**settings)  # a wrong setting is an error before texts are read
    loaded = choose_backend(loaded, engine, int8, threads or 1, config)
    for chunk in read_chunks(texts, file):
        for text, candidates in zip(chunk, loaded.translate_nbest(chunk, **settings), strict=True):
            if json_:
                outputs = [
                    {"text": candidate.text, "score": candidate.score, "log_prob": candidate.log_prob}
                    for candidate in candidates
                ]
                print(json.dumps({"source": text, "outputs": outputs}, ensure_ascii=False))
            elif nbest:
                print("\n".join(f"{candidate.score:.4f}\t{candidate.text}" for candidate in candidates))
            else:
                print(candidates[0].text)
