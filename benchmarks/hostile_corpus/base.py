"""Valid runs, folders and data that malicious ones start from."""

from __future__ import annotations

import contextlib
import io
import os
import random
from pathlib import Path

from PIL import Image

TRAIN = "[train]\nsteps = 2\nbatch_size = 8\nthreads = 1\nsamples = 0\n"
EXPERIMENTS = {
    "pairs-run": """
seed = 1
data = {train = "pairs.tsv"}
model = "transformer-tiny"
""",
    "lm-run": """
task = "language-model"
data = {train = "book.txt", format = "text"}
tokeniser = {kind = "words"}
model = {kind = "gpt2", width = 16, depth = 1, heads = 2, positions = {kind = "learned", max_length = 300}}
""",
    "images-run": """
task = "classify-images"
data = {train = "photos"}
model = {kind = "vit", width = 16, depth = 1, heads = 2, patch = 4}
""",
}


def build_base(folder: Path) -> Path:
    """Train and export tiny models; returns the folder that has them."""
    from headwise.cli.main import main

    folder.mkdir(parents=True)
    here = Path.cwd()
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.chdir(folder)
    try:
        write_data(folder)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                for name, text in EXPERIMENTS.items():
                    Path(f"{name}.toml").write_text(text + TRAIN)
                    main(["train", f"{name}.toml", "--runs", str(folder)])
                main(["export", "lm-run", "gpt2", "--to", "hf"])
                main(["act", "collect", "grid", "--episodes", "3", "--out", "log", "--set", "observe=state"])
            except SystemExit:
                raise RuntimeError(said.getvalue()) from None
    finally:
        os.chdir(here)
    return folder


def write_data(folder: Path) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdef", k=draw.randint(2, 5))) for _ in range(60)]
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    (folder / "book.txt").write_text("".join(" ".join(words[i : i + 6]) + "\n" for i in range(54)))
    for number in range(12):
        path = folder / "photos" / ("dark" if number % 2 else "light") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 40 * (number % 2) + number).save(path)
