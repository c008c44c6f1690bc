"""Export a model as a Hugging Face folder."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from headwise.errors import UserError
from headwise.interop.folders import create_folder
from headwise.interop.hf import ARCHITECTURES, load_architecture
from headwise.interop.hf.architecture import Architecture, HfConfig, HfTextConfig
from headwise.interop.hf.channels import move_sines_first
from headwise.interop.hf.files import WEIGHTS
from headwise.interop.hf.image_processor import PROCESSOR, build_processor_config
from headwise.interop.hf.images import HfImageConfig
from headwise.interop.hf.text import (
    LABELLERS,
    MASKING_TASKS,
    NATIVE,
    NO_VOCABULARIES,
    SPECIAL_NAMES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Vocabularies,
    write_json,
)
from headwise.interop.hf.ties import drop_tied
from headwise.interop.hf.tokenizer_json import add_post_processor, to_tokenizer_json
from headwise.interop.hf.weights import build_state_dict
from headwise.models.assemble import TextFields
from headwise.models.generative import GenerativeModel
from headwise.models.language_model import LanguageModel
from headwise.models.layers import LayerFields
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.transformer import TransformerConfig
from headwise.tasks.mask_filling import MASK
from headwise.tasks.replaced_tokens import ReplacedTokenDetector
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser, Rows
from headwise.text.paired import Paired
from headwise.text.tokenisers import Tokenisers
from headwise.vision.pixels import Pixels

# Settings that change no outputs of a trained model, that its tensors show, or that are compared as stacks.
IGNORED_SETTINGS = {
    "kind", "dropout", "attention_dropout", "hidden_dropout", "drop_path", "embeddings", "output_bias", "suppress_ids",
    "pool", "next_sentence_head", "class_heads", "frozen", "backbone_lr_scale", "tie",
}  # fmt: skip
STACK_SETTINGS = {"depth", "layers", "shared", "groups", "encoder", "decoder"}
SIDES = ("encoder", "decoder")
NO_ARCHITECTURE = "model.kind: transformers has no '{kind}' to {task}; train another kind to export it"
log = logging.getLogger(__name__)
MAX_LENGTH = 1024  # limit in generation_config.json
GENERATION_IDS = tuple(
    f"{name}_token_id" for name in ("bos", "eos", "pad", "decoder_start", "forced_bos", "forced_eos")
)


class InexpressibleError(UserError):
    """No architecture of `transformers` can express a model."""


def write_folder(
    model: Any,
    config: Any,
    task: str,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    rows: Rows | None = None,
    function: str = "",
) -> None:
    """Write a folder that `transformers` loads.

    The rows of an imported vocabulary return to their original order, which its tokeniser or `rows` knows; a model
    trained here keeps its ids. `function` turns a classifier's logits into probabilities (softmax or sigmoid).
    """
    try:
        if tokenisers and isinstance(tokenisers.source, Pixels):
            _write_image_model(model, config, task, tokenisers, folder)
        else:
            _write_text_model(model, config, task, tokenisers, folder, rows, function)
    except UserError as error:
        if isinstance(error.__cause__, OSError) or Path(folder).exists():
            raise
        raise InexpressibleError(str(error)) from None


def _write_text_model(
    model: Any,
    config: Any,
    task: str,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    rows: Rows | None,
    function: str,
) -> None:
    build_task = "classify" if task == "regress" else task
    labels = tokenisers.target.vocabulary[len(SPECIALS) :] if tokenisers and build_task in LABELLERS else []
    if not isinstance(config, LayerFields):  # n-grams, hidden Markov models, word vectors, recurrent networks
        raise UserError(NO_ARCHITECTURE.format(kind=config.kind, task=task))
    source, target = find_vocabularies(model, task, tokenisers, labels, rows)
    if isinstance(model, ReplacedTokenDetector) and model.generator is not None:
        log.info("generator: not written, as a folder of transformers has the discriminator alone")
        model = ReplacedTokenDetector(model.encoder, model.head)
    model, config = move_sines_first(model, config)
    if isinstance(config, TransformerConfig) and tokenisers and isinstance(tokenisers.source, HfTokeniser):
        config = config.replace(encoder_prefix_id=0)  # tokenizer.json has it
    if separate := build_task == "transduce" and target is not source:
        config = config.replace(tie="target" if config.tie == "auto" else config.tie)
    architecture, hf_config = choose_architecture(config, build_task, source.vocab, separate)
    assert isinstance(hf_config, HfTextConfig)
    class_name = architecture.choose_class_name(build_task, model.state_dict())
    state = build_state_dict(model, architecture.with_head(class_name), Vocabularies(source, target))
    state = drop_tied(state, hf_config.tied_weights(class_name))
    state = {architecture.stored_as.get(name, name): tensor for name, tensor in state.items()}
    data = build_config_json(hf_config, class_name, ["LABEL_0"] if task == "regress" else labels)
    data |= choose_problem_type(task, function, labels)
    data |= {f"{architecture.special_name(name)}_token_id": getattr(source, name) for name in SPECIAL_NAMES}
    data |= {f"{hf_name}_token_id": getattr(source, name) for hf_name, name in architecture.extra_special_ids.items()}
    if separate:
        data["decoder_vocab_size"] = target.vocab
    _check_special_ids(architecture, hf_config, data, build_task)
    with create_folder(folder) as temporary:
        _save_checkpoint(state, temporary)
        write_json(temporary / "config.json", data)
        write_json(temporary / "generation_config.json", build_generation_config(data, source, task, hf_config.context))
        if tokenisers and not architecture.write_tokeniser_files(tokenisers, temporary):
            _write_tokenisers(tokenisers, architecture, model, temporary)


def _check_special_ids(architecture: Architecture, hf_config: HfConfig, data: Mapping[str, Any], task: str) -> None:
    """Refuse special token ids that change other settings: RoBERTa's positions begin after the padding's id."""
    settings = architecture.hf_config.read(data).to_settings(task, ())
    for key, value in hf_config.to_settings(task, ()).items():
        if settings[key] != value:
            raise UserError(
                f"{key}: config.json of {architecture.model_type} has {settings[key]} with these special tokens, the "
                f"model {value}, so it cannot be exported; train with another value"
            )


def _write_image_model(model: Any, config: Any, task: str, tokenisers: Tokenisers, folder: Path | str) -> None:
    """The config has the image size and the channels of the training data."""
    pixels = tokenisers.source
    assert isinstance(pixels, Pixels)
    labels = tokenisers.target.vocabulary[len(SPECIALS) :]
    sized_config = config.with_image_size(pixels.height, pixels.width, pixels.channels)
    architecture, hf_config = choose_architecture(sized_config, task)
    assert isinstance(hf_config, HfImageConfig)
    hf_config.check_image_size("config.json")
    class_name = architecture.choose_class_name(task, model.state_dict())
    with_head = architecture.with_head(class_name)
    named = replace(with_head, name_map={**with_head.name_map, **hf_config.build_name_map()})
    state = build_state_dict(model, named, NO_VOCABULARIES)
    choose_problem_type(task, "softmax", labels)  # refuses a single label
    with create_folder(folder) as temporary:
        _save_checkpoint(state, temporary)
        write_json(temporary / "config.json", build_config_json(hf_config, class_name, labels))
        write_json(temporary / PROCESSOR, build_processor_config(pixels))


def _save_checkpoint(state: Mapping[str, Tensor], folder: Path) -> None:
    """Save a state dict; safetensors needs tensors that share no storage."""
    copies = {name: tensor.clone().contiguous() for name, tensor in state.items()}
    save_file(copies, folder / WEIGHTS, metadata={"format": "pt"})


def build_config_json(hf_config: HfConfig, class_name: str, labels: Sequence[str]) -> dict[str, Any]:
    """`config.json` without special token ids."""
    label_maps = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    data = hf_config.model_dump(mode="json") | {"architectures": [class_name], "dtype": "float32"}
    return data | (label_maps if labels else {})


def choose_problem_type(task: str, function: str, labels: Collection[str]) -> dict[str, str]:
    """`problem_type` of a classifier; empty for a softmax over several labels, the default of `transformers`."""
    if task == "regress":
        return {"problem_type": "regression"}
    if task in ("classify", "classify-images") and function == "softmax" and len(labels) == 1:
        raise UserError("labels: transformers reads a classifier of one label as yes or no; train it with two labels")
    return {"problem_type": "multi_label_classification"} if function == "sigmoid" and len(labels) > 1 else {}


def find_vocabularies(
    model: Any, task: str, tokenisers: Tokenisers | None, labels: Collection[str], rows: Rows | None = None
) -> Vocabularies:
    """The rows of an imported vocabulary, or those of a model trained here. A regression has no target rows."""
    source, target = _find_token_rows(model, task, tokenisers, labels, rows)
    return Vocabularies(source, Rows(0) if task == "regress" else target)


def _find_token_rows(
    model: Any, task: str, tokenisers: Tokenisers | None, labels: Collection[str], rows: Rows | None
) -> Vocabularies:
    tokeniser = _source_tokeniser(tokenisers) if tokenisers else None
    rows = tokeniser.rows if isinstance(tokeniser, HfTokeniser) else rows
    if rows is None:
        tables = [side.embed.table for name in SIDES if (side := getattr(model, name, None))]
        sizes = [table.num_embeddings for table in tables]
        native = [Rows(size, PAD, BOS, EOS, UNK, mask=size - 1 if task in MASKING_TASKS else None) for size in sizes]
        if tables[0] is not tables[-1]:  # two vocabularies, even if they have the same size
            return Vocabularies(native[0], native[-1])
        rows = native[0]
    return Vocabularies(rows, Rows(len(labels)) if labels else rows)


def build_generation_config(config: Mapping[str, Any], rows: Rows, task: str, context: int) -> dict[str, Any]:
    """`generation_config.json`: tokens that are never generated here are forbidden there too."""
    never = [row for row in (rows.pad, rows.bos) if row not in (None, rows.eos)]
    data = {key: config[key] for key in GENERATION_IDS if key in config}
    if rows.order == tuple(range(rows.vocab)) and never:  # an imported model generates what it always did
        data["bad_words_ids"] = [[row] for row in never]
    return data | ({"max_length": min(context, MAX_LENGTH)} if task == "transduce" else {})


def choose_architecture(
    config: Any, task: str, vocab: int = 0, separate: bool = False
) -> tuple[Architecture, HfConfig]:
    """The architecture that expresses all of a model config, with its Hugging Face config: the architecture of the
    same kind, or a relative. Reading the Hugging Face config back must give the same settings. `separate`: source and
    target have vocabularies of their own."""
    able = [each for each in map(load_architecture, ARCHITECTURES) if each.choose_class_name(task)]
    candidates = [each for each in able if isinstance(config, (each.config, *each.relatives))]
    if separate and candidates:
        candidates = [each for each in candidates if "decoder_vocab_size" in each.hf_config.model_fields]
        if not candidates:
            raise UserError(
                f"tokeniser: transformers has one vocabulary for both sides of '{config.kind}', so the run cannot be "
                "exported; train with one tokeniser for source and target"
            )
    refusals: list[tuple[int, str]] = []  # number of differing settings, message
    for architecture in sorted(candidates, key=lambda each: not isinstance(config, each.config)):
        hf_config = architecture.hf_config.from_model_config(config, vocab)
        read_back: Any = architecture.config(**hf_config.to_settings(task, ()))
        settings, settings_back = resolve_settings(config, task), resolve_settings(read_back, task)
        differing = [key for key in settings if settings[key] != settings_back.get(key)]
        # Layers that share weights can be written as copies, not the other way round.
        if not shares_at_most(read_back, config):
            differing.append("shared")
        if not differing:
            return architecture, hf_config
        message = (
            f"{differing[0]}: config.json of {architecture.model_type} cannot express this; train with another value"
        )
        refusals.append((len(differing), message))
    if not refusals:
        raise UserError(NO_ARCHITECTURE.format(kind=config.kind, task=task))
    raise UserError(min(refusals, key=lambda refusal: refusal[0])[1])  # of the closest architecture


def shares_at_most(config: Any, other: Any) -> bool:
    """Whether layers that share weights in a config also do so in another of the same depth."""
    return all(
        numbers[first] != numbers[second] or other_numbers[first] == other_numbers[second]
        for numbers, other_numbers in zip(list_layer_numbers(config), list_layer_numbers(other), strict=True)
        for first, second in combinations(range(min(len(numbers), len(other_numbers))), 2)
    )


def list_layer_numbers(config: Any) -> list[list[int]]:
    """The layer whose weights each place of each stack has."""
    if not isinstance(config, LayerFields):
        return []
    return [stack.list_layer_numbers(len(stack.layers or config.pattern())) for stack in config.stacks()]


def resolve_settings(config: Any, task: str) -> dict[str, Any]:
    """Every setting that changes outputs, with derived defaults filled in."""
    if not isinstance(config, LayerFields):
        return {key: value for key, value in config if key not in IGNORED_SETTINGS}
    settings = {key: value for key, value in config if key not in IGNORED_SETTINGS | STACK_SETTINGS}
    if isinstance(config, TextFields):
        settings["pool"] = config.pool if task == "classify" else ""
        transform = config.head_transform
        used = task == "masked" or transform.labels
        settings["head_transform"] = (
            transform.replace(activation=transform.activation or config.activation) if used else None
        )
    settings["head_width"] = config.head_width or config.width // config.heads
    settings["key_value_heads"] = config.key_value_heads or config.heads
    settings["hidden"] = config.hidden or 4 * config.width
    patterns = [
        (stack.depth, stack.layers or config.pattern(memory))
        for stack, memory in zip(config.stacks(), (False, task == "transduce"), strict=True)
    ]
    settings["layers"] = [[pattern[i % len(pattern)] for i in range(depth)] for depth, pattern in patterns]
    if any(stack.layers for stack in config.stacks()):  # which then say everything
        settings.pop("mixer")
        settings.pop("expert_interval", None)
    return settings


def _write_tokenisers(tokenisers: Tokenisers, architecture: Architecture, model: Any, folder: Path) -> None:
    tokeniser, has_labels = _source_tokeniser(tokenisers), not isinstance(model, GenerativeModel)
    if isinstance(tokeniser, HfTokeniser):
        tokenizer_json = tokeniser.engine
        tokens = {name: _find_token(tokeniser, getattr(tokeniser.rows, name)) for name in SPECIAL_NAMES}
    elif (tokenisers.shared or has_labels) and (plain_json := to_tokenizer_json(tokeniser)):
        masks = [MASK] if isinstance(model, MaskedLanguageModel | ReplacedTokenDetector) else []
        has_encoder = not isinstance(model, LanguageModel)
        opens = not has_encoder or model.encoder.prefix_id is not None
        tokenizer_json = add_post_processor(plain_json, opens, has_encoder, *masks)
        tokens = dict(zip(SPECIAL_NAMES, [*SPECIALS, *masks], strict=False))
    else:
        tokenisers.save(folder / NATIVE)
        return
    write_json(folder / TOKENIZER, tokenizer_json)
    special_tokens = {f"{architecture.special_name(name)}_token": token for name, token in tokens.items() if token}
    write_json(folder / TOKENIZER_CONFIG, {"tokenizer_class": "PreTrainedTokenizerFast", **special_tokens})


def _source_tokeniser(tokenisers: Tokenisers) -> Tokeniser:
    """The tokeniser of single texts, also where the source is a pair of texts."""
    source = tokenisers.source
    return source.inner if isinstance(source, Paired) else source


def _find_token(tokeniser: HfTokeniser, row: int | None) -> str | None:
    return None if row is None else tokeniser.tokenizer.id_to_token(row)
