"""The added tokens of a folder's tokenizer, special ones among them, in the order in which `transformers` adds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError
from headwise.interop.hf.tokenizer_classes import TokenizerClass

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # in the order in which transformers adds them
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
MAX_LENGTH = 10_000  # characters of a special token


def is_added_token(token: Any) -> bool:
    return (
        isinstance(token, dict)
        and type(token.get("id")) is int
        and isinstance(token.get("content"), str)
        and all(type(token.get(flag)) is bool for flag in FLAGS)
    )


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
    """The special tokens in the order of `transformers`, named ones with their role or key first; `values` are keys of
    `tokenizer_config.json` that act."""
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


def is_further_token(key: str, value: Any, kind: TokenizerClass) -> bool:
    """Whether a key names a special token of one model, such as `image_token`."""
    named = key.endswith("_token") and key.removesuffix("_token") not in ROLES
    return named and key not in kind.settings and isinstance(value, str | dict)


def check_special_tokens(special: Iterable[tuple[str, Any]]) -> None:
    """Refuse a token that is listed twice with other flags: no `tokenizer.json` can say what comes of it."""
    seen: dict[str, Any] = {}
    for role, token in special:
        flags = {flag: bool(token[flag]) for flag in FLAGS if flag in token} if isinstance(token, dict) else {}
        if not role:
            flags.setdefault("special", not isinstance(token, dict))
        if flags and seen.setdefault(content := read_content(token), flags) != flags:
            raise UserError(f"special token {content[:80]!r}: is listed twice with other flags; remove one")


def list_added_tokens(
    decoder: Any, special: Iterable[tuple[str, Any]], kind: TokenizerClass, tokenizer: Tokenizer
) -> list[AddedToken]:
    """The tokens that `transformers` adds to a tokenizer, in its order: those of the files by id, then special tokens
    that are not there yet. Of special tokens that stand there twice, the last new flags hold."""
    if not isinstance(decoder, dict) or any(not str(number).isdigit() for number in decoder):
        raise UserError("added_tokens_decoder: must map ids to tokens; correct it")
    present = {str(token.content): token for token in tokenizer.get_added_tokens_decoder().values()}
    listed = [token for _, token in sorted(decoder.items(), key=lambda entry: int(entry[0]))]
    entries: dict[str, Any] = {}
    for token in listed:
        content, is_special = read_content(token), isinstance(token, dict) and token.get("special")
        if entries.setdefault(content, token) != token:
            raise UserError(f"added token {content[:80]!r}: is listed twice with other flags; remove one")
        if content in present and present[content].special and not is_special:
            raise UserError(f"added token {content[:80]!r}: is special in tokenizer.json alone; correct it")
    known = {*present, *entries}
    variants: dict[str, list[Any]] = {}
    for role, token in special:
        if (content := read_content(token)) not in known:
            default = {"special": True, **kind.token_flags.get(role, {})}
            flags = token if isinstance(token, dict) else default
            if flags not in variants.setdefault(content, []):
                variants[content].append(flags)
                entries[content] = flags
            if tokenizer.normalizer and len({bool(each.get("normalized")) for each in variants[content]}) > 1:
                raise UserError(f"special token {content[:80]!r}: is listed twice, once as normalized; correct one")
    named = {read_content(token) for role, token in special if role or kind.adds_again == "unnamed"}
    tokens = {content: build_added_token(content, entry, content in named) for content, entry in entries.items()}
    return [token for content, token in tokens.items() if has_other_flags(token, present.get(content))]


def list_repeated_tokens(
    special: Iterable[tuple[str, Any]], values: Mapping[str, Any], kind: TokenizerClass
) -> list[AddedToken]:
    """The special tokens that a class adds a second time, which changes their flags: all of them without flags, or
    those whose roles the files do not name, and further ones with flags of their own."""
    named = {read_content(token) for role, token in special if f"{role}_token" in values}
    tokens = {
        read_content(token): token if isinstance(token, dict) and kind.adds_again == "unnamed" else {}
        for role, token in special
        if kind.adds_again == "all"
        or (
            kind.adds_again == "unnamed"
            and (read_content(token) not in named or (not role and isinstance(token, dict)))
        )
    }
    return [build_added_token(content, token, named=True) for content, token in tokens.items()]


def has_other_flags(token: AddedToken, other: AddedToken | None) -> bool:
    return other is None or any(getattr(token, flag) != getattr(other, flag) for flag in FLAGS)


def build_added_token(content: str, entry: Any, named: bool) -> AddedToken:
    from tokenizers import AddedToken

    flags = {key: value for key, value in entry.items() if key in FLAGS} if isinstance(entry, dict) else {}
    if any(not isinstance(value, bool) for value in flags.values()):
        raise UserError(f"added token {content}: its flags must be true or false; correct it")
    special = bool(flags.pop("special", False))
    return AddedToken(content, special=special or named, **flags)


def check_normalised_tokens(tokenizer: Tokenizer) -> None:
    """Refuse two added tokens that a text spells alike, of which one is special: a lowercasing tokenizer finds `<NEW>`
    as `<new>`, and whether decoding leaves it out depends on the order in which they were added."""
    seen: dict[str, AddedToken] = {}
    for token in tokenizer.get_added_tokens_decoder().values():
        content = str(token.content)
        changed = token.normalized and tokenizer.normalizer is not None
        spelling = tokenizer.normalizer.normalize_str(content) if changed else content
        other = seen.setdefault(spelling, token)
        if other.special != token.special:
            raise UserError(f"added tokens {other.content!r} and {content!r}: are one for this tokenizer; remove one")
