"""`headwise embed`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import Checkpoint, Device, File, Json, Threads, With, chunks, opened, say, warnings_to_stderr
from headwise.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from headwise.inference.trained_model import TrainedModel

Action = Literal["nearest", "analogy", "export", "texts", "similar"]
PoolName = Literal["mean", "max", "first", "last", "pooler"]


def embed(
    vectors: Path,
    action: Action,
    /,
    *words: str,
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="How many to show.")] = 10,
    file: File = None,
    out: Annotated[Path | None, Parameter(help="Write the texts' vectors to this .npy, .tsv or .json.")] = None,
    pool: Annotated[PoolName, Parameter(help="From the tokens' vectors to the text's.")] = "mean",
    normalised: Annotated[bool, Parameter(negative="", help="The texts' vectors at length 1.")] = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
    with_: With = None,
) -> None:
    """Vectors of words and of whole texts: the nearest ones, analogies, files.

    Of words: nearest, analogy (king, man and woman: king - man + woman), export in word2vec's text format. Any run and
    any such file has these. Of texts: texts gives their vectors, similar the lines of --file whose vectors have the
    largest cosine to a text's. Any neural run has these; best are models that were trained to guess hidden words.

    For example:

        headwise embed runs/words nearest king --count 5
        headwise embed runs/words analogy king man woman
        headwise embed runs/words export vectors.txt
        headwise embed vectors.txt nearest king
        headwise embed runs/bert texts "a fine film" "a bad one" --json
        headwise embed runs/bert texts --file reviews.txt --out reviews.npy --normalised
        headwise embed runs/bert similar "a fine film" --file reviews.txt --count 3

    Parameters
    ----------
    vectors
        A run, or (for words) a text file of word2vec (.gz too).
    action
        What to do.
    words
        The words or texts to ask for, or the file to write.
    """
    if action in ASKED:
        return ask(vectors, action, words, count, json_)
    loaded = opened(vectors, checkpoint, device, threads, with_)
    reader = Reader(loaded, pool, normalised)
    if action == "similar":
        return similar(reader, words, file, count, json_)
    return write_texts(reader, words, file, out, json_)


# How many words each takes, and how that is said.
ASKED = {
    "nearest": (1, "a word"),
    "analogy": (3, "three words, such as king man woman"),
    "export": (1, "one file to write"),
}


def ask(source: Path, action: str, words: Sequence[str], count: int, json_: bool) -> None:
    """Of word vectors."""
    warnings_to_stderr()
    takes, what = ASKED[action]
    if len(words) != takes:
        raise UserError(f"embed {action}: takes {what}, and there are {len(words)} words")
    from headwise.embeddings.vectors import Vectors

    known = Vectors.load(source)
    if action == "export":
        print(known.save(words[0]))
        return
    found = known.nearest(*words, count=count) if action == "nearest" else known.analogy(*words, count=count)
    show("word", found, json_)


def show(what: str, found: Sequence[tuple[str, float]], json_: bool) -> None:
    """Words or texts with their cosines."""
    if json_:
        print(json.dumps([{what: each, "cosine": cosine} for each, cosine in found], ensure_ascii=False, indent=1))
    else:
        for each, cosine in found:
            print(f"{cosine:.3f}  {each}")


@dataclass(frozen=True)
class Reader:
    """From texts to vectors, (N, C)."""

    loaded: TrainedModel
    pool: str
    normalised: bool

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return self.loaded.embed(texts, self.pool, self.normalised).cpu().numpy()


def similar(reader: Reader, words: Sequence[str], file: Path | None, count: int, json_: bool) -> None:
    """The texts of a file that are most like a text."""
    if len(words) != 1 or not file:
        raise UserError("embed similar: takes one text, and --file with the texts to compare it with")
    import numpy as np

    near = Reader(reader.loaded, reader.pool, normalised=True)
    query = near(words)[0]
    found: list[tuple[str, float]] = []
    for chunk in chunks((), file):
        cosines = near(chunk) @ query
        best = np.argsort(-cosines, kind="stable")[:count]
        found = sorted(found + [(chunk[number], float(cosines[number])) for number in best], key=lambda each: -each[1])
    show("text", found[:count], json_)


def write_texts(reader: Reader, words: Sequence[str], file: Path | None, out: Path | None, json_: bool) -> None:
    """The vectors of texts, to stdout or to a file whose ending says how."""
    if out is None:
        form = jsonl if json_ else tsv
        for chunk in chunks(words, file):
            print(form(chunk, reader(chunk)).decode(), end="")
        return
    if out.suffix not in FORMS:
        raise UserError(f"--out {out}: its ending says how vectors are written; use {', '.join(FORMS)}")
    import numpy as np

    from headwise.utils.files import write

    read = [(chunk, reader(chunk)) for chunk in chunks(words, file)]
    if not read:
        raise UserError("embed texts: there is no text; give some as arguments, in --file or on stdin")
    table = np.concatenate([rows for _, rows in read])
    write(out, FORMS[out.suffix]([text for chunk, _ in read for text in chunk], table))
    say(f"{len(table):,} vectors of {table.shape[1]} numbers are in {out}")


def tsv(texts: Sequence[str], table: np.ndarray) -> bytes:
    """A line for each text: the text, then its numbers, with tabs between them."""
    lines = ("\t".join([text.replace("\t", " "), *row]) for text, row in zip(texts, table.astype(str), strict=True))
    return "".join(f"{line}\n" for line in lines).encode()


def jsonl(texts: Sequence[str], table: np.ndarray) -> bytes:
    """A line for each text: an object with the text and its vector."""
    rows = ({"text": text, "vector": row} for text, row in zip(texts, table.tolist(), strict=True))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def whole_json(texts: Sequence[str], table: np.ndarray) -> bytes:
    """One list of such objects."""
    return b"[" + b",\n".join(jsonl(texts, table).splitlines()) + b"]\n"


def npy(texts: Sequence[str], table: np.ndarray) -> bytes:
    """The numbers alone, as numpy.load reads them."""
    import numpy as np

    file = BytesIO()
    np.save(file, table)
    return file.getvalue()


FORMS: dict[str, Callable[[Sequence[str], np.ndarray], bytes]] = {
    ".npy": npy,
    ".tsv": tsv,
    ".json": whole_json,
}
