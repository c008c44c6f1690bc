"""Does this checkout compute what another one computes? For changes that must not change any number.

    git worktree add ../base COMMIT
    python benchmarks/same_outputs.py ../base              # every catalogue entry and every task it can do
    python benchmarks/same_outputs.py ../base gpt2 swin

Both checkouts run in processes of their own. The other one builds each model at its tiny size in float64 and stores
weights, logits, gradients, the losses of three training steps and, of models that generate, a greedy output; this one
loads those weights, under the names that `RENAMED` gives them, and must come to the same numbers, to 1e-9 of the
largest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

TOLERANCE = 1e-9
VOCAB, LABELS, STEPS = 12, 9, 3
GENERATE = ("transduce", "language-model", "caption")
# (pattern, replacement): names of weights of the other checkout -> names here, applied in this order
RENAMED: tuple[tuple[str, str], ...] = (
    (r"\bsee\.", "qkv."),
    (r"\bterms\.", "score_mods."),
    (r"(?<!adds\.\d)\.gain$", ".weight"),
    (r"\.shift$", ".bias"),
    (r"\bmarks$", "class_tokens"),
    (r"\bembed\.widen\.", "embed.projection."),
    (r"\bhead\.before\.", "head.transform."),
    (r"^order\.", "next_sentence_head."),
)


def list_cases(only: list[str]) -> Iterator[tuple[str, str]]:
    from headwise.catalog import CATALOG

    for name, entry in sorted(CATALOG.items()):
        if not only or name in only:
            yield from ((name, task) for task in entry.config.tasks)


def build_model(name: str, task: str) -> Any:
    """A tiny model in float64 with every weight away from its special initial value."""
    import headwise

    torch.manual_seed(0)
    images = task in ("classify-images", "detect", "caption")
    sizes = {"vocab": VOCAB} if task not in ("classify-images", "detect") else {}
    sizes |= {"outputs": LABELS} if task in ("tag", "classify", "classify-images", "detect") else {}
    sizes |= {"outputs": VOCAB} if task == "caption" else {}
    model = headwise.build(f"{name}-tiny", task="" if images else task, **sizes).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def make_inputs(name: str, task: str) -> tuple[Tensor, ...]:
    from headwise.catalog import CATALOG

    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(4, VOCAB, (2, 6), generator=generator)
    ids[1, 4:] = 0
    target = torch.randint(4, VOCAB, (2, 5), generator=generator)
    if task in ("classify-images", "detect", "caption"):
        config = CATALOG[name].configure("tiny")
        images = torch.randn(2, config.channels, *config.image, generator=generator, dtype=torch.float64)
        return (images, target) if task == "caption" else (images,)
    if task == "answer":
        ids[:, 2] = 2  # the end of the question
    return {"transduce": (ids, target), "language-model": (target,)}.get(task, (ids,))


def collect_tensors(value: Any) -> list[Tensor]:
    """The float tensors of a model's output, whatever holds them."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if is_dataclass(value):
        return [tensor for each in fields(value) for tensor in collect_tensors(getattr(value, each.name))]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in collect_tensors(each)]
    return [tensor for each in value for tensor in collect_tensors(each)] if isinstance(value, list | tuple) else []


def project(outputs: list[Tensor]) -> Tensor:
    """A random linear form of all outputs; minus infinity, which hides what is impossible, counts as nothing."""
    generator = torch.Generator().manual_seed(3)
    finite = [torch.where(each.isfinite(), each, 0.0) for each in outputs]
    return sum((each * torch.randn(each.shape, generator=generator, dtype=each.dtype)).sum() for each in finite)  # type: ignore[return-value]


def run_model(model: Any, name: str, task: str) -> dict[str, Tensor]:
    """Logits, gradients, losses of some training steps, and a greedy output."""
    inputs, found = make_inputs(name, task), {}
    model.eval()
    outputs = collect_tensors(model(*inputs))
    found |= {f"output/{number}": each.detach().clone() for number, each in enumerate(outputs)}
    model.zero_grad()
    project(outputs).backward()
    named = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
    found |= {f"gradient/{key}": gradient.clone() for key, gradient in named.items()}
    if task in GENERATE:
        found["greedy"] = decode_greedily(model, inputs[0] if task != "language-model" else inputs[0][:, :0])
    found["losses"] = train_briefly(model, inputs)
    return found


def decode_greedily(model: Any, source: Tensor, length: int = 6) -> Tensor:
    written = []
    with torch.no_grad():
        state, tokens = model.start(source), torch.full((len(source),), 1)
        for _ in range(length):
            logits, state = model.step(tokens, state)
            tokens = logits.argmax(-1)
            written.append(tokens)
    return torch.stack(written, 1)


