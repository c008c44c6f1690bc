"""Speed of reading: labelled texts from CSV, JSON lines and Parquet to token ids, beside the `datasets` package.

    pip install 'headwise[arrow]' datasets
    python benchmarks/reading.py                     # 200,000 rows, three times, on one core
    python benchmarks/reading.py --rows 1000000 --formats parquet

Both sides read the same file, tokenise its texts with the same `tokenizers` model and write ids to a fresh cache:
`headwise.data.prepare` of an experiment's data with given tokenisers, and `load_dataset` with a batched `map`. Repeats
go in turn through both; times are medians of processor time, so that other work on the machine counts little. A row is
a text of about eight words and one of five labels.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

from headwise.data.config import TextDataConfig
from headwise.data.prepare import prepare
from headwise.text.config import TOKENISERS, LabelsConfig, TokeniserConfig
from headwise.text.normalise import PLAIN
from headwise.text.subword import SHIFT, Bpe
from headwise.text.tokenisers import Tokenisers

FORMATS = ("csv", "jsonl", "parquet")
LABELS = ("sport", "politics", "science", "culture", "other")


def draw_rows(count: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """Texts of words with a Zipf distribution, some with commas and quotes, and labels."""
    source = random.Random(seed)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 9))) for _ in range(5000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    drawn = source.choices(words, weights, k=8 * 2**14)
    for number in range(count):
        start = source.randrange(len(drawn) - 12)
        text = " ".join(drawn[start : start + source.randint(4, 12)])
        yield (f'{text}, "{number}"' if number % 4 == 0 else f"{text} {number}"), source.choice(LABELS)


def write_file(path: Path, format: str, rows: list[tuple[str, str]]) -> None:
    if format == "csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    elif format == "jsonl":
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts, labels = zip(*rows, strict=True)
        pq.write_table(pa.table({"text": texts, "label": labels}), path, row_group_size=2**16)


def run_headwise(path: Path, valid: Path, format: str, tokenisers: Tokenisers, cache: str) -> int:
    """Prepare the file as an experiment does; the number of tokens."""
    files = {"train": str(path), "valid": str(valid)}
    data = TextDataConfig(format=format, columns=("text", "label"), cache=cache, **files)
    return int(prepare(data, tokenisers).train.lengths[:, 0].sum())


def run_datasets(path: Path, format: str, tokenisers: Tokenisers, cache: str) -> int:
    """Load and map the file by `datasets`; the number of tokens."""
    import datasets

    datasets.disable_progress_bars()
    source, labels = tokenisers.source, {name: i for i, name in enumerate(tokenisers.target.vocabulary)}
    assert isinstance(source, Bpe)
    engine = source.engine

    def encode(batch: dict[str, list[str]]) -> dict[str, list]:
        encoded = engine.encode_batch_fast([" " + text for text in batch["text"]])
        ids = [[i + SHIFT for i in item.ids] for item in encoded]
        return {"ids": ids, "label_ids": [labels[label] for label in batch["label"]]}

    builder = {"jsonl": "json"}.get(format, format)
    table = datasets.load_dataset(builder, data_files=str(path), split="train", cache_dir=cache)
    mapped = table.map(
        encode, batched=True, remove_columns=["text", "label"], new_fingerprint=f"{format}{os.urandom(4).hex()}"
    )
    return sum(len(chunk.flatten()) for chunk in mapped.data.column("ids").chunks)


def measure(run: Callable[[str], int]) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as cache:
        start = process_time()
        tokens = run(cache)
        return process_time() - start, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--alone", action="store_true", help="without `datasets`")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, before any library starts threads
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    rows = list(draw_rows(options.rows))
    config = TOKENISERS.parse({"kind": "bpe", "size": 4000})
    assert isinstance(config, TokeniserConfig)
    config = config.replace(target=LabelsConfig(), pairs=True)
    tokenisers = Tokenisers.train(rows[:20_000], config, PLAIN)
    engine = Tokenisers(getattr(tokenisers.source, "inner", tokenisers.source), tokenisers.target)
    print("| format | rows | MB | Headwise, s | rows a minute | datasets, s | rows a minute | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for format in options.formats:
            path, valid = (Path(name) / f"{part}.{format}" for part in ("train", "valid"))
            write_file(path, format, rows)
            write_file(valid, format, rows[:100])
            ours, theirs = [], []
            for _ in range(options.repeats):
                ours.append(measure(lambda cache: run_headwise(path, valid, format, tokenisers, cache)))  # noqa: B023
                if not options.alone:
                    theirs.append(measure(lambda cache: run_datasets(path, format, engine, cache)))  # noqa: B023
            assert len({tokens for _, tokens in ours + theirs}) == 1, "the two sides read different tokens"
            first = statistics.median(seconds for seconds, _ in ours)
            second = statistics.median(seconds for seconds, _ in theirs) if theirs else float("nan")
            speeds = (
                [f"{options.rows / seconds * 60:,.0f}" for seconds in (first, second)]
                if theirs
                else [f"{options.rows / first * 60:,.0f}", "-"]
            )
            size = path.stat().st_size / 1e6
            print(
                f"| {format} | {options.rows:,} | {size:.1f} | {first:.2f} | {speeds[0]} | {second:.2f} | {speeds[1]} "
                f"| {second / first:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
