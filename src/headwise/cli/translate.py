"""`headwise translate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import (
    Beams,
    Checkpoint,
    Device,
    Ensemble,
    File,
    Int8,
    Json,
    LengthPenalty,
    Seed,
    Threads,
    TopK,
    TopP,
    With,
    chunks,
    opened,
)


def translate(
    run: Path,
    *texts: str,
    file: File = None,
    and_: Ensemble = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    nbest: Annotated[int | None, Parameter(help="Print this many outputs a line, with scores.")] = None,
    temperature: Annotated[float | None, Parameter(help="Above 0: draw at random.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    replace_unknown: Annotated[
        bool | None, Parameter(negative="", help="Write unknown words as the source's words that they look at.")
    ] = None,
    dictionary: Annotated[
        str | None, Parameter(help="Translations of the words so replaced: a file of source TAB target.")
    ] = None,
    engine: Annotated[
        Literal["auto", "native", "ctranslate2"],
        Parameter(help="auto: CTranslate2 where it is installed, can express the model, and is right in 8 bits."),
    ] = "auto",
    int8: Int8 = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Turn texts into outputs with a trained run.

    Texts are arguments, lines of --file, or lines of stdin; on a terminal without any of these it asks.

    For example:

        headwise translate runs/demo transformer attention
        headwise translate runs/multi30k --file test.en --beams 5 > test.de
        echo "zebra" | headwise translate runs/demo --nbest 3 --beams 5

    Parameters
    ----------
    run
        A run folder, or a Hugging Face Marian folder.
    texts
        What to translate.
    """
    loaded = opened([run, *(and_ or ())], checkpoint, device, threads, with_)
    loaded.check_task("transduce")
    from headwise.inference.backends import choose_backend

    given = {
        "beams": beams, "length_penalty": length_penalty, "nbest": nbest, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "seed": seed, "replace_unknown": replace_unknown, "dictionary": dictionary,
    }  # fmt: skip
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    config = loaded.build_decode_config(**settings)  # a wrong setting is said before anything is read
    loaded = choose_backend(loaded, engine, int8, threads or 1, config)
    for chunk in chunks(texts, file):
        for text, found in zip(chunk, loaded.translate_nbest(chunk, **settings), strict=True):
            if json_:
                outputs = [{"text": each.text, "score": each.score, "log_prob": each.log_prob} for each in found]
                print(json.dumps({"source": text, "outputs": outputs}, ensure_ascii=False))
            elif nbest:
                print("\n".join(f"{each.score:.4f}\t{each.text}" for each in found))
            else:
                print(found[0].text)
