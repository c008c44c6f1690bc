"""`tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`: the `tokenizer.json` that
`AutoTokenizer` makes of them.

Every key acts, is refused, or has no effect on ids and decoded texts for the reason given here. A key that is not
listed is refused: what it changes is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.tokenizer_classes import CLASSES, VERBATIM, Inputs, Json, TokenizerClass, choose_class
from headwise.interop.hf.vocabulary_files import read_vocabulary_files

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
TOKEN_TYPES = "token_type_ids"
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # in the order in which transformers adds them

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
         "never_split", "errors", "remove_space", "vocab_type", "separate_vocabs",
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
MAX_LENGTH = 10_000  # characters of a special token
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
    if not isinstance(data.get("normalizer"), dict | None):
        raise UserError(f"{path}: normalizer: must be an object; fetch it again")


def is_added_token(token: Any) -> bool:
    return (
        isinstance(token, dict)
        and type(token.get("id")) is int
        and isinstance(token.get("content"), str)
        and all(type(token.get(flag)) is bool for flag in FLAGS)
    )


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
            values[key] = [*(values.get(key) or []), *value]
        else:
            values[key] = {**value, "special": True} if isinstance(value, dict) else value
    named = {read_content(values[f"{role}_token"]) for role in ROLES if values.get(f"{role}_token")}
    extra = values.get("extra_special_tokens")
    named |= {read_content(token) for token in extra or ()} if isinstance(extra, list | dict) else set()
    if any(type(number) is not int or number < 0 for number in contents[ADDED_TOKENS].values()):
        raise UserError(f"{files[ADDED_TOKENS]}: must map tokens to ids; correct it")
    added = {
        number: {"content": token, "normalized": token not in named, "special": token in named}
        for token, number in contents[ADDED_TOKENS].items()
    }
    added |= {token["id"]: token for token in tokenizer_json["added_tokens"]}
    values["added_tokens_decoder"] = {str(number): token for number, token in added.items()}
    return values


def build_tokenizer(original: Json, values: Mapping[str, Any], kind: TokenizerClass) -> ResolvedTokenizer:
    """The tokenizer of a class, with the added tokens of the files."""
    tokens = {role: values.get(f"{role}_token", kind.tokens.get(role)) for role in ROLES}
    padding = original.get("padding")
    if isinstance(padding, dict) and "pad" not in kind.tokens and "pad_token" not in values:
        tokens["pad"] = padding.get("pad_token")
    settings = {key: values.get(key, default) for key, default in kind.settings.items()}
    if "src_lang" in settings:
        settings["src_lang"] = settings["src_lang"] or kind.settings["src_lang"]
    special = list_special_tokens(values, tokens, settings, kind)
    added = list_added_tokens(values.get("added_tokens_decoder") or {}, special, kind)
    names = {role: read_content(token) for role, token in tokens.items() if token is not None}
    data = original if kind.build is None else rebuild(original, settings, names, kind)
    unknown = data["model"].get("unk_token")
    if infer_model_type(data) in ("WordPiece", "WordLevel") and unknown not in read_pieces(data):
        raise UserError(f"unk_token: {unknown} is no token of the vocabulary in tokenizer.json; correct it")
    tokenizer = load_tokenizer(data)
    if kind.build is not None or needs_tokens(tokenizer, added):
        tokenizer.add_tokens(added)
        if kind.adds_again:
            from tokenizers import AddedToken

            contents = dict.fromkeys(read_content(token) for _, token in special)
            tokenizer.add_tokens([AddedToken(content, special=True) for content in contents])
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


def read_content(token: Any) -> str:
    """The text of a special token, which some files have with its flags."""
    content = token.get("content") if isinstance(token, dict) else token
    if not isinstance(content, str):
        raise UserError(f"{str(token)[:80]} is no special token; write its text")
    if len(content) > MAX_LENGTH:
        raise UserError(f"{content[:40]}... is a special token of {len(content):,} characters; correct it")
    return content


def list_special_tokens(
    values: Mapping[str, Any], tokens: Mapping[str, Any], settings: Mapping[str, Any], kind: TokenizerClass
) -> list[tuple[str, Any]]:
    """The special tokens in the order of `transformers`, named ones with their role or key first."""
    extra = values.get("extra_special_tokens")
    further = {key: value for key, value in values.items() if is_further_token(key, value, kind)}
    if isinstance(extra, dict):
        further |= extra
    if isinstance(extra, dict) or "extra_special_tokens" not in values:
        additional = values.get("additional_special_tokens") or []
        extra = kind.list_extra_tokens(settings, additional) if isinstance(additional, list) else additional
    if not isinstance(extra, list | None):
        raise UserError("extra_special_tokens: must be a list of tokens; correct it")
    special = [*tokens.items(), *further.items(), *(("", token) for token in extra or ())]
    return [(role, token) for role, token in special if token is not None]


def list_added_tokens(decoder: Any, special: Iterable[tuple[str, Any]], kind: TokenizerClass) -> list[AddedToken]:
    """The tokens that `transformers` adds, in its order: those of the files by id, then special tokens."""
    if not isinstance(decoder, dict) or any(not str(number).isdigit() for number in decoder):
        raise UserError("added_tokens_decoder: must map ids to tokens; correct it")
    entries = {read_content(token): token for _, token in sorted(decoder.items(), key=lambda entry: int(entry[0]))}
    named = {read_content(token) for role, token in special if role}
    for role, token in special:
        flags = token if isinstance(token, dict) else {"special": True, **kind.token_flags.get(role, {})}
        entries.setdefault(read_content(token), flags)
    return [build_added_token(content, entry, content in named) for content, entry in entries.items()]


def is_further_token(key: str, value: Any, kind: TokenizerClass) -> bool:
    """Whether a key names a special token of one model, such as `image_token`."""
    named = key.endswith("_token") and key.removesuffix("_token") not in ROLES
    return named and key not in NO_EFFECT and key not in kind.settings and isinstance(value, str | dict)


def build_added_token(content: str, entry: Any, named: bool) -> AddedToken:
    from tokenizers import AddedToken

    flags = {key: value for key, value in entry.items() if key in FLAGS} if isinstance(entry, dict) else {}
    if any(not isinstance(value, bool) for value in flags.values()):
        raise UserError(f"added token {content}: its flags must be true or false; correct it")
    special = bool(flags.pop("special", False))
    return AddedToken(content, special=special or named, **flags)


FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def needs_tokens(tokenizer: Tokenizer, added: Iterable[AddedToken]) -> bool:
    """Whether a tokenizer lacks one of these tokens, or has it with other flags."""
    present = {str(token.content): token for token in tokenizer.get_added_tokens_decoder().values()}
    return any(
        (other := present.get(str(token.content))) is None
        or any(getattr(token, flag) != getattr(other, flag) for flag in FLAGS)
        for token in added
    )


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
