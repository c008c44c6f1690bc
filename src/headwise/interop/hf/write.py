"""Export a model as a Hugging Face folder."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor

from headwise.config.base import list_problems
from headwise.decode.config import DecodeConfig
from headwise.decode.generation_config import to_generation_config
from headwise.errors import UserError
from headwise.interop.folders import create_folder
from headwise.interop.hf import list_architectures, load_architecture
from headwise.interop.hf.architecture import Architecture, HfConfig, HfTextConfig
from headwise.interop.hf.channels import move_sines_first
from headwise.interop.hf.files import WEIGHTS
from headwise.interop.hf.images import ImageConfig
from headwise.interop.hf.labels import build_config_json, choose_problem_type
from headwise.interop.hf.refusal import explain_refusal
from headwise.interop.hf.text import (
    GENERATIVE_TASKS,
    LABELLERS,
    MASKING_TASKS,
    NATIVE,
    NO_VOCABULARIES,
    SPECIAL_NAMES,
    Vocabularies,
    write_json,
)
from headwise.interop.hf.ties import drop_tied
from headwise.interop.hf.tokenizer_classes import ALWAYS_REGISTERED, VERBATIM
from headwise.interop.hf.tokenizer_config import CLEAN_UP_KEYS, NO_CLASSES, TOKEN_TYPES, TOKENIZER, TOKENIZER_CONFIG
from headwise.interop.hf.tokenizer_json import add_post_processor, to_tokenizer_json
from headwise.interop.hf.weights import build_state_dict
from headwise.models.assemble import TextFields
from headwise.models.generative import GenerativeModel
from headwise.models.language_model import LanguageModel
from headwise.models.layers import LayerFields, StackConfig
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.transformer import TransformerConfig
from headwise.tasks.mask_filling import MASK
from headwise.tasks.replaced_tokens import ReplacedTokenDetector
from headwise.tasks.tables import task_config
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.base import Tokeniser
from headwise.text.hf import HfTokeniser, VocabularyMap
from headwise.text.paired import Paired
from headwise.text.tokenisers import Tokenisers
from headwise.utils.files import apply_umask
from headwise.vision.pixels import Pixels

# Settings that change no outputs of a trained model, that its tensors show, or that are compared as stacks.
IGNORED_SETTINGS = {
    "kind", "dropout", "attention_dropout", "hidden_dropout", "drop_path", "embeddings", "output_bias", "suppress_ids",
    "pool", "next_sentence_head", "class_heads", "frozen", "backbone_lr_scale", "tie", "upsample", "pair_types",
    "init",
}  # fmt: skip
STACK_SETTINGS = {"depth", "layers", "shared", "groups", "encoder", "decoder", *StackConfig.VARIANTS}
SIDES = ("encoder", "decoder")
NO_ARCHITECTURE = "model.kind: {library} has no '{kind}' to {task}; train another kind if it must load it"
Layout = Literal["auto", "timm"]
log = logging.getLogger(__name__)
MAX_LENGTH = 1024  # limit in generation_config.json
GENERATION_IDS = tuple(
    f"{name}_token_id" for name in ("bos", "eos", "pad", "decoder_start", "forced_bos", "forced_eos")
)


def write_folder(
    model: Any,
    config: Any,
    task: str,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    vocabulary_map: VocabularyMap | None = None,
    function: str = "",
    decode: DecodeConfig | None = None,
    layout: Layout = "auto",
    model_type: str = "",
) -> None:
    """Write a folder that `transformers` loads; or timm, where `layout` says so, where `transformers` has no such
    architecture, or where the model's images are prepared as timm does.

    An imported model gets its Hugging Face ids back, which its tokeniser or `vocabulary_map` knows; a model trained
    here keeps its ids. `function` turns a classifier's logits into probabilities (softmax or sigmoid);
    `decode` is written as `generation_config.json`, if it follows the convention of `generate`. `model_type` asks for
    one of several architectures that compute the same, such as xlm-roberta instead of roberta.
    """
    with explain_refusal(folder):
        if tokenisers and isinstance(tokenisers.source, Pixels):
            _write_image_model(model, config, task, tokenisers, folder, layout, model_type)
        elif layout == "timm":
            raise UserError("--to timm: timm has image models only; use --to hf")
        else:
            _write_text_model(model, config, task, tokenisers, folder, vocabulary_map, function, decode, model_type)


def _write_text_model(
    model: Any,
    config: Any,
    task: str,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    vocabulary_map: VocabularyMap | None,
    function: str,
    decode: DecodeConfig | None,
    model_type: str,
) -> None:
    build_task = "classify" if task == "regress" else task
    labels = tokenisers.target.vocabulary[len(SPECIALS) :] if tokenisers and build_task in LABELLERS else []
    # n-grams, hidden Markov models, word vectors, recurrent networks; agents and policies that have layers
    if not isinstance(config, LayerFields) or task_config(task).reads != "texts":
        raise UserError(NO_ARCHITECTURE.format(library="transformers", kind=config.kind, task=task))
    source, target = find_vocabularies(model, task, tokenisers, labels, vocabulary_map)
    if isinstance(model, ReplacedTokenDetector) and model.generator is not None:
        log.info("generator: not written, as a folder of transformers has the discriminator alone")
        model = ReplacedTokenDetector(model.encoder, model.head)
    model, config = move_sines_first(model, config)
    if isinstance(config, TransformerConfig) and tokenisers and isinstance(tokenisers.source, HfTokeniser):
        config = config.replace(encoder_prefix_id=0, encoder_suffix_id=0)  # tokenizer.json has them
    if separate := build_task == "transduce" and target is not source:
        config = config.replace(tie="target" if config.tie == "auto" else config.tie)
    architecture, hf_config = choose_architecture(config, build_task, source.vocab, separate, model_type=model_type)
    assert isinstance(hf_config, HfTextConfig)
    class_name = architecture.choose_class_name(build_task, model.state_dict())
    state = build_state_dict(model, architecture.with_head(class_name), Vocabularies(source, target))
    state = drop_tied(state, hf_config.tied_weights(class_name))
    state = {architecture.stored_as.get(name, name): tensor for name, tensor in state.items()}
    data = build_config_json(hf_config, class_name, ["LABEL_0"] if task == "regress" else labels)
    data |= choose_problem_type(task, function, labels)
    data |= {f"{architecture.special_name(name)}_token_id": getattr(source, name) for name in SPECIAL_NAMES}
    extra_ids = {f"{key}_token_id": getattr(source, name) for key, name in architecture.extra_special_ids.items()}
    data |= {key: value for key, value in extra_ids.items() if getattr(hf_config, key, value) is not None}
    if separate:
        data["decoder_vocab_size"] = target.vocab
    if architecture.zero_padding and model.encoder.embed.table.weight[PAD].count_nonzero():
        data["pad_token_id"] = None  # its embedding would be lost
    _check_special_ids(architecture, hf_config, data, build_task)
    with create_folder(folder) as temporary:
        save_checkpoint(state, temporary)
        write_json(temporary / "config.json", data)
        generation = build_generation_config(data, source, task, hf_config.context, decode or DecodeConfig())
        if decode and task in GENERATIVE_TASKS:
            generation = merge_search(generation, decode, target)
        write_json(temporary / "generation_config.json", generation)
        if tokenisers and not architecture.write_tokeniser_files(tokenisers, temporary):
            _write_tokenisers(tokenisers, architecture, model, temporary, architecture.reads_pair_types(config))


def _check_special_ids(architecture: Architecture, hf_config: HfConfig, data: Mapping[str, Any], task: str) -> None:
    """Refuse special token ids that change other settings: RoBERTa's positions begin after the padding's id."""
    settings = architecture.hf_config.read(data).to_settings(task, ())
    for key, value in hf_config.to_settings(task, ()).items():
        if settings[key] != value:
            raise UserError(
                f"{key}: config.json of {architecture.model_type} has {settings[key]} with these special tokens, the "
                f"model {value}, so it cannot be exported; train with another value"
            )


def _write_image_model(
    model: Any, config: Any, task: str, tokenisers: Tokenisers, folder: Path | str, layout: Layout, model_type: str
) -> None:
    """The config has the image size and the channels of the training data."""
    pixels = tokenisers.source
    assert isinstance(pixels, Pixels)
    labels = tokenisers.target.vocabulary[len(SPECIALS) :]
    sized_config = config.with_image_size(pixels.height, pixels.width, pixels.channels)
    if pixels.fit is not None and pixels.fit.rounding == "nearest":  # as in timm, from which it was read
        layout = "timm"
    architecture, hf_config = choose_architecture(sized_config, task, layout=layout, model_type=model_type)
    assert isinstance(hf_config, ImageConfig)
    hf_config.check_image_size("config.json")
    class_name = architecture.choose_class_name(task, model.state_dict())
    named = hf_config.add_names(architecture.with_head(class_name))
    state = build_state_dict(model, named, NO_VOCABULARIES)
    files = hf_config.build_files(class_name, task, labels, pixels)
    with create_folder(folder) as temporary:
        save_checkpoint(state, temporary)
        for name, data in files.items():
            write_json(temporary / name, data)


def save_checkpoint(state: Mapping[str, Tensor], folder: Path) -> None:
    """Save a state dict; safetensors needs tensors that share no storage."""
    copies = {name: tensor.clone().contiguous() for name, tensor in state.items()}
    save_file(copies, folder / WEIGHTS, metadata={"format": "pt"})
    apply_umask(folder / WEIGHTS)


def find_vocabularies(
    model: Any,
    task: str,
    tokenisers: Tokenisers | None,
    labels: Collection[str],
    vocabulary_map: VocabularyMap | None = None,
) -> Vocabularies:
    """The map of an imported vocabulary, or that of a model trained here. A regression has no target vocabulary."""
    source, target = _find_vocabularies(model, task, tokenisers, labels, vocabulary_map)
    return Vocabularies(source, VocabularyMap(0) if task == "regress" else target)


def _find_vocabularies(
    model: Any, task: str, tokenisers: Tokenisers | None, labels: Collection[str], vocabulary_map: VocabularyMap | None
) -> Vocabularies:
    tokeniser = _source_tokeniser(tokenisers) if tokenisers else None
    vocabulary_map = tokeniser.vocabulary_map if isinstance(tokeniser, HfTokeniser) else vocabulary_map
    if vocabulary_map is None:
        tables = [side.embed.table for name in SIDES if (side := getattr(model, name, None))]
        sizes = [table.num_embeddings for table in tables]
        native = [
            VocabularyMap(size, PAD, BOS, EOS, UNK, mask=size - 1 if task in MASKING_TASKS else None) for size in sizes
        ]
        if tables[0] is not tables[-1]:  # two vocabularies, even if they have the same size
            return Vocabularies(native[0], native[-1])
        vocabulary_map = native[0]
    return Vocabularies(vocabulary_map, VocabularyMap(len(labels)) if labels else vocabulary_map)


def build_generation_config(
    config: Mapping[str, Any], vocabulary_map: VocabularyMap, task: str, context: int, decode: DecodeConfig
) -> dict[str, Any]:
    """`generation_config.json`: tokens that are never generated here are forbidden there too."""
    never = [row for row in (vocabulary_map.pad, vocabulary_map.bos) if row not in (None, vocabulary_map.eos)]
    data = {key: config[key] for key in GENERATION_IDS if key in config}
    if never and not decode.conventions.generates_special:
        data["bad_words_ids"] = [[row] for row in never]
    return data | ({"max_length": min(context, MAX_LENGTH)} if task == "transduce" else {})


def merge_search(data: dict[str, Any], decode: DecodeConfig, target: VocabularyMap) -> dict[str, Any]:
    """A generation config with the search of a run."""
    search = to_generation_config(decode, lambda number: target.hf_ids[number])
    if "decoder_start_token_id" not in data:  # of a model without an encoder
        search.pop("decoder_start_token_id", None)
    if "max_new_tokens" in search:
        data = {key: value for key, value in data.items() if key != "max_length"}
    if search and decode.eos_token_ids:
        data["eos_token_id"] = [data["eos_token_id"], *(target.hf_ids[number] for number in decode.eos_token_ids)]
    return data | search


def choose_architecture(
    config: Any, task: str, vocab: int = 0, separate: bool = False, layout: Layout = "auto", model_type: str = ""
) -> tuple[Architecture, HfConfig]:
    """The architecture that expresses all of a model config, with its Hugging Face config: the architecture of the
    same kind, or a relative; of timm if `transformers` has none of this kind. Reading the Hugging Face config back
    must give the same settings. `separate`: source and target have vocabularies of their own; `model_type`: no other
    architecture is considered."""
    candidates = find_candidates(config, task, timm=layout == "timm")
    if model_type:
        load_architecture(model_type, "--as")  # refuses an unknown one
        candidates = [each for each in candidates if each.model_type == model_type]
        if not candidates:
            raise UserError(f"--as: {model_type} has no class for the task '{task}' of '{config.kind}'; leave it out")
    if layout == "auto" and not candidates and find_candidates(config, task, timm=True):
        return choose_architecture(config, task, layout="timm")
    if separate and candidates:
        candidates = [each for each in candidates if "decoder_vocab_size" in each.hf_config.model_fields]
        if not candidates:
            raise UserError(
                f"tokeniser: transformers has one vocabulary for both sides of '{config.kind}', so the run cannot be "
                "exported; train with one tokeniser for source and target"
            )
    refusals: list[tuple[int, str]] = []  # number of differing settings, message
    for architecture in sorted(candidates, key=lambda each: not isinstance(config, each.config)):
        try:
            hf_config = architecture.hf_config.from_model_config(config, vocab)
            read_back: Any = architecture.config(**hf_config.to_settings(task, ()))
        except ValidationError as error:
            path, problem = list_problems(error)[0]
            place = ": ".join(filter(None, (f"config.json of {architecture.model_type}", ".".join(path))))
            message = f"{place}: {problem}"
            refusals.append((len(type(config).model_fields), message))  # after those that name a setting of the model
            continue
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
        library = "timm" if layout == "timm" else "transformers"
        raise UserError(NO_ARCHITECTURE.format(library=library, kind=config.kind, task=task))
    raise UserError(min(refusals, key=lambda refusal: refusal[0])[1])  # of the closest architecture


def find_candidates(config: Any, task: str, timm: bool) -> list[Architecture]:
    """The architectures of a library, transformers or timm, that have such a model for a task."""
    able = [each for each in list_architectures(timm=timm) if each.choose_class_name(task)]
    return [each for each in able if isinstance(config, (each.config, *each.relatives))]


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
    settings |= {key: [getattr(stack, key) for stack in config.stacks()] for key in StackConfig.VARIANTS}
    if any(stack.layers for stack in config.stacks()):  # which then say everything
        settings.pop("mixer")
        settings.pop("expert_interval", None)
        settings.pop("expert_place", None)
    return settings


def _write_tokenisers(
    tokenisers: Tokenisers, architecture: Architecture, model: Any, folder: Path, pair_types: bool
) -> None:
    tokeniser, has_labels = _source_tokeniser(tokenisers), not isinstance(model, GenerativeModel)
    flags: dict[str, Any] = {}
    if isinstance(tokeniser, HfTokeniser):
        tokenizer_json = tokeniser.engine
        flags = build_decoding_flags(tokeniser)
        tokens = {name: _find_token(tokeniser, getattr(tokeniser.vocabulary_map, name)) for name in SPECIAL_NAMES}
    elif (tokenisers.shared or has_labels) and (plain_json := to_tokenizer_json(tokeniser)):
        masks = [MASK] if isinstance(model, MaskedLanguageModel | ReplacedTokenDetector) else []
        has_encoder = not isinstance(model, LanguageModel)
        opens = not has_encoder or model.encoder.prefix_id is not None
        first_type = architecture.first_token_type
        tokenizer_json = add_post_processor(plain_json, opens, has_encoder, *masks, first_type=first_type)
        tokens = dict(zip(SPECIAL_NAMES, [*SPECIALS, *masks], strict=False))
    else:
        tokenisers.save(folder / NATIVE)
        return
    write_json(folder / TOKENIZER, tokenizer_json)
    special_tokens = {f"{architecture.special_name(name)}_token": token for name, token in tokens.items() if token}
    data: dict[str, Any] = {"tokenizer_class": VERBATIM, **special_tokens, **flags}
    if pair_types:
        data["model_input_names"] = ["input_ids", TOKEN_TYPES, "attention_mask"]
    if architecture.model_type in ALWAYS_REGISTERED:
        data["auto_map"] = NO_CLASSES
    write_json(folder / TOKENIZER_CONFIG, data)


def build_decoding_flags(tokeniser: HfTokeniser) -> dict[str, Any]:
    """Keys of `tokenizer_config.json` that are not in `tokenizer.json`."""
    flags = dict.fromkeys(CLEAN_UP_KEYS, True) if tokeniser.clean_up else {}
    return flags | ({"split_special_tokens": True} if tokeniser.split_special_tokens else {})


def _source_tokeniser(tokenisers: Tokenisers) -> Tokeniser:
    """The tokeniser of single texts, also where the source is a pair of texts."""
    source = tokenisers.source
    return source.inner if isinstance(source, Paired) else source


def _find_token(tokeniser: HfTokeniser, row: int | None) -> str | None:
    return None if row is None else tokeniser.tokenizer.id_to_token(row)
