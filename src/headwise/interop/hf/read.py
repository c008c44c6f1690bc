"""Import a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwise.blocks.positions.grid import interpolate_positions
from headwise.config.base import validate
from headwise.decode.generation_config import from_generation_config
from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf import find_architecture
from headwise.interop.hf.architecture import Architecture, HfTextConfig
from headwise.interop.hf.decision_transformer import HfAgentConfig
from headwise.interop.hf.files import LazyStateDict, open_state_dict
from headwise.interop.hf.ignored_keys import GENERATION
from headwise.interop.hf.images import ImageConfig
from headwise.interop.hf.labels import infer_classification_task, read_labels
from headwise.interop.hf.sizes import AllocationLimit, check_sizes
from headwise.interop.hf.text import (
    GENERATIVE_TASKS,
    LABELLERS,
    NATIVE,
    NO_VOCABULARIES,
    PAIR_TASKS,
    TokeniserFiles,
    Vocabularies,
    check_template,
    check_token_types,
    distinguish_labels,
    refuse_pair_types,
)
from headwise.interop.hf.ties import TABLES, infer_tie, resolve_ties
from headwise.interop.hf.weights import compare_checkpoint, load_weights
from headwise.models.config import ModelConfig
from headwise.tasks.base import TaskConfig
from headwise.tasks.replaced_tokens import build_discriminator
from headwise.tasks.tables import TASKS
from headwise.text import PAD
from headwise.text.hf import HfTokeniser, VocabularyMap
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels
from headwise.vision.pixels import Pixels
from headwise.worlds.spaces import EpisodeEncoder

GENERATION_CONFIG = "generation_config.json"
ADAPTER = "adapter_config.json"  # of peft
FORCES_BOS = "force_bos_token_to_be_generated"  # in older files, a forced BOS


@dataclass(frozen=True)
class ImportedModel:
    """The model of a folder in evaluation mode, with Headwise's ids."""

    config: ModelConfig
    model: Any
    task: str
    vocabularies: Vocabularies
    context: int  # maximum number of tokens in an input
    task_settings: Mapping[str, Any]
    tokenisers: Tokenisers | None  # None where the folder has no tokenizer.json, or no preprocessor_config.json
    decode_settings: Mapping[str, Any] = field(default_factory=dict)  # of its generation_config.json


def read_folder(folder: Path | str) -> ImportedModel:
    """Read the config, the checkpoint and the tokenisers of a folder."""
    folder, where = Path(folder), str(Path(folder) / "config.json")
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"{folder / ADAPTER}: transformers adds this adapter to the weights, and Headwise does not; merge it with "
            "peft (merge_and_unload, then save_pretrained), or remove the file to read the model without it"
        )
    data: Mapping[str, Any] = read_json(folder / "config.json")
    architecture, weights = find_architecture(data, where), open_state_dict(folder)
    if issubclass(architecture.hf_config, ImageConfig):
        return build_image_model(architecture, data, weights, folder)
    if issubclass(architecture.hf_config, HfAgentConfig):
        return build_agent(architecture, data, weights, folder)
    if architecture.classes[architecture.read_class_name(data, where)] in GENERATIVE_TASKS:
        data = merge_start_tokens(folder, data, architecture)
    imported = build_text_model(architecture, data, weights, architecture.read_tokeniser_files(folder, data), where)
    if imported.task not in GENERATIVE_TASKS:
        return imported
    target = imported.vocabularies.target
    settings = read_generation_config(folder, data, target, architecture.needs_cache)
    settings.pop("decoder_start_token_id", None)  # the model's own, if not a copy of another
    start_id = imported.model.start_id
    if (owner := target.owners.get(target.hf_ids[start_id], start_id)) != start_id:
        settings["decoder_start_token_id"] = owner  # so that a penalty on the BOS of OPT is one on its EOS, the same
    return replace(imported, decode_settings=settings)


