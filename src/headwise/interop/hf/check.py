"""Compare a folder in Headwise and in `transformers`: outputs on a few inputs, and greedy tokens of generators.

Letters: B inputs, T tokens, V words that both models have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf import load_architecture
from headwise.interop.hf.read import ImportedModel, read_folder
from headwise.text import BOS, EOS, SPECIALS

TOLERANCE = 1e-4  # relative to the largest output
INPUTS, LENGTH, NEW_TOKENS = 4, 12, 16
GENERATORS = ("language-model", "transduce")
IMAGE_TASKS = ("classify-images", "detect", "encode-images")
TEXT_TASKS = (*GENERATORS, "masked", "classify", "regress", "tag")

Outputs = tuple[Tensor, Tensor]  # of Headwise and of transformers, in the same order


@dataclass(frozen=True)
class Comparison:
    """How far the outputs of Headwise and of `transformers` are apart."""

    difference: float  # the largest, relative to the largest output
    inputs: int
    compared_tokens: int = 0  # greedy tokens of each input; 0: the model generates none
    first_differing: int | None = None  # number of the first greedy token that differs, from 1

    @property
    def equal(self) -> bool:
        return self.difference <= TOLERANCE and self.first_differing is None

    def __str__(self) -> str:
        text = f"largest relative difference of outputs on {self.inputs} inputs: {self.difference:.1e}"
        if not self.compared_tokens:
            return text
        if self.first_differing is None:
            return f"{text}; {self.compared_tokens} greedy tokens are equal"
        return f"{text}; greedy token {self.first_differing} differs"


def check_folder(folder: Path | str, model: Any = None) -> Comparison:
    """Load a folder in both libraries and compare them; `model` is the Headwise model that the folder was exported
    from, if it was."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            "--check: compares with transformers, which is not installed; install it: pip install transformers"
        ) from None
    folder = Path(folder)
    imported = read_folder(folder)
    if imported.task not in (*TEXT_TASKS, *IMAGE_TASKS):
        raise UserError(f"{folder}: --check: outputs of the task {imported.task} cannot be compared; leave it out")
    data = read_json(folder / "config.json")
    name = load_architecture(str(data.get("model_type"))).read_class_name(data, str(folder / "config.json"))
    try:
        hf_model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    except Exception as error:  # whatever transformers raises
        reason = str(error).partition("\n")[0][:200]
        raise UserError(f"{folder}: --check: transformers cannot load it ({reason})") from None
    ours = imported.model if model is None else model.cpu().eval()
    with torch.inference_mode():
        if imported.task in IMAGE_TASKS:
            return Comparison(_compare(_run_on_images(imported, ours, hf_model)), INPUTS)
        return _compare_texts(imported, ours, hf_model)


def _compare(outputs: Outputs) -> float:
    actual, expected = outputs
    if actual.shape != expected.shape:
        raise UserError(f"--check: outputs have the shapes {tuple(actual.shape)} and {tuple(expected.shape)}")
    difference = float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    return difference if difference == difference else float("inf")  # NaN


def _run_on_images(imported: ImportedModel, model: Any, hf_model: Any) -> Outputs:
    config: Any = imported.config
    images = torch.randn(INPUTS, config.channels, *config.image, generator=torch.Generator().manual_seed(0))
    actual, expected = model(images), hf_model(images)
    if imported.task == "encode-images":
        pooled = getattr(expected, "pooler_output", None)
        expected = expected.last_hidden_state[:, 0] if pooled is None else pooled
        return actual.flatten(1), expected.flatten(1)
    return getattr(actual, "logits", actual), expected.logits


