"""`tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`: the `tokenizer.json` that
`AutoTokenizer` makes of them.

Every key acts, is refused, or has no effect on ids and decoded texts for the reason given here. A key that is not
listed is refused: what it changes is unknown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.added_tokens import (
    ROLES,
    check_normalised_tokens,
    check_special_tokens,
    is_added_token,
    list_added_tokens,
    list_repeated_tokens,
    list_special_tokens,
    read_content,
)
from headwise.interop.hf.tokenizer_classes import CLASSES, VERBATIM, Inputs, Json, TokenizerClass, choose_class
from headwise.interop.hf.vocabulary_files import read_vocabulary_files

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
TOKEN_TYPES = "token_type_ids"

CLEAN_UP_KEYS = (
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
)
NO_CLASSES = {"AutoTokenizer": [None, None]}  # `auto_map` with which AutoTokenizer follows tokenizer_class in any case

# Keys that act for every class.
ACTING = {
    **{f"{role}_token": "names a special token, which is added if it is none" for role in ROLES},
    "added_tokens_decoder": "adds tokens, with their flags; special_tokens_map.json and added_tokens.json are not read",
    "extra_special_tokens": "adds special tokens",
    "additional_special_tokens": "the same in older files",
    "split_special_tokens": "special tokens in a text are text",
    CLEAN_UP_KEYS[0]: "decoding removes spaces before punctuation, except for BPE",
    CLEAN_UP_KEYS[1]: "decoding does so for BPE, too",
    "tokenizer_class": "chooses the class",
    "model_input_names": "with token_type_ids, the texts of a pair have the token types of the post_processor",
}
# Values of keys that would change ids in a way that is not supported; these are the ones that change nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "auto_map": ({}, [], NO_CLASSES),
    "init_inputs": ([],),
    "fast_tokenizer_files": ([], [TOKENIZER]),
    "fix_mistral_regex": (False,),
}
POST_PROCESSOR = "the post_processor of tokenizer.json, or the class, says which special tokens are added"
LENGTHS = "Headwise pads and cuts texts by itself"
SLOW = "only for tokenizers without tokenizer.json"
FILES = "a file name, or how files are found"
CHAT = "only for chat templates"
METADATA = "metadata"
NO_EFFECT = {
    **dict.fromkeys(("add_bos_token", "add_eos_token"), POST_PROCESSOR),
    **dict.fromkeys(
        ("model_max_length", "max_len", "max_length", "max_seq_length", "truncation", "truncation_side",
         "truncation_strategy", "stride", "padding", "padding_side", "pad_to_multiple_of", "pad_token_type_id"),
        LENGTHS,
    ),
    **dict.fromkeys(
        ("use_fast", "from_slow", "sp_model_kwargs", "spaces_between_special_tokens", "do_basic_tokenize",
         "never_split", "errors", "remove_space", "vocab_type", "separate_vocabs", "language_codes",
         "source_lang", "target_lang", "slow_tokenizer_class"),
        SLOW,
    ),
    **dict.fromkeys(
        ("name_or_path", "tokenizer_file", "vocab_file", "merges_file", "spm_file", "full_tokenizer_file",
         "special_tokens_map_file", "added_tokens_file", "is_local", "local_files_only", "files_loaded", "device_map",
         "cache_dir"),
        FILES,
    ),
    **dict.fromkeys(
        ("chat_template", "response_template", "response_schema", "chat_control_tokens", "use_default_system_prompt"),
        CHAT,
    ),
    **dict.fromkeys(
        ("processor_class", "transformers_version", "_commit_hash", "verbose", "backend", "tokenizer_type"), METADATA
    ),
    "trim_offsets": "only for the offsets of tokens in a text",
    "tgt_lang": "only for the targets of training; generation_config.json says which language is generated",
}  # fmt: skip
MAX_TOKENS = 100_000  # that a class may be asked to add
CLASS_KEYS = frozenset(key for kind in CLASSES.values() for key in kind.settings)  # for some classes


@dataclass(frozen=True)
class ResolvedTokenizer:
    """What `AutoTokenizer` makes of a folder."""

    tokenizer_json: Json
    special_tokens: dict[str, str]  # `bos_token` and the like
    new_tokens: frozenset[str] = frozenset()  # that tokenizer.json does not have
    clean_up: bool = False
    split_special_tokens: bool = False
    returns_token_types: bool = False  # without them, every token has the first type


def resolve_tokenizer(folder: Path, config: Mapping[str, Any]) -> ResolvedTokenizer:
    """The tokenizer of a folder that has a `tokenizer.json`, or the vocabulary files of older folders, as
    `AutoTokenizer` loads it; `config` is `config.json`."""
    from_files = not (folder / TOKENIZER).is_file()
    original = read_vocabulary_files(folder) if from_files else read_json(folder / TOKENIZER)
    check_tokenizer_json(original, folder / TOKENIZER)
    original["added_tokens"] = original.get("added_tokens") or []
    where = str(folder / TOKENIZER_CONFIG)
    try:
        values = read_values(folder, original)
        name = choose_class(
            str(config.get("model_type", "")),
            str(values.get("tokenizer_class") or config.get("tokenizer_class") or ""),
            '"ByteLevel"' in json.dumps(original),
            follow_name=values.get("auto_map") == NO_CLASSES,
        )
        if name not in CLASSES:
            raise UserError(
                f"tokenizer_class: '{name[:80]}' is not known, or does not read tokenizer.json; set {VERBATIM} if "
                "tokenizer.json is complete"
            )
        if from_files and CLASSES[name].build is None:
            raise UserError(
                f"tokenizer_class: {name} reads {TOKENIZER}, which the folder does not have; write it with "
                f"transformers: AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}')"
            )
        check_keys(values, name)
        return build_tokenizer(original, values, CLASSES[name])
    except UserError as error:
        raise UserError(str(error) if str(folder) in str(error) else f"{where}: {error}") from None


def check_tokenizer_json(data: Json, path: Path) -> None:
    """Refuse contents that are no `tokenizer.json`."""
    model, added = data.get("model"), data.get("added_tokens") or []
    vocab = model.get("vocab") if isinstance(model, dict) else None
    pairs = isinstance(vocab, list) and all(isinstance(entry, list) and len(entry) == 2 for entry in vocab)
    if not (pairs or isinstance(vocab, dict)):
        raise UserError(f"{path}: has no model with a vocabulary; fetch it again")
    if not isinstance(added, list) or any(not is_added_token(token) for token in added):
        raise UserError(f"{path}: added_tokens: each must have an id, a content and flags; fetch it again")
    contents = Counter(token["content"] for token in added)
    if repeated := [content for content, count in contents.items() if count > 1]:
        raise UserError(f"{path}: added_tokens: {repeated[0][:80]!r} is listed twice; remove one")
    if not isinstance(data.get("normalizer"), dict | None):
        raise UserError(f"{path}: normalizer: must be an object; fetch it again")


def check_keys(values: Mapping[str, Any], name: str) -> None:
    """Refuse keys whose effect is unknown, and values that are not supported."""
    for key, value in values.items():
        if key in NEUTRAL and value is not None and value not in NEUTRAL[key]:
            raise UserError(f"{key}: {str(value)[:80]} is not supported; remove it")
        known = {*ACTING, *NEUTRAL, *NO_EFFECT, *CLASS_KEYS}
        if key not in known and not (key.endswith("_token") and isinstance(value, str | dict)):
            raise UserError(f"{key}: nothing here knows what this key changes; remove it if it is none")
    for key, default in CLASSES[name].settings.items():
        value = values.get(key, default)
        if type(default) in (bool, int):
            fits = type(value) in (bool, int) and 0 <= value <= MAX_TOKENS
        else:
            fits = value is None or isinstance(value, str if isinstance(default, str) else bool)
        if not fits:
            raise UserError(f"{key}: {str(value)[:80]!r} is no value of it; correct it")


def read_values(folder: Path, tokenizer_json: Json) -> dict[str, Any]:
    """The keys of `tokenizer_config.json` with those of the older files that complete it, and every added token in
    `added_tokens_decoder`."""
    files = {name: folder / name for name in (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, ADDED_TOKENS)}
    contents = {name: read_json(path) if path.is_file() else {} for name, path in files.items()}
    values = dict(contents[TOKENIZER_CONFIG])
    if "additional_special_tokens" in values and not values.get("extra_special_tokens"):
        values["extra_special_tokens"] = values["additional_special_tokens"]
    values.pop("additional_special_tokens", None)
    if "added_tokens_decoder" in values:
        return values
    for key, value in contents[SPECIAL_TOKENS_MAP].items():
        if key == "extra_special_tokens" and isinstance(value, list):
            values[key] = [*(values.get(key) or []), *map(mark_special, value)]
        else:
            values[key] = mark_special(value)
    extra = values.get("extra_special_tokens")
    special = [values.get(f"{role}_token") for role in ROLES] + (list(extra) if isinstance(extra, list | dict) else [])
    # tokens that tokenizer_config.json gives with their flags count for none there
    named = {read_content(token) for token in special if token and not (isinstance(token, dict) and "__type" in token)}
    if any(type(number) is not int or number < 0 for number in contents[ADDED_TOKENS].values()):
        raise UserError(f"{files[ADDED_TOKENS]}: must map tokens to ids; correct it")
    added = {
        number: {"content": token, "normalized": token not in named, "special": token in named}
        for token, number in contents[ADDED_TOKENS].items()
    }
    added |= {token["id"]: token for token in tokenizer_json["added_tokens"]}
    values["added_tokens_decoder"] = {str(number): token for number, token in added.items()}
    return values


def mark_special(token: Any) -> Any:
    """A token of `special_tokens_map.json`, which is special whatever its flags say."""
    flags = {key: value for key, value in token.items() if key != "__type"} if isinstance(token, dict) else {}
    return {**flags, "special": True} if flags else token


def build_tokenizer(original: Json, values: Mapping[str, Any], kind: TokenizerClass) -> ResolvedTokenizer:
    """The tokenizer of a class, with the added tokens of the files."""
    tokens = {role: values.get(f"{role}_token", kind.tokens.get(role)) for role in ROLES}
    padding = original.get("padding")
    if isinstance(padding, dict) and "pad" not in kind.tokens and "pad_token" not in values:
        tokens["pad"] = padding.get("pad_token")
    settings = {key: values.get(key, default) for key, default in kind.settings.items()}
    if "src_lang" in settings:
        settings["src_lang"] = settings["src_lang"] or kind.settings["src_lang"]
    acting = {key: value for key, value in values.items() if key not in NO_EFFECT}
    special = list_special_tokens(acting, tokens, settings, kind)
    check_special_tokens(special)
    names = {role: read_content(token) for role, token in tokens.items() if token is not None}
    data = original if kind.build is None else rebuild(original, settings, names, kind)
    unknown = data["model"].get("unk_token")
    if infer_model_type(data) in ("WordPiece", "WordLevel") and unknown not in read_pieces(data):
        raise UserError(f"unk_token: {unknown} is no token of the vocabulary in tokenizer.json; correct it")
    if dropout := data["model"].get("dropout"):
        raise UserError(f"{TOKENIZER} has a BPE dropout of {dropout}, which splits words at random; set it to null")
    tokenizer = load_tokenizer(data)
    added = list_added_tokens(values.get("added_tokens_decoder") or {}, special, kind, tokenizer)
    if kind.build is not None or added:
        tokenizer.add_tokens(added)
        tokenizer.add_tokens(list_repeated_tokens(special, values, kind))
    check_normalised_tokens(tokenizer)
    if kind.build is not None or added:
        data = json.loads(tokenizer.to_str())
    if kind.template or (kind.build is not None and not data.get("post_processor")):
        roles = {**names, "src_lang": settings.get("src_lang")}
        data = {**data, "post_processor": build_template(kind, roles, tokenizer)}
    clean, forced = (bool(values.get(key)) for key in CLEAN_UP_KEYS)
    present = set(read_pieces(original)) | {token["content"] for token in original["added_tokens"]}
    return ResolvedTokenizer(
        data,
        {f"{role}_token": name for role, name in names.items()},
        frozenset(str(token.content) for token in added) - present,
        clean and (forced or infer_model_type(original) != "BPE"),
        bool(values.get("split_special_tokens")),
        returns_token_types(values, kind),
    )


def returns_token_types(values: Mapping[str, Any], kind: TokenizerClass) -> bool:
    """Whether a tokenizer returns token types beside the ids."""
    names = values.get("model_input_names", [TOKEN_TYPES] if kind.token_types else [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"model_input_names: {str(names)[:80]!r} is no list of names; correct it")
    return TOKEN_TYPES in names


def rebuild(original: Json, settings: Mapping[str, Any], names: Mapping[str, str], kind: TokenizerClass) -> Json:
    """A `tokenizer.json` without added tokens: the vocabulary of the file in the pipeline of a class."""
    assert kind.build is not None
    model = original["model"]
    if (found := infer_model_type(original)) != kind.model:
        raise UserError(
            f"tokenizer_class: makes {kind.model} tokenizers, and tokenizer.json has {found}; set it to {VERBATIM}"
        )
    pieces = model["vocab"] if isinstance(model["vocab"], list) else []
    pipeline = kind.build(Inputs(settings, {**kind.tokens, **names}, pieces, find_charsmap(original)))
    kept = {key: model[key] for key in ("vocab", "merges") if key in model}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": pipeline.normalizer,
        "pre_tokenizer": pipeline.pre_tokenizer,
        "post_processor": original.get("post_processor"),
        "decoder": pipeline.decoder,
        "model": {**pipeline.model, **kept},
    }


def infer_model_type(data: Json) -> str:
    """The type of the model, which older files leave out."""
    model = data["model"]
    if "type" in model:
        return str(model["type"])
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "BPE" if "merges" in model else "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def read_pieces(data: Json) -> Iterable[str]:
    vocab = data["model"]["vocab"]
    return vocab if isinstance(vocab, dict) else [piece for piece, _ in vocab]


def find_charsmap(data: Json) -> Json | None:
    """The normalizer of a SentencePiece model, if the file has one."""
    normalizer = data.get("normalizer") or {}
    steps = normalizer.get("normalizers") if normalizer.get("type") == "Sequence" else [normalizer]
    steps = steps if isinstance(steps, list) else []
    return next((step for step in steps if isinstance(step, dict) and step.get("type") == "Precompiled"), None)


def load_tokenizer(data: Json) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(json.dumps(data))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise UserError(f"{TOKENIZER} cannot be read with it ({error}); fetch it again") from None


def build_template(kind: TokenizerClass, names: Mapping[str, Any], tokenizer: Tokenizer) -> Json:
    """The post-processor of a class."""
    special_tokens: Json = {}

    def build_item(item: str) -> Json:
        role, _, number = item.partition(":")
        type_id = int(number or 0)
        if role in ("A", "B"):
            return {"Sequence": {"id": role, "type_id": type_id}}
        name = names.get(role)
        token_id = None if name is None else tokenizer.token_to_id(name)
        if name is None or token_id is None:
            key = role if role == "src_lang" else f"{role}_token"
            raise UserError(f"{key}: {name} is no token, and texts are put between it; name one that exists")
        special_tokens[name] = {"id": name, "ids": [token_id], "tokens": [name]}
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    single, pair = ([build_item(item) for item in text.split()] for text in kind.template or kind.fallback)
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special_tokens}