def train_briefly(model: Any, inputs: tuple[Tensor, ...]) -> Tensor:
    """Three steps in training mode, with dropout and whatever else is drawn."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)
        loss = project(collect_tensors(model(*inputs))).square()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def run_counted(name: str) -> dict[str, Tensor]:
    """Models that count have nothing to load: the same data must give the same tables."""
    import headwise

    torch.manual_seed(0)
    random = np.random.default_rng(0)
    texts = [4 + random.integers(8, size=9) for _ in range(50)]
    model: Any = headwise.build(f"{name}-tiny", vocab=VOCAB, **({"outputs": VOCAB} if name == "hmm" else {}))
    if name == "hmm":
        words = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefgh"]
        model.fit([(text, 4 + text % 5) for text in texts], words)
    else:
        model.fit(texts)
    return {f"output/{key}": tensor.double() for key, tensor in model.state_dict().items()}


def dump(folder: Path, weights: Path | None, only: list[str]) -> None:
    """Store what this checkout computes, with its own weights or with stored ones."""
    torch.set_num_threads(1)
    for name, task in list_cases(only):
        case = f"{name}.{task}.safetensors"
        if weights is not None and not (weights / case).exists():
            print(f"{name} to {task}: new in this checkout, not compared")
            continue
        if name in ("ngram", "hmm", "skipgram", "cbow"):
            found, own = run_counted(name), {}
        else:
            model = build_model(name, task)
            if weights is not None:
                load_renamed(model, load_file(weights / f"{case}.weights"), case)
            own = {key: tensor.clone() for key, tensor in model.state_dict().items()}
            found = run_model(model, name, task)
        save_file({key: tensor.clone().contiguous() for key, tensor in found.items()}, folder / case)
        save_file({key: tensor.contiguous() for key, tensor in own.items()}, folder / f"{case}.weights")


def rename(name: str) -> str:
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def load_renamed(model: nn.Module, tensors: dict[str, Tensor], case: str) -> None:
    own = model.state_dict()
    given = {rename(key): tensor for key, tensor in tensors.items()}
    if own.keys() != given.keys():
        missing, further = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        raise SystemExit(f"{case}: nothing is renamed to {missing[:5]}, and nothing is called {further[:5]}")
    model.load_state_dict(given)


def compare(base: Path, head: Path) -> list[str]:
    """What differs, a line each."""
    problems = []
    cases = {path.name for folder in (base, head) for path in folder.glob("*.safetensors")}
    for case in sorted(cases):
        if not ((base / case).exists() and (head / case).exists()):
            problems.append(f"{case}: only one checkout has it")
            continue
        before, after = load_file(base / case), load_file(head / case)
        before = {rename_output(key): tensor for key, tensor in before.items()}
        if before.keys() != after.keys():
            problems.append(f"{case}: other outputs: {sorted(before.keys() ^ after.keys())[:5]}")
        for key in before.keys() & after.keys():
            if (error := distance(before[key], after[key])) > TOLERANCE:
                problems.append(f"{case}: {key} differs by {error:.2g} of the largest value")
    return problems


def rename_output(key: str) -> str:
    kind, slash, name = key.partition("/")
    return f"{kind}{slash}{rename(name)}" if kind == "gradient" else key


def distance(before: Tensor, after: Tensor) -> float:
    if before.shape != after.shape:
        return float("inf")
    before, after = before.double(), after.double()
    finite = before.isfinite()
    if not torch.equal(finite, after.isfinite()) or not before.numel():
        return 0.0 if before.shape == after.shape and not before.numel() else float("inf")
    largest = before[finite].abs().max().item() if finite.any() else 1.0
    return float((before - after)[finite].abs().max().item() / max(largest, 1e-30)) if finite.any() else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="the other checkout; with --dump, the folder to write")
    parser.add_argument("only", nargs="*", help="names of the catalogue; all without")
    parser.add_argument("--dump", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--weights", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump:
        return dump(options.base, options.weights, options.only)
    here = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as scratch:
        base, head = Path(scratch) / "base", Path(scratch) / "head"
        for tree, folder, weights in ((options.base, base, None), (here, head, base)):
            folder.mkdir()
            call = [sys.executable, str(tree / "benchmarks" / "same_outputs.py"), str(folder), *options.only, "--dump"]
            call += ["--weights", str(weights)] if weights else []
            subprocess.run(call, check=True, env=os.environ | {"PYTHONPATH": str((tree / "src").resolve())})
        problems = compare(base, head)
        count = len(list(head.glob("*.safetensors")))
    for problem in problems:
        print(problem)
    print(f"{count} models and tasks, {len(problems)} differences")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
