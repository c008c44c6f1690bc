"""Tensors of theirs into a model of ours, and back: by an architecture's table of names.

Letters: V rows of a vocabulary.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import CrossProjection, SelfProjection
from headwise.blocks.heads import NEVER
from headwise.blocks.images import PatchEmbedding
from headwise.errors import UserError
from headwise.interop.hf.architecture import Architecture, Key, some
from headwise.interop.hf.files import Weights
from headwise.interop.hf.text import Vocabularies
from headwise.models.init_weights import list_projection_sizes as projections
from headwise.text.hf import NO_ROW, Rows

LEAVES = {"table": "weight"}  # ours -> theirs; others are called alike
PLACES = {"{stage}": r"(?P<stage>\d+)", "{i}": r"(?P<i>\d+)", "{side}": r"(?P<side>encoder|decoder)"}
WORDS = re.compile(r"(.*\.)?(embed|head)\.(table\.weight|bias)")  # our tensors with a row for each word or label
OUTPUT_BIAS = re.compile(r"(.*\.)?head\.bias")
log = logging.getLogger(__name__)


@dataclass
class Link:
    """A tensor of ours with its places in their files."""

    ours: str
    tensor: Tensor
    sizes: Sequence[int]  # of the projections that it fuses; of a patch, channels and sides
    heads: int  # of the attention that it belongs to
    rows: Rows | None  # where it has a row for each word
    key: Key = field(default_factory=lambda: Key(()))
    places: list[list[tuple[str, ...]]] = field(default_factory=list)  # where it may be; copies; parts
    written: list[list[tuple[str, ...]]] = field(default_factory=list)  # where it is put; one for each of our names

    @property
    def names(self) -> Iterator[str]:
        return (name for copies in self.places for parts in copies for name in parts)


def links(model: nn.Module, architecture: Architecture, words: Vocabularies) -> list[Link]:
    """Every tensor of a model, tied ones once."""
    found: dict[int, Link] = {}
    patterns = [
        (_pattern(ours), key if isinstance(key, Key) else Key((key,))) for ours, key in architecture.keys.items()
    ]
    for name, tensor in model.state_dict(keep_vars=True).items():
        link = found.setdefault(id(tensor), _link(model, name, tensor, words))
        for pattern, key in patterns:
            if places := _places(model, name, pattern, key):
                link.key = link.key if link.places else key
                link.places += places
                count = len(link.sizes) or 1
                link.written.append(next((own for own in places if len(own[0]) == count), places[0]))
                break
    for link in found.values():
        if not (link.places or OUTPUT_BIAS.fullmatch(link.ours)):
            raise UserError(
                f"a folder of {architecture.model_type} has no place for {link.ours}, so the model cannot become one"
            )
    return list(found.values())


def _link(model: nn.Module, name: str, tensor: Tensor, words: Vocabularies) -> Link:
    owner = model.get_submodule(name.rsplit(".", 2)[0]) if name.count(".") > 1 else model
    by_word = not isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear)
    rows = _rows(name, words) if by_word else None
    return Link(name, tensor, _sizes(owner, name, tensor), getattr(owner, "heads", 1), rows)


def fill(
    model: nn.Module,
    architecture: Architecture,
    words: Vocabularies,
    weights: Weights,
    holders: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Copy the tensors of a folder into a model, one at a time. `holders` are the stored ones that tied ones are."""
    found = links(model, architecture, words)
    names = set(weights.names)
    _check_names(found, architecture, weights, holders)
    architecture.check(weights)
    with torch.no_grad():
        for link in found:
            parts = _present(link, names)
            made = _made(link, [weights[name] for name in parts], weights.where) if parts else torch.zeros(())
            link.tensor.copy_(made)
            _check_copies(link, parts, weights, holders)
            if link.rows and OUTPUT_BIAS.fullmatch(link.ours):
                link.tensor[list(link.rows.spare)] = NEVER


def collect(model: nn.Module, architecture: Architecture, words: Vocabularies) -> dict[str, Tensor]:
    """Their tensors of a model of ours, tied ones under each of their names."""
    found: dict[str, Tensor] = {}
    for link in links(model, architecture, words):
        tensor = link.tensor.detach().cpu()
        if link.rows:
            tensor = returned(tensor, link.rows)
        if not link.places:
            _check_nothing(link, tensor, architecture)
            continue
        if link.key.by_head:
            tensor = regrouped(tensor, len(link.sizes), link.heads)
        made = link.key.write(tensor, link.sizes)
        for parts in (parts for own in link.written for parts in own):
            found |= dict(zip(parts, made, strict=True))
    return found


def _pattern(ours: str) -> re.Pattern[str]:
    escaped = re.escape(ours)
    for place, group in PLACES.items():
        escaped = escaped.replace(re.escape(place), group)
    return re.compile(escaped)


def _places(model: nn.Module, name: str, pattern: re.Pattern[str], key: Key) -> list[list[tuple[str, ...]]]:
    """Their names for a tensor of ours, where the pattern is its name or its module's."""
    module, _, leaf = name.rpartition(".")
    whole = pattern.fullmatch(name)
    match = whole or pattern.fullmatch(module)
    if not match:
        return []
    ending = "" if whole else f".{LEAVES.get(leaf, leaf)}"
    return [
        list(dict.fromkeys(tuple(each.format(**here) + ending for each in names) for here in _layers(model, match)))
        for names in (key.names, *((other,) for other in key.others))
    ]


