"""A model of ours as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from headwise.errors import UserError
from headwise.interop.folders import new_folder
from headwise.interop.hf import ARCHITECTURES, architecture_of
from headwise.interop.hf.architecture import Architecture, Schema, Theirs
from headwise.interop.hf.channels import sines_first
from headwise.interop.hf.files import WEIGHTS
from headwise.interop.hf.images import PROCESSOR, processor
from headwise.interop.hf.text import LABELLERS, MARKS, NO_WORDS, OURS, SETTINGS, TOKENIZER, Vocabularies, write_json
from headwise.interop.hf.ties import fold
from headwise.interop.hf.tokenizer_json import expressed, framed
from headwise.interop.hf.weights import collect
from headwise.models.assemble import TextFields
from headwise.models.generative import GenerativeModel
from headwise.models.language_model import LanguageModel
from headwise.models.layers import LayerFields
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.tasks.mask_filling import MASK
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser, Rows
from headwise.text.paired import Paired
from headwise.text.tokenisers import Tokenisers
from headwise.vision.pixels import Pixels

# What decides nothing once a model is trained, what its tensors tell, and what is compared as stacks.
SILENT = {
    "kind", "dropout", "attention_dropout", "hidden_dropout", "drop_path", "embeddings", "output_bias", "suppress_ids",
    "pool", "next_sentence_head", "class_heads", "frozen", "backbone_lr_scale", "tie",
}  # fmt: skip
STACKS = {"depth", "layers", "shared", "encoder", "decoder"}
SIDES = ("encoder", "decoder")
NOWHERE = "model.kind: transformers has no '{kind}' to {task}, so the run stays here"
LONGEST = 1024  # tokens that `transformers` is told to write at most
GENERATION = tuple(f"{mark}_token_id" for mark in ("bos", "eos", "pad", "decoder_start", "forced_bos", "forced_eos"))


def write_folder(
    model: Any,
    config: Any,
    task: str,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    rows: Rows | None = None,
    function: str = "",
) -> None:
    """A folder that `transformers` loads. An imported vocabulary gets its own order back, from its tokeniser or from
    `rows`; another keeps our ids. `function` is what makes probabilities of a classifier's logits."""
    if tokenisers and isinstance(tokenisers.source, Pixels):
        _write_images(model, config, task, tokenisers, folder)
    else:
        _write_texts(model, config, task, tokenisers, folder, rows, function)


def _write_texts(
    model: Any,
    config: Any,
    task: str,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    rows: Rows | None,
    function: str,
) -> None:
    """Of a model that reads texts."""
    shape = "classify" if task == "regress" else task
    labels = tokenisers.target.vocabulary[len(SPECIALS) :] if tokenisers and shape in LABELLERS else []
    if not isinstance(config, LayerFields):  # n-grams, hidden Markov models, word vectors, recurrent networks
        raise UserError(NOWHERE.format(kind=config.kind, task=task))
    source, target = vocabularies(model, task, tokenisers, labels, rows)
    model, config = sines_first(model, config)
    if separate := shape == "transduce" and target is not source:
        config = config.replace(tie="target" if config.tie == "auto" else config.tie)
    kind, theirs = fitting(config, shape, source.vocab)
    assert isinstance(theirs, Theirs)
    name = kind.class_for(shape, model.state_dict())
    weights = fold(collect(model, kind.for_class(name), Vocabularies(source, target)), theirs.tied(name))
    data = described(theirs, name, ["LABEL_0"] if task == "regress" else labels) | problem_type(task, function, labels)
    data |= {f"{kind.role(mark)}_token_id": getattr(source, mark) for mark in MARKS}
    data |= {f"{theirs}_token_id": getattr(source, mark) for theirs, mark in kind.also.items()}
    if separate:
        data["decoder_vocab_size"] = target.vocab
    with new_folder(folder) as aside:
        _save(weights, aside)
        write_json(aside / "config.json", data)
        write_json(aside / "generation_config.json", generation(data, source, task, theirs.context))
        if tokenisers and not kind.write_texts(tokenisers, aside):
            _write_tokenisers(tokenisers, kind, model, aside)


def _write_images(model: Any, config: Any, task: str, tokenisers: Tokenisers, folder: Path | str) -> None:
    """Of a model that reads images, which are of the size and the channels that it was trained on."""
    pixels = tokenisers.source
    assert isinstance(pixels, Pixels)
    kind, theirs = fitting(config.with_image_size(pixels.height, pixels.width, pixels.channels), task)
    name = kind.class_for(task, model.state_dict())
    weights = collect(model, kind.for_class(name), NO_WORDS)
    problem_type(task, "softmax", tokenisers.target.vocabulary[len(SPECIALS) :])
    with new_folder(folder) as aside:
        _save(weights, aside)
        write_json(aside / "config.json", described(theirs, name, tokenisers.target.vocabulary[len(SPECIALS) :]))
        write_json(aside / PROCESSOR, processor(pixels))


