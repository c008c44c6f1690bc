"""Compare a folder in Headwise and in `transformers` or, if it has timm's layout, in timm: outputs on a few inputs,
what generators generate, and what becomes of texts.

Letters: B inputs, T tokens, V words that both models have, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.blocks.heads import Pooler
from headwise.blocks.stream import Context
from headwise.errors import UserError
from headwise.interop.folders import is_native_folder, read_json
from headwise.interop.hf import load_architecture
from headwise.interop.hf.check_answers import VERBS, AnswerComparison, compare_answers
from headwise.interop.hf.check_generation import SearchComparison, compare_searches
from headwise.interop.hf.read import GENERATIVE_TASKS, ImportedModel, read_folder
from headwise.interop.timm import is_timm_config
from headwise.text import BOS, EOS, SPECIALS

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

TOLERANCE = 1e-4  # relative to the largest output
INPUTS, LENGTH = 4, 12

Prepare = Callable[[ImportedModel, Path], "TrainedModel"]
Outputs = tuple[Tensor, Tensor]  # of Headwise and of transformers, in the same order


@dataclass(frozen=True)
class Comparison:
    """How far the outputs of Headwise and of `transformers` are apart."""

    difference: float  # the largest, relative to the largest output
    inputs: int
    searches: tuple[SearchComparison, ...] = ()  # empty: the model generates nothing
    answers: tuple[SearchComparison | AnswerComparison, ...] = ()  # to texts, if the model reads texts

    @property
    def equal(self) -> bool:
        return self.difference <= TOLERANCE and all(each.equal for each in (*self.searches, *self.answers))

    def __str__(self) -> str:
        outputs = f"outputs on {self.inputs} inputs: largest relative difference {self.difference:.1e}"
        limit = "" if self.difference <= TOLERANCE else f", above the limit of {TOLERANCE:.0e}"
        return "\n".join([outputs + limit, *map(str, self.searches), *map(str, self.answers)])


def check_folder(folder: Path | str, model: Any = None, prepare: Prepare | None = None) -> Comparison:
    """Load a folder in both libraries and compare them; `model` is the Headwise model that the folder was exported
    from, if it was. `prepare` makes a trained model of what was read, to compare what becomes of texts, too."""
    folder = Path(folder)
    if is_native_folder(folder):
        raise UserError(f"{folder}: --check: has Headwise's own config, which transformers cannot load; leave it out")
    path = folder / "config.json"
    library = "timm" if path.is_file() and is_timm_config(read_json(path)) else "transformers"
    try:
        module: Any = import_module(library)
    except ImportError:
        raise UserError(
            f"--check: compares with {library}, which is not installed; install it: pip install {library}"
        ) from None
    imported = read_folder(folder)
    with hide_messages(module) if library == "transformers" else nullcontext(), torch.inference_mode():
        try:
            hf_model = load_timm_model(module, folder) if library == "timm" else load_hf_model(module, path)
        except Exception as error:  # whatever the library raises
            reason = str(error).partition("\n")[0][:200]
            raise UserError(f"{folder}: --check: {library} cannot load it ({reason}); leave --check out") from None
        for name in ("forward", "generate"):
            if hasattr(hf_model, name):
                setattr(hf_model, name, guard(getattr(hf_model, name), library))
        ours = imported.model if model is None else model.cpu().eval()
        comparison = compare_models(imported, ours, hf_model)
        if prepare is None or library == "timm" or imported.task not in VERBS:
            return comparison
        return replace(comparison, answers=check_answers(imported, folder, hf_model, prepare))


def check_answers(imported: ImportedModel, folder: Path, hf_model: Any, prepare: Prepare) -> tuple[Any, ...]:
    """Compare what both libraries make of texts, if both have a tokeniser."""
    if imported.tokenisers is None:
        return (AnswerComparison(imported.task, reason="the folder has no tokenizer.json"),)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # whatever the library raises
        reason = str(error).partition("\n")[0][:200]
        return (AnswerComparison(imported.task, reason=f"transformers cannot load the tokenizer ({reason})"),)
    return compare_answers(imported, prepare(imported, folder), hf_model, tokenizer)


def guard(method: Callable[..., Any], library: str) -> Callable[..., Any]:
    """A method of another library's model that says in one sentence that the library cannot run it."""

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except UserError:
            raise
        except Exception as error:  # whatever the library raises
            reason = (str(error) or type(error).__name__).partition("\n")[0][:200]
            raise UserError(f"--check: {library} cannot run it ({reason}); leave --check out") from None

    return run