def _layers(model: nn.Module, match: re.Match[str]) -> Iterator[dict[str, Any]]:
    """What stands for `{i}` and `{side}`: a layer of ours that is used again is several of theirs."""
    groups = match.groupdict()
    if "i" not in groups:
        yield groups
        return
    stack: Any = model.get_submodule(match.string[: match.start("i")].removesuffix(".layers."))
    for place, layer in enumerate(stack.order):
        if layer == int(groups["i"]):
            yield groups | {"i": place}


def _sizes(owner: nn.Module, name: str, tensor: Tensor) -> Sequence[int]:
    """How many rows of a fused tensor belong to each of its parts, or what its columns are; none where it is whole."""
    if isinstance(owner, SelfProjection | CrossProjection) and name.rsplit(".", 2)[1] == "project":
        return projections(owner)
    if getattr(owner, "gated", False) and name.rsplit(".", 2)[1] == "inner":
        return (len(tensor) // 2,) * 2
    return (owner.channels, owner.patch, owner.patch) if isinstance(owner, PatchEmbedding) else ()


def _rows(name: str, words: Vocabularies) -> Rows | None:
    if not WORDS.fullmatch(name):
        return None
    rows = words.source if name.startswith("encoder.") else words.target
    return rows if rows.vocab else None  # a regression has neither words nor labels


def _present(link: Link, names: set[str]) -> tuple[str, ...]:
    """The first of a tensor's places that is there; tied tensors are often stored once."""
    return next((copies[0] for copies in link.places if names.issuperset(copies[0])), ())


def _made(link: Link, parts: Sequence[Tensor], where: str) -> Tensor:
    """Our tensor of theirs."""
    shapes = " and ".join(str(tuple(part.shape)) for part in parts)
    expected = (link.rows.vocab, *link.tensor.shape[1:]) if link.rows else tuple(link.tensor.shape)
    try:
        made = link.key.read([part.float() for part in parts])
        made = regrouped(made, link.heads, len(link.sizes)) if link.key.by_head else made
    except (RuntimeError, IndexError):
        made = torch.zeros(())
    if made.shape != expected:
        names = link.places[0][0]
        raise UserError(
            f"{where}: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} {shapes}, config.json asks for "
            f"{expected} in all; take both from one model"
        )
    return arranged(made, link.rows) if link.rows else made


def regrouped(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Rows in `outer` groups of `inner` -> in `inner` groups of `outer`."""
    return tensor.unflatten(0, (outer, inner, -1)).transpose(0, 1).flatten(0, 2)


def arranged(theirs: Tensor, rows: Rows) -> Tensor:
    """(V, ...) in their order -> in ours; rows of zeros for what is absent."""
    order = torch.tensor(rows.order)
    made = theirs[order.clamp(min=0)]
    made[order == NO_ROW] = 0
    return made


def returned(ours: Tensor, rows: Rows) -> Tensor:
    """(V, ...) in our order -> in theirs. A mask that was left behind in fine-tuning is a row of zeros."""
    if rows.mask is not None and len(ours) == len(rows.order) - 1:
        ours = torch.cat((ours, torch.zeros_like(ours[:1])))
    return ours[list(rows.back)]


def _check_names(
    found: Sequence[Link], architecture: Architecture, weights: Weights, holders: Mapping[str, str]
) -> None:
    """Every tensor of the model is there, and every stored one is used, a copy of one that is, or left aside for a
    stated reason."""
    names, where = set(weights.names), weights.where
    needed = [link for link in found if link.places and not link.key.optional and not _present(link, names)]
    missing = [name for link in needed for name in link.places[0][0]]
    known = {name for link in found for name in link.names}
    used = {holders[name] for name in known if name in holders}
    reasons = {name: _reason(name, architecture) for name in names - known if holders.get(name) not in used}
    further = [name for name, reason in reasons.items() if not reason]
    if missing:
        raise UserError(f"{where}: has no {some(missing)}; it is not the model that config.json describes")
    if further:
        raise UserError(f"{where}: config.json does not ask for {some(further)}; take both from one model")
    for reason in sorted({reason for reason in reasons.values() if reason}):
        log.info("%s: %s left aside: %s", where, some(name for name in reasons if reasons[name] == reason), reason)


def _reason(name: str, architecture: Architecture) -> str:
    """Why a tensor is left aside; nothing where it may not be."""
    return next((reason for pattern, reason in architecture.ignored.items() if re.fullmatch(pattern, name)), "")


def _check_copies(link: Link, parts: tuple[str, ...], weights: Weights, holders: Mapping[str, str]) -> None:
    """Refuse a folder that stores a tensor of ours under several names, with other values."""
    stored = [copy for copies in link.places for copy in copies if set(copy) <= set(weights.readers) and copy != parts]
    for copy in stored:
        same = [holders.get(one, one) == holders.get(other, other) for one, other in zip(parts, copy, strict=False)]
        if len(copy) != len(parts) or not all(
            done or torch.equal(weights[one], weights[other])
            for done, one, other in zip(same, parts, copy, strict=True)
        ):
            raise UserError(
                f"{weights.where}: {some(parts)} and {some(copy)} are one part of the model, but differ; remove one"
            )


def _check_nothing(link: Link, tensor: Tensor, architecture: Architecture) -> None:
    if tensor.count_nonzero():
        raise UserError(f"{link.ours}: a folder of {architecture.model_type} has no place for it; train without")