def merge_start_tokens(folder: Path, data: Mapping[str, Any], architecture: Architecture) -> Mapping[str, Any]:
    """`config.json` with the decoder start and, where the architecture reads one (BART), the forced BOS of
    generation_config.json, or of `config.json` alone without the defaults of its class: `generate` takes them from
    there."""
    fields = architecture.hf_config.model_fields
    if "decoder_start_token_id" not in fields:
        return data
    check_start_token(data, folder / "config.json")
    (_, values), merged = find_generation_values(folder, data), dict(data)
    starts = [values.get(key) for key in ("decoder_start_token_id", "bos_token_id")]
    if (start := next((token for token in starts if token is not None), None)) is not None:
        merged["decoder_start_token_id"] = start
    if "forced_bos_token_id" in fields:
        merged["forced_bos_token_id"] = values.get("forced_bos_token_id")
    return merged


def find_generation_values(folder: Path, data: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The file that `generate` takes its settings from, and its keys, a forced BOS under its newer name."""
    file = folder / GENERATION_CONFIG
    found = read_json(file) if file.is_file() else {**data, "_from_model_config": True}
    values = {key: value for key, value in found.items() if key != FORCES_BOS}
    if found.get(FORCES_BOS) and found.get("_from_model_config"):
        values["forced_bos_token_id"] = found.get("bos_token_id")
    return file if file.is_file() else folder / "config.json", values


def check_start_token(data: Mapping[str, Any], file: Path) -> None:
    """Refuse a decoder start beyond the vocabulary, even where generation_config.json has another one: training begins
    targets with that of config.json."""
    token, size = data.get("decoder_start_token_id"), data.get("decoder_vocab_size") or data.get("vocab_size")
    if isinstance(token, int) and isinstance(size, int) and token >= size:
        raise UserError(f"{file}: decoder_start_token_id: {token} is no token id below {size:,}; correct it")


def read_generation_config(
    folder: Path, data: Mapping[str, Any], vocabulary_map: VocabularyMap, needs_cache: bool = False
) -> dict[str, Any]:
    """The settings of `[decode]` that a folder asks for, in generation_config.json or, as in older versions, in
    config.json (`data`); those of `generate` without settings where it says nothing."""
    file, values = find_generation_values(folder, data)
    ends = values.get("eos_token_id")
    if file.name != GENERATION_CONFIG:
        values = {key: values[key] for key in GENERATION if values.get(key) is not None}
        values |= {"eos_token_id": ends} if isinstance(ends, list) else {}

    def to_our_id(token: Any) -> int:
        if not isinstance(token, int) or not 0 <= token < len(vocabulary_map.headwise_ids):
            raise UserError(f"{file}: {token!r} is no token id below {len(vocabulary_map.headwise_ids):,}; correct it")
        return vocabulary_map.headwise_ids[token]

    if needs_cache and values.get("use_cache", data.get("use_cache")) is False:
        raise UserError(
            f"{file}: use_cache: false decodes every token again at each step, and experts with a capacity then drop "
            "other tokens; set it to true"
        )
    check_end_tokens(ends, vocabulary_map, file)
    return from_generation_config(values, to_our_id, str(file))


def check_end_tokens(ends: Any, vocabulary_map: VocabularyMap, file: Path) -> None:
    """Refuse a generation config in which the EOS of config.json does not end a text: here it always does."""
    eos = vocabulary_map.eos
    if eos is None or eos in (ends if isinstance(ends, list) else [ends]):
        return
    if ends is None:
        raise UserError(
            f"{file}: has no eos_token_id, so generate of transformers never ends a text, and here EOS does; add "
            f'"eos_token_id": {eos}'
        )
    raise UserError(
        f"{file}: eos_token_id: {ends} is without {eos}, the EOS of config.json, which ends a text here; let both agree"
    )


def build_text_model(
    architecture: Architecture,
    data: Mapping[str, Any],
    weights: LazyStateDict,
    files: TokeniserFiles,
    where: str,
) -> ImportedModel:
    """Build a text model and load its weights; `data` is the `config.json`. Mismatches are reported before any weight
    is read."""
    hf_config, class_name = architecture.hf_config.read(data, where), architecture.read_class_name(data, where)
    assert isinstance(hf_config, HfTextConfig)
    labels, build_task = read_labels(data, where), architecture.classes[class_name]
    check_sizes(hf_config, weights, where)
    files = files.drop_new_tokens(hf_config.vocab_size)
    task, task_settings = build_task, dict[str, Any]()
    if build_task == "classify":
        task, task_settings = infer_classification_task(data, labels, where)
    elif build_task == "replaced-tokens":
        task_settings = {"generator_size": 0, "context": max(4, hf_config.context)}
    special_ids = {**data, **dict(hf_config)}  # with what the schema derives
    vocabularies = files.build_vocabularies(architecture, hf_config, special_ids, labels if task in LABELLERS else ())
    if task == "regress":
        vocabularies = vocabularies._replace(target=VocabularyMap(0))
    source, target = vocabularies
    with_head, weights = architecture.with_head(class_name), weights.add_prefix(architecture.base_prefix)
    class_names = {stored: name for name, stored in architecture.stored_as.items() if name not in weights.readers}
    weights = weights.rename({class_names.get(name, name): name for name in weights.readers})
    tensors = set(weights.names) - {*architecture.find_computed(weights)}
    settings = hf_config.to_settings(build_task, tensors) | files.list_settings(vocabularies)
    weights, stored_names = resolve_ties(weights, hf_config.tied_weights(class_name))
    if task in TABLES:
        settings["tie"] = infer_tie(task, with_head, stored_names)
    if task in GENERATIVE_TASKS and not settings.get("output_bias"):
        settings["suppress_ids"] = target.suppressed_ids
    tokenisers = files.build_tokenisers(vocabularies, labels, task)
    if "pair_types" in architecture.config.model_fields:
        settings["pair_types"] = files.have_pair_types(tokenisers)
    config = validate(architecture.config, settings, where)
    outputs = 1 if task == "regress" else 0 if target is source else len(target.hf_ids)

    def build() -> Any:
        if build_task == "replaced-tokens":
            return build_discriminator(config, len(source.hf_ids))
        return config.build(len(source.hf_ids), outputs, build_task)

    model = build_model(build, with_head, vocabularies, weights, stored_names, where)
    if task not in GENERATIVE_TASKS and model.encoder.prefix_id is not None and None in (source.bos, source.eos):
        names = " and ".join(f"{architecture.special_name(name)}_token" for name in ("bos", "eos"))
        raise UserError(
            f"{where}: nothing says which special tokens begin and end a text; add {names} to tokenizer_config.json"
        )
    if tokenisers and isinstance(tokenisers.source, HfTokeniser):
        check_template(tokenisers.source, model, task, files.where)
        if architecture.reads_pair_types(config) and tokenisers.source.appends_eos:
            check_token_types(tokenisers.source, architecture.first_token_type, files.where)
        elif task in PAIR_TASKS and not getattr(config, "token_types", 0) and getattr(config, "pair_types", False):
            refuse_pair_types(hf_config, files.where)
    load_weights(model, with_head, vocabularies, weights, stored_names)
    if architecture.zero_padding and hf_config.pad_token_id is not None:
        model.encoder.embed.table.weight.data[PAD] = 0
    return ImportedModel(config, model.eval(), task, vocabularies, hf_config.context, task_settings, tokenisers)


def build_image_model(
    architecture: Architecture, data: Mapping[str, Any], weights: LazyStateDict, folder: Path
) -> ImportedModel:
    """Build an image model, for the labels in `config.json`, and load its weights."""
    where = str(folder / "config.json")
    hf_config = architecture.hf_config.read(data, where)
    assert isinstance(hf_config, ImageConfig)
    class_name = hf_config.read_class_name(architecture, data, where)
    task = architecture.classes[class_name]
    labels = hf_config.read_labels(data, task, where)
    check_sizes(hf_config, weights, where)
    config: Any = validate(architecture.config, hf_config.to_settings(task, weights.names), where)
    pixels = hf_config.read_pixels(folder, config)
    if pixels and hf_config.any_size:
        hf_config = hf_config.replace(image_size=(pixels.height, pixels.width))
        config = config.replace(image=(pixels.height, pixels.width))
    elif pixels and not hf_config.interpolates and (pixels.height, pixels.width) != config.image:
        sizes = [f"{rows} x {columns} pixels" for rows, columns in ((pixels.height, pixels.width), config.image)]
        raise UserError(
            f"{folder}: its processor makes images of {sizes[0]}, and the model reads {sizes[1]}; correct its size"
        )
    hf_config.check_image_size(where)
    rows, columns = config.image
    any_pixels = Pixels(rows, columns, config.channels, (0.5,) * config.channels, (0.5,) * config.channels)
    own_size = Tokenisers(any_pixels, Labels(distinguish_labels(labels)))
    tokenisers = replace(own_size, source=pixels or any_pixels)
    task_config = TASKS.parse(task)
    assert isinstance(task_config, TaskConfig)
    weights = weights.add_prefix(architecture.base_prefix)
    named = hf_config.add_names(architecture.with_head(class_name))
    model = build_model(lambda: task_config.build(own_size).build(config), named, NO_VOCABULARIES, weights, {}, where)
    load_weights(model, named, NO_VOCABULARIES, weights)
    if pixels and (pixels.height, pixels.width) != config.image:
        config = config.replace(image=(pixels.height, pixels.width))
        model = interpolate_model(model, task_config.build(tokenisers).build(config))
    return ImportedModel(config, model.eval(), task, NO_VOCABULARIES, 0, {}, tokenisers if pixels else None)


def build_agent(
    architecture: Architecture, data: Mapping[str, Any], weights: LazyStateDict, folder: Path
) -> ImportedModel:
    """Build a model that acts, and load its weights. Its environment is known where Headwise wrote the folder."""
    where = str(folder / "config.json")
    hf_config, class_name = architecture.hf_config.read(data, where), architecture.read_class_name(data, where)
    task = architecture.classes[class_name]
    check_sizes(hf_config, weights, where)
    config: Any = validate(architecture.config, hf_config.to_settings(task, weights.names), where)
    model = build_model(lambda: config.build(0, 0, task), architecture, NO_VOCABULARIES, weights, {}, where)
    load_weights(model, architecture, NO_VOCABULARIES, weights)
    if (folder / NATIVE).is_file():
        tokenisers = Tokenisers.load(folder / NATIVE)
    else:
        encoder = EpisodeEncoder.without_environment(config.observation[0], config.actions, config.max_steps)
        tokenisers = Tokenisers(encoder, encoder)
    return ImportedModel(config, model.eval(), task, NO_VOCABULARIES, 0, {}, tokenisers)


def interpolate_model(model: Any, resized: Any) -> Any:
    """The same model for images of another size, with interpolated position embeddings."""
    old, new = model.encoder.stem.positions, resized.encoder.stem.positions
    table = interpolate_positions(old.table.detach(), old.class_tokens, old.grid, new.grid, old.antialias)
    resized.load_state_dict(model.state_dict() | {"encoder.stem.positions.table": table})
    return resized


def build_model(
    build: Callable[[], Any],
    architecture: Architecture,
    vocabularies: Vocabularies,
    weights: LazyStateDict,
    stored_names: Mapping[str, str],
    where: str,
) -> Any:
    """Build a model without weights, and compare its names and shapes with the checkpoint. Sizes far beyond those of
    the checkpoint are refused before they are allocated."""
    try:
        with AllocationLimit(weights, where), SkipInit():
            model = build()
    except UserError as error:
        if str(error).startswith(where):
            raise
        problem, _, _ = str(error).partition("; ")  # its remedy is one for experiments
        raise UserError(f"{where}: {problem}; correct it") from None
    compare_checkpoint(model, architecture, vocabularies, weights, stored_names)
    return model


class SkipInit(TorchFunctionMode):
    """Skip weight initialisation of models that are built inside: it would take longer than reading the checkpoint.

    Random draws become zeros, which also end a loop of redraws (truncated normal) at once.
    """

    RANDOM_FILLS = (Tensor.normal_, Tensor.uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.RANDOM_FILLS:
            return args[0].zero_()
        if getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
