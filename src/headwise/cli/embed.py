"""`headwise embed`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from headwise.cli.common import (
    Checkpoint,
    Device,
    Engine,
    File,
    Json,
    Threads,
    load_model,
    log_to_stderr,
    read_chunks,
    say,
)
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
    count: Annotated[int, Parameter(validator=validators.Number(gte=1), help="Number of neighbours.")] = 10,
    file: File = None,
    out: Annotated[Path | None, Parameter(help="Write the embeddings of texts to this .npy, .tsv or .json.")] = None,
    pool: Annotated[PoolName, Parameter(help="Pooling of token vectors into a text embedding.")] = "mean",
    normalised: Annotated[bool, Parameter(negative="", help="Normalise text embeddings to length 1.")] = False,
    engine: Engine = "auto",
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Word and text embeddings: nearest neighbours, analogies, files.

    For words: nearest, analogy (king man woman: king - man + woman), and export in word2vec's text format, of any run
    or word2vec file. For texts: texts prints or writes embeddings, similar prints the lines of --file with the largest
    cosine similarity, of any neural run; masked language models are best.

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
        A run, or for words a word2vec text file (or .gz).
    action
        What to do.
    words
        Words or texts, or the file to write.
    """
    if action in WORD_ACTIONS:
        return query_words(vectors, action, words, count, json_)
    loaded = load_model(vectors, checkpoint, device, threads, engine=engine, states=True)
    encode = TextEncoder(loaded, pool, normalised)
    if action == "similar":
        return print_similar(encode, words, file, count, json_)
    return write_vectors(encode, words, file, out, json_)


# number of arguments, and what they are
WORD_ACTIONS = {
    "nearest": (1, "a word"),
    "analogy": (3, "three words, such as king man woman"),
    "export": (1, "one file to write"),
}


def query_words(source: Path, action: str, words: Sequence[str], count: int, json_: bool) -> None:
    """Nearest neighbours, analogies and export of word vectors."""
    log_to_stderr()
    takes, what = WORD_ACTIONS[action]
    if len(words) != takes:
        raise UserError(f"embed {action}: takes {what}, not {len(words)} words")
    from headwise.experiment.load import load_vectors

    vectors = load_vectors(source)
    if action == "export":
        print(vectors.save(words[0]))
        return
    neighbours = vectors.nearest(*words, count=count) if action == "nearest" else vectors.analogy(*words, count=count)
    print_neighbours("word", neighbours, json_)


def print_neighbours(what: str, neighbours: Sequence[tuple[str, float]], json_: bool) -> None:
    """Print words or texts with their cosine similarity."""
    if json_:
        print(json.dumps([{what: item, "cosine": cosine} for item, cosine in neighbours], ensure_ascii=False, indent=1))
    else:
        for item, cosine in neighbours:
            print(f"{cosine:.3f}  {item}")


@dataclass(frozen=True)
class TextEncoder:
    """Encodes texts as vectors, (N, C)."""

    loaded: TrainedModel
    pool: str
    normalised: bool

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return self.loaded.embed(texts, self.pool, self.normalised).cpu().numpy()


def print_similar(encode: TextEncoder, words: Sequence[str], file: Path | None, count: int, json_: bool) -> None:
    """Print the lines of a file with the largest cosine similarity to a text."""
    if len(words) != 1 or not file:
        raise UserError("embed similar: takes one text, and --file with the texts to compare it with")
    import numpy as np

    encode_unit = TextEncoder(encode.loaded, encode.pool, normalised=True)
    query = encode_unit(words)[0]
    neighbours: list[tuple[str, float]] = []
    for chunk in read_chunks((), file):
        cosines = encode_unit(chunk) @ query
        best = np.argsort(-cosines, kind="stable")[:count]
        neighbours = sorted(
            neighbours + [(chunk[number], float(cosines[number])) for number in best], key=lambda pair: -pair[1]
        )
    print_neighbours("text", neighbours[:count], json_)


def write_vectors(encode: TextEncoder, words: Sequence[str], file: Path | None, out: Path | None, json_: bool) -> None:
    """Write embeddings of texts to stdout, or to a file in the format of its ending."""
    if out is None:
        serialise = to_jsonl if json_ else to_tsv
        for chunk in read_chunks(words, file):
            print(serialise(chunk, encode(chunk)).decode(), end="")
        return
    if out.suffix not in FORMATS:
        raise UserError(f"--out {out}: there is no such format of vectors; use {', '.join(FORMATS)}")
    import numpy as np

    from headwise.utils.files import write

    encoded = [(chunk, encode(chunk)) for chunk in read_chunks(words, file)]
    if not encoded:
        raise UserError("embed texts: there is no text; give some as arguments, in --file or on stdin")
    table = np.concatenate([rows for _, rows in encoded])
    write(out, FORMATS[out.suffix]([text for chunk, _ in encoded for text in chunk], table))
    say(f"{len(table):,} vectors of {table.shape[1]} numbers: {out}")


def to_tsv(texts: Sequence[str], table: np.ndarray) -> bytes:
    """A line for each text: the text and its numbers, separated by tabs."""
    lines = ("\t".join([text.replace("\t", " "), *row]) for text, row in zip(texts, table.astype(str), strict=True))
    return "".join(f"{line}\n" for line in lines).encode()


def to_jsonl(texts: Sequence[str], table: np.ndarray) -> bytes:
    """A line for each text: an object with the text and its vector."""
    rows = ({"text": text, "vector": row} for text, row in zip(texts, table.tolist(), strict=True))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def to_json(texts: Sequence[str], table: np.ndarray) -> bytes:
    """One JSON list of these objects."""
    return b"[" + b",\n".join(to_jsonl(texts, table).splitlines()) + b"]\n"


def to_npy(texts: Sequence[str], table: np.ndarray) -> bytes:
    """The vectors alone, for numpy.load."""
    import numpy as np

    file = BytesIO()
    np.save(file, table)
    return file.getvalue()


FORMATS: dict[str, Callable[[Sequence[str], np.ndarray], bytes]] = {
    ".npy": to_npy,
    ".tsv": to_tsv,
    ".json": to_json,
}