def _compare_texts(imported: ImportedModel, model: Any, hf_model: Any) -> Comparison:
    source = imported.vocabularies.source
    words = [number for number in range(len(SPECIALS), len(source.order)) if source.order[number] != source.mask]
    if not words:
        raise UserError("--check: the vocabulary has no words to compare with; leave it out")
    draw = torch.randint(len(words), (INPUTS, _choose_length(imported)), generator=torch.Generator().manual_seed(0))
    ids = torch.tensor(words)[draw]
    if imported.task not in GENERATORS:
        return Comparison(_compare(_run_encoder(imported, model, hf_model, ids)), INPUTS)
    run = _run_language_model if imported.task == "language-model" else _run_encoder_decoder
    difference = _compare(run(imported, model, hf_model, ids, ids))
    prompt = ids if imported.task == "language-model" else ids[:, :0]
    steps = min(NEW_TOKENS, imported.context - prompt.shape[1] - len(SPECIALS))
    first = _find_differing_token(lambda target: run(imported, model, hf_model, ids, target), prompt, imported, steps)
    return Comparison(difference, INPUTS, steps, first)


def _choose_length(imported: ImportedModel) -> int:
    return max(1, min(LENGTH, imported.context // 2 - len(SPECIALS)))


def _find_differing_token(
    run: Callable[[Tensor], Outputs], prompt: Tensor, imported: ImportedModel, steps: int
) -> int | None:
    """The number of the first greedy token that differs, from 1. Both continue the same tokens until then."""
    shared = _list_shared(imported)
    ids = prompt
    for number in range(1, steps + 1):
        actual, expected = (logits[:, -1].argmax(-1) for logits in run(ids))
        if not torch.equal(actual, expected):
            return number
        ids = torch.cat((ids, shared[actual][:, None]), 1)
    return None


def _list_shared(imported: ImportedModel) -> Tensor:
    """Headwise ids of the words that both models have."""
    target = imported.vocabularies.target
    return torch.tensor([number for number in range(len(target.order)) if number not in target.spare])


def _to_hf(imported: ImportedModel, ids: Tensor) -> Tensor:
    """Headwise ids -> Hugging Face ids."""
    return torch.tensor(imported.vocabularies.source.order).clamp(min=0)[ids]


def _select_shared(imported: ImportedModel, logits: Tensor, hf_logits: Tensor) -> Outputs:
    shared = _list_shared(imported)
    order = torch.tensor(imported.vocabularies.target.order)
    return logits[..., shared], hf_logits[..., order[shared]]  # (B, T, V)


def _run_language_model(imported: ImportedModel, model: Any, hf_model: Any, source: Tensor, target: Tensor) -> Outputs:
    return _select_shared(imported, model(target), hf_model(_to_hf(imported, target)).logits)


def _run_encoder_decoder(imported: ImportedModel, model: Any, hf_model: Any, source: Tensor, target: Tensor) -> Outputs:
    source, target = F.pad(source, (0, 1), value=EOS), F.pad(target, (1, 0), value=BOS)
    logits = model(source, target)
    if imported.config.kind == "bart":  # which starts with EOS, then BOS
        source, target = F.pad(source, (1, 0), value=BOS), F.pad(target, (1, 0), value=EOS)
    target_order = torch.tensor(imported.vocabularies.target.order).clamp(min=0)
    hf_logits = hf_model(input_ids=_to_hf(imported, source), decoder_input_ids=target_order[target]).logits
    return _select_shared(imported, logits, hf_logits[:, -logits.shape[1] :])


def _run_encoder(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> Outputs:
    """Text encoders: masked language models, classifiers, taggers. Headwise adds BOS itself."""
    ids = F.pad(ids, (0, 1), value=EOS)
    opens = model.encoder.prefix_id is not None
    outputs = hf_model(input_ids=_to_hf(imported, F.pad(ids, (1, 0), value=BOS) if opens else ids))
    hf_logits = getattr(outputs, "prediction_logits", None)
    hf_logits = outputs.logits if hf_logits is None else hf_logits
    logits = model(ids)
    if imported.task == "regress":
        return logits.reshape(hf_logits.shape), hf_logits
    return _select_shared(imported, logits, hf_logits if logits.dim() == 2 else hf_logits[:, -logits.shape[1] :])
