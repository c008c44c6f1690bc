"""`headwise tag`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, Device, Engine, File, Json, Threads, load_model, read_chunks, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.proteins.readers.fasta import NamedSequence

Out = Annotated[Path | None, Parameter(help="Secondary structure: draw it under the sequence, as .svg or .png.")]


def tag(
    run: Path,
    *texts: str,
    file: File = None,
    out: Out = None,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Tag the words of texts, as word/TAG, with a run trained for tagging; or the residues of proteins.

    Words and punctuation marks are separated by spaces. Texts are arguments, lines of --file, or lines of stdin;
    without any of these, a terminal prompts for them. A run for secondary structure takes FASTA files and sequences,
    and prints for each its name, its residues, and under them their states (DSSP's eight, then three).

    For example:

        headwise tag runs/ewt-lstm "The cat sat on the mat ."
        headwise tag runs/ewt-hmm --file sentences.txt > tagged.txt
        echo "Time flies like an arrow ." | headwise tag runs/ewt-lstm --json
        headwise tag runs/secondary-lstm sequence.fasta --out states.svg

    Parameters
    ----------
    run
        A run folder.
    texts
        What to tag, each in quotes; proteins: FASTA files or sequences.
    """
    if out:
        from headwise.inspect.files import check_ending

        check_ending(out, ".svg", ".png")
    loaded = load_model(run, checkpoint, device, threads, engine=engine)
    if loaded.check_task("tag").config.scheme == "dssp":
        tag_residues(
            loaded, [sequence for chunk in read_chunks(texts, file) for sequence in read_sequences(chunk)], out, json_
        )
        return
    if out:
        raise UserError("--out draws secondary structure, and this run tags words; leave it out")
    for chunk in read_chunks(texts, file):
        for text, pairs in zip(chunk, loaded.tag(chunk), strict=True):
            if json_:
                words, tags = ([pair[side] for pair in pairs] for side in (0, 1))
                print(json.dumps({"text": text, "words": words, "tags": tags}, ensure_ascii=False))
            else:
                print(" ".join(f"{word}/{tag}" for word, tag in pairs))


def read_sequences(texts: list[str]) -> list[NamedSequence]:
    """The sequences of FASTA files, and of texts that are sequences themselves."""
    from headwise.data.compression import strip_suffix
    from headwise.proteins.readers.fasta import SUFFIXES, NamedSequence, parse_sequence, read_fasta

    sequences = []
    for text in texts:
        if Path(text).is_file() or strip_suffix(text).lower().endswith(SUFFIXES):
            sequences += read_fasta(Path(text))
        else:
            sequences.append(NamedSequence("sequence", parse_sequence(text.strip(), "the sequence")))
    return sequences


def tag_residues(loaded: TrainedModel, sequences: list[NamedSequence], out: Path | None, json_: bool) -> None:
    """Print the states of residues, and draw those of the first sequence."""
    from headwise.inspect.files import save
    from headwise.inspect.secondary import Track, draw_secondary
    from headwise.proteins.secondary import reduce_states

    states = loaded.predict_states([each.sequence for each in sequences])
    for each, eight in zip(sequences, states, strict=True):
        row = {"name": each.name, "sequence": each.sequence, "q8": eight, "q3": reduce_states(eight)}
        print(json.dumps(row) if json_ else f">{each.name}\n{each.sequence}\n{eight}\n{row['q3']}")
    if out:
        first = sequences[0]
        say(str(save(draw_secondary(first.name, first.sequence, [Track("predicted", states[0])]), out)))