def load_hf_model(transformers: Any, path: Path) -> Any:
    data = read_json(path)
    name = load_architecture(str(data.get("model_type"))).read_class_name(data, str(path))
    return getattr(transformers, name).from_pretrained(path.parent, dtype=torch.float32).eval()


def load_timm_model(timm: Any, folder: Path) -> Any:
    return timm.create_model(f"local-dir:{folder}", pretrained=True).float().eval()


@contextmanager
def hide_messages(transformers: Any) -> Iterator[None]:
    """Without the progress bars and warnings of `transformers`, which would hide the result."""
    logging = transformers.utils.logging
    verbosity, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()


def compare_models(imported: ImportedModel, model: Any, hf_model: Any) -> Comparison:
    """Compare the outputs of two models for random inputs, and what they generate."""
    if imported.task in IMAGE_TASKS:
        return Comparison(measure_difference(run_on_images(imported, model, hf_model)), INPUTS)
    ids = draw_ids(imported)
    difference = measure_difference(RUN[imported.task](imported, model, hf_model, ids))
    searches = compare_searches(imported, model, hf_model, ids) if imported.task in GENERATIVE_TASKS else ()
    return Comparison(difference, len(ids), searches)


def measure_difference(outputs: Outputs) -> float:
    """The largest difference, relative to the largest output; infinite where one side is not finite."""
    actual, expected = outputs
    if actual.shape != expected.shape:
        raise UserError(f"--check: outputs have the shapes {tuple(actual.shape)} and {tuple(expected.shape)}")
    difference = float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    return difference if difference == difference else float("inf")  # NaN


def run_on_images(imported: ImportedModel, model: Any, hf_model: Any) -> Outputs:
    config: Any = imported.config
    images = torch.randn(INPUTS, config.channels, *config.image, generator=torch.Generator().manual_seed(0))
    actual, expected = model(images), hf_model(images)
    if isinstance(expected, Tensor):  # of timm
        return actual, expected
    if imported.task == "encode-images":
        pooled = getattr(expected, "pooler_output", None)
        expected = expected.last_hidden_state[:, 0] if pooled is None else pooled
        return actual.flatten(1), expected.flatten(1)
    if imported.task == "detect":
        return torch.cat((actual.logits, actual.boxes), -1), torch.cat((expected.logits, expected.pred_boxes), -1)
    return actual, expected.logits


