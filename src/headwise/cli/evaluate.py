"""`headwise evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headwise.cli.common import (
    Beams,
    Checkpoint,
    Device,
    Ensemble,
    Json,
    LengthPenalty,
    Threads,
    With,
    say,
    warnings_to_stderr,
)


def evaluate(
    run: Path,
    *,
    data: Annotated[
        list[str] | None, Parameter(negative="", help="Your own pairs: one TSV, or two aligned files.")
    ] = None,
    and_: Ensemble = None,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    language: Annotated[str, Parameter(help="Of the outputs, for tokenised BLEU.")] = "en",
    outputs: Annotated[Path | None, Parameter(help="Write source, output and references to this TSV.")] = None,
    show: Annotated[int, Parameter(help="Print this many examples.")] = 0,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Score a run, with 95 % intervals (bootstrap over the items).

    Without --data it takes the experiment's test part, or its validation part where there is no test part.

    For example:

        headwise evaluate runs/demo
        headwise evaluate runs/multi30k --beams 5 --language de --json
        headwise evaluate runs/mine --data held_out.tsv --show 10
    """
    warnings_to_stderr()
    from headwise.cli.common import torch_device
    from headwise.data.read import read_pairs
    from headwise.loaded import load
    from headwise.plugins import add_parts

    add_parts(with_ or ())
    loaded = load([run, *(and_ or ())], which=checkpoint, device=torch_device(device, threads))
    settings: dict[str, Any] = {
        key: value for key, value in (("beams", beams), ("length_penalty", length_penalty)) if value is not None
    }
    pairs = list(read_pairs(tuple(Path(file) for file in data))) if data else ()
    found = loaded.evaluate(pairs, language=language, **settings)
    if outputs:
        from headwise.files import write

        rows = zip(found.sources, found.outputs, found.references, strict=True)
        text = "".join("\t".join([source, output, *listed]) + "\n" for source, output, listed in rows)
        write(outputs, text)
        say(f"outputs are in {outputs}")
    if show and not json_:
        for source, output, listed in list(zip(found.sources, found.outputs, found.references, strict=True))[:show]:
            print(f"{source}\n  {output}\n  {'  |  '.join(listed)}")
    if json_:
        decoding = loaded.decoding(**settings).model_dump(mode="json")
        report = {"run": str(run), "items": len(found.sources), "scores": [s.to_json() for s in found.scores]}
        print(json.dumps(report | {"decode": decoding}, indent=1))
    else:
        for score in found.scores:
            print(score)