def _save(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Each tensor with a storage of its own."""
    own = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
    save_file(own, folder / WEIGHTS, metadata={"format": "pt"})


def described(theirs: Schema, name: str, labels: Sequence[str]) -> dict[str, Any]:
    """What every `config.json` has."""
    named = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    return theirs.model_dump(mode="json") | {"architectures": [name], "dtype": "float32"} | (named if labels else {})


def problem_type(task: str, function: str, labels: Collection[str]) -> dict[str, str]:
    """What says there how logits become probabilities; nothing where it is the usual."""
    if task == "regress":
        return {"problem_type": "regression"}
    if task in ("classify", "classify-images") and function == "softmax" and len(labels) == 1:
        raise UserError("transformers would take a classifier of one label for yes and no; train it with two labels")
    return {"problem_type": "multi_label_classification"} if function == "sigmoid" and len(labels) > 1 else {}


def vocabularies(
    model: Any, task: str, tokenisers: Tokenisers | None, labels: Collection[str], rows: Rows | None = None
) -> Vocabularies:
    """The rows that an imported vocabulary remembers, or our own. The output of a regression is none of them."""
    source, target = _vocabularies(model, task, tokenisers, labels, rows)
    return Vocabularies(source, Rows(0) if task == "regress" else target)


def _vocabularies(
    model: Any, task: str, tokenisers: Tokenisers | None, labels: Collection[str], rows: Rows | None
) -> Vocabularies:
    words = _words(tokenisers) if tokenisers else None
    rows = words.rows if isinstance(words, HfTokeniser) else rows
    if rows is None:
        tables = [side.embed.table for name in SIDES if (side := getattr(model, name, None))]
        sizes = [table.num_embeddings for table in tables]
        own = [Rows(size, PAD, BOS, EOS, UNK, mask=size - 1 if task == "masked" else None) for size in sizes]
        if tables[0] is not tables[-1]:  # two vocabularies, even where they happen to be of one size
            return Vocabularies(own[0], own[-1])
        rows = own[0]
    return Vocabularies(rows, Rows(len(labels)) if labels else rows)


def generation(config: Mapping[str, Any], rows: Rows, task: str, context: int) -> dict[str, Any]:
    """`generation_config.json`: what is never written here is not written there."""
    never = [row for row in (rows.pad, rows.bos) if row not in (None, rows.eos)]
    found = {key: config[key] for key in GENERATION if key in config}
    if rows.order == tuple(range(rows.vocab)) and never:  # an imported one writes what it always wrote
        found["bad_words_ids"] = [[row] for row in never]
    return found | ({"max_length": min(context, LONGEST)} if task == "transduce" else {})


def fitting(config: Any, task: str, vocab: int = 0) -> tuple[Architecture, Schema]:
    """The architecture that can say all of a config: the one that its kind comes from, or a relative."""
    known = [each for each in map(architecture_of, ARCHITECTURES) if each.class_for(task)]
    kin = [a for a in known if isinstance(config, (a.config, *a.relatives))]
    firsts = {a.config: a for a in reversed(kin)}.values()  # of several that are one config here, the first
    refused: list[tuple[int, str]] = []  # with the number of settings that differ
    for each in sorted(firsts, key=lambda a: not isinstance(config, a.config)):
        theirs = each.theirs.of(config, vocab)
        back: Any = each.config(**theirs.ours(task, ()))
        ours, again = settled(config, task), settled(back, task)
        differing = [key for key in ours if ours[key] != again.get(key)]
        # Layers that share weights can be written as copies, not the other way round.
        if any(other and not own for own, other in zip(sharing(config), sharing(back), strict=True)):
            differing.append("shared")
        if not differing:
            return each, theirs
        why = f"{differing[0]}: a folder of {each.model_type} cannot say this, so the model cannot become one"
        refused.append((len(differing), why))
    if not refused:
        raise UserError(NOWHERE.format(kind=config.kind, task=task))
    raise UserError(min(refused, key=lambda refusal: refusal[0])[1])  # of the nearest


def sharing(config: Any) -> list[bool]:
    """Whether the layers of each stack share weights."""
    return [stack.shared for stack in config.stacks()] if isinstance(config, LayerFields) else []


def settled(config: Any, task: str) -> dict[str, Any]:
    """Everything that decides a model's numbers, with what was left open filled in."""
    if not isinstance(config, LayerFields):
        return {key: value for key, value in config if key not in SILENT}
    found = {key: value for key, value in config if key not in SILENT | STACKS}
    if isinstance(config, TextFields):
        found["pool"] = config.pool if task == "classify" else ""
    found["head_width"] = config.head_width or config.width // config.heads
    found["key_value_heads"] = config.key_value_heads or config.heads
    found["hidden"] = config.hidden or 4 * config.width
    found["layers"] = [
        (stack.depth, sorted({str(layer) for layer in stack.layers or config.pattern(memory)}))
        for stack, memory in zip(config.stacks(), (False, task == "transduce"), strict=True)
    ]
    return found


def _write_tokenisers(tokenisers: Tokenisers, kind: Architecture, model: Any, folder: Path) -> None:
    words, labelled = _words(tokenisers), not isinstance(model, GenerativeModel)
    if isinstance(words, HfTokeniser):
        engine, names = words.engine, {mark: _name(words, getattr(words.rows, mark)) for mark in MARKS}
    elif (tokenisers.shared or labelled) and (own := expressed(words)):
        masks = [MASK] if isinstance(model, MaskedLanguageModel) else []
        reads = not isinstance(model, LanguageModel)
        engine = framed(own, not reads or model.encoder.opening is not None, reads, *masks)
        names = dict(zip(MARKS, [*SPECIALS, *masks], strict=False))
    else:
        tokenisers.save(folder / OURS)
        return
    write_json(folder / TOKENIZER, engine)
    tokens = {f"{kind.role(mark)}_token": name for mark, name in names.items() if name}
    write_json(folder / SETTINGS, {"tokenizer_class": "PreTrainedTokenizerFast", **tokens})


def _words(tokenisers: Tokenisers) -> Tokeniser:
    """The tokeniser of what is read, without what puts two texts together."""
    source = tokenisers.source
    return source.inner if isinstance(source, Paired) else source


def _name(tokeniser: HfTokeniser, row: int | None) -> str | None:
    return None if row is None else tokeniser.tokenizer.id_to_token(row)