def draw_ids(imported: ImportedModel) -> Tensor:
    """Random words, (B, T), without special tokens."""
    source = imported.vocabularies.source
    words = [number for number in range(len(SPECIALS), len(source.hf_ids)) if source.hf_ids[number] != source.mask]
    if not words:
        raise UserError("--check: the vocabulary has no words to compare with; leave it out")
    length = max(1, min(LENGTH, imported.context // 2 - len(SPECIALS)))
    return torch.tensor(words)[torch.randint(len(words), (INPUTS, length), generator=torch.Generator().manual_seed(0))]


def to_hf_ids(imported: ImportedModel, ids: Tensor) -> Tensor:
    return torch.tensor(imported.vocabularies.source.hf_ids).clamp(min=0)[ids]


def select_shared(imported: ImportedModel, logits: Tensor, hf_logits: Tensor) -> Outputs:
    """The logits of the words that both models have, (B, T, V)."""
    target = imported.vocabularies.target
    shared = torch.tensor([number for number in range(len(target.hf_ids)) if number not in target.suppressed_ids])
    return logits[..., shared], hf_logits[..., torch.tensor(target.hf_ids)[shared]]


def run_language_model(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> Outputs:
    return select_shared(imported, model(ids), hf_model(to_hf_ids(imported, ids)).logits)


def run_encoder_decoder(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> Outputs:
    source, target = add_end(imported, ids), F.pad(ids, (1, 0), value=BOS)
    logits = model(source, target)
    source, target = add_side_tokens(model.encoder, source), add_side_tokens(model.decoder, target)
    target_order = torch.tensor(imported.vocabularies.target.hf_ids).clamp(min=0)
    hf_logits = hf_model(input_ids=to_hf_ids(imported, source), decoder_input_ids=target_order[target]).logits
    return select_shared(imported, logits, hf_logits[:, -logits.shape[1] :])


def add_side_tokens(side: Any, ids: Tensor) -> Tensor:
    """Ids with the tokens that the encoder or decoder of Headwise adds before and after them, if it has some."""
    suffix_id = getattr(side, "suffix_id", None)
    ids = ids if side.prefix_id is None else F.pad(ids, (1, 0), value=side.prefix_id)
    return ids if suffix_id is None else F.pad(ids, (0, 1), value=suffix_id)


def run_hf_encoder(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor, **inputs: Tensor) -> Any:
    """Outputs of transformers' encoder, with the prefix token that Headwise adds itself."""
    return hf_model(input_ids=to_hf_ids(imported, add_side_tokens(model.encoder, ids)), **inputs)


def add_end(imported: ImportedModel, ids: Tensor) -> Tensor:
    """Ids with EOS, if the model has one."""
    return ids if imported.vocabularies.source.eos is None else F.pad(ids, (0, 1), value=EOS)


def select_positions(model: Any, ids: Tensor, hf_outputs: Tensor) -> Tensor:
    """The outputs at the positions of `ids`: without the prefix token, nor those after the text (Perceiver)."""
    first = int(model.encoder.prefix_id is not None)
    return hf_outputs[:, first : first + ids.shape[1]]


def run_with_head(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> Outputs:
    """Masked language models, classifiers, taggers, discriminators."""
    ids = add_end(imported, ids)
    outputs, logits = run_hf_encoder(imported, model, hf_model, ids), model(ids)
    hf_logits = getattr(outputs, "prediction_logits", None)
    hf_logits = outputs.logits if hf_logits is None else hf_logits
    if imported.task == "regress":
        return logits.reshape(hf_logits.shape), hf_logits
    if imported.task == "classify":
        return select_shared(imported, logits, hf_logits)
    hf_logits = select_positions(model, ids, hf_logits)
    return (logits, hf_logits) if imported.task == "replaced-tokens" else select_shared(imported, logits, hf_logits)


def run_answers(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> Outputs:
    """Question answering: starts and ends of spans in a text of two thirds of the words, which follows a question."""
    question, text = ids.tensor_split((ids.shape[1] // 3,), dim=1)
    separators = imported.tokenisers.source.pair_separators if imported.tokenisers else 1
    ids = torch.cat((F.pad(question, (0, separators), value=EOS), F.pad(text, (0, 1), value=EOS)), 1)
    before = ids.shape[1] - text.shape[1] - 1  # tokens of the question
    types: dict[str, Tensor] = {}
    architecture = load_architecture(hf_model.config.model_type)
    if architecture.reads_pair_types(imported.config):
        second = torch.arange(ids.shape[1]).ge(before).long().expand_as(ids)
        first_type = architecture.first_token_type
        types["token_type_ids"] = second if model.encoder.prefix_id is None else F.pad(second, (1, 0), value=first_type)
    outputs = run_hf_encoder(imported, model, hf_model, ids, **types)
    expected = select_positions(model, ids, torch.stack((outputs.start_logits, outputs.end_logits), -1))  # (B, T, 2)
    return model(ids)[:, before:-1], expected[:, before:-1]


def run_without_head(imported: ImportedModel, model: Any, hf_model: Any, ids: Tensor) -> Outputs:
    """The last hidden states of an encoder, and the output of its pooler if it has one."""
    ids = add_end(imported, ids)
    outputs, states = run_hf_encoder(imported, model, hf_model, ids), model.encoder(ids, Context()).x  # (B, T, C)
    actual, expected = states.flatten(1), outputs.last_hidden_state.flatten(1)
    pooled = getattr(outputs, "pooler_output", None)
    if pooled is None or not any(isinstance(module, Pooler) for module in model.pool.modules()):
        return actual, expected
    return torch.cat((actual, model(ids)), 1), torch.cat((expected, pooled), 1)


IMAGE_TASKS = ("classify-images", "detect", "encode-images")
RUN: Mapping[str, Any] = {
    "language-model": run_language_model,
    "transduce": run_encoder_decoder,
    "masked": run_with_head,
    "classify": run_with_head,
    "regress": run_with_head,
    "tag": run_with_head,
    "replaced-tokens": run_with_head,
    "answer": run_answers,
    "encode": run_without_head,
}
