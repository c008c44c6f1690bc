"""Convert a Hugging Face state dict into the tensors of a Headwise model, and back, by an architecture's name map.

Letters: V rows of a vocabulary.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.blocks.attention.multihead import CrossProjection, SelfProjection
from headwise.blocks.heads import SUPPRESSED_BIAS
from headwise.blocks.images import PatchEmbedding
from headwise.errors import UserError
from headwise.interop.hf.architecture import (
    Architecture,
    NameMap,
    WeightConverter,
    concatenate,
    list_names,
    transpose_matrix,
)
from headwise.interop.hf.files import DTYPES, UNQUANTISED, WEIGHT_DTYPES, LazyStateDict
from headwise.interop.hf.text import Vocabularies
from headwise.models.init_weights import list_projection_sizes
from headwise.text.hf import NO_HF_ID, VocabularyMap

LEAF_NAMES = {"table": "weight"}  # Headwise -> Hugging Face; all others are equal
PLACEHOLDERS = {
    "{stage}": r"(?P<stage>\d+)",
    "{i}": r"(?P<i>\d+)",
    "{n}": r"(?P<n>\d+)",
    "{side}": r"(?P<side>encoder|decoder)",
}
VOCABULARY_TENSORS = re.compile(r"(.*\.)?(embed|head)\.(table\.weight|bias)")  # one row for each token or label
OUTPUT_BIAS = re.compile(r"(.*\.)?head\.bias")
log = logging.getLogger(__name__)

Parts = tuple[str, ...]  # Hugging Face tensors that together are one Headwise tensor
Copies = list[Parts]  # the same tensor for each layer that shares it


@dataclass
class MappedTensor:
    """A Headwise tensor with its Hugging Face names."""

    name: str
    tensor: Tensor
    sizes: Sequence[int]  # rows of each projection that it fuses; of a patch embedding, channels and sides
    heads: int  # of the attention that it belongs to
    vocabulary_map: VocabularyMap | None  # where it has a row for each token
    converter: WeightConverter = field(default_factory=lambda: WeightConverter(()))
    candidates: list[Copies] = field(default_factory=list)  # names that a checkpoint may store it under
    written: list[Copies] = field(default_factory=list)  # names that it is exported under, for each of its own names

    @property
    def hf_names(self) -> Iterator[str]:
        return (name for copies in self.candidates for parts in copies for name in parts)


def map_tensors(model: nn.Module, architecture: Architecture, vocabularies: Vocabularies) -> list[MappedTensor]:
    """Every tensor of a model with its Hugging Face names; tied tensors once."""
    mapped: dict[int, MappedTensor] = {}
    patterns = NamePatterns(architecture.name_map)
    for name, tensor in model.state_dict(keep_vars=True).items():
        entry = mapped.setdefault(id(tensor), _describe_tensor(model, name, tensor, vocabularies))
        for pattern, converter in patterns.list_candidates(name):
            if candidates := _expand_names(model, name, tensor, pattern, converter):
                entry.converter = entry.converter if entry.candidates else converter
                entry.candidates += candidates
                count = len(entry.sizes) or 1
                entry.written.append(next((copies for copies in candidates if len(copies[0]) == count), candidates[0]))
                break
    for entry in mapped.values():
        if not (entry.candidates or OUTPUT_BIAS.fullmatch(entry.name)):
            raise UserError(
                f"{entry.name}: a checkpoint of {architecture.model_type} has no tensor for it, so the model cannot be "
                "exported; train one without it"
            )
    return list(mapped.values())


def _describe_tensor(model: nn.Module, name: str, tensor: Tensor, vocabularies: Vocabularies) -> MappedTensor:
    owner = model.get_submodule(name.rsplit(".", 2)[0]) if name.count(".") > 1 else model
    has_rows = not isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear)
    vocabulary_map = _find_vocabulary_map(name, vocabularies) if has_rows else None
    return MappedTensor(name, tensor, _list_part_sizes(owner, name, tensor), getattr(owner, "heads", 1), vocabulary_map)


def compare_checkpoint(
    model: nn.Module,
    architecture: Architecture,
    vocabularies: Vocabularies,
    weights: LazyStateDict,
    stored_names: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Compare names, dtypes and shapes of a checkpoint with a model before any tensor is read.

    `stored_names`: tied tensor -> the stored one it equals.
    """
    mapped = map_tensors(model, architecture, vocabularies)
    names = set(weights.names)
    _check_names(mapped, architecture, weights, stored_names)
    for entry in mapped:
        parts = _find_stored(entry, names)
        if parts and all(name in weights.info for name in parts):
            dtypes = WEIGHT_DTYPES if entry.tensor.is_floating_point() else DTYPES
            _convert(entry, [build_meta_tensor(weights, name, dtypes) for name in parts], weights.where)


def build_meta_tensor(weights: LazyStateDict, name: str, dtypes: Mapping[str, torch.dtype]) -> Tensor:
    """A tensor without contents of a stored tensor's shape; other dtypes are refused."""
    info = weights.info[name]
    if info.dtype not in dtypes:
        known = ", ".join(dtypes)
        raise UserError(f"{weights.where}: {name} has the dtype {info.dtype}, but must have {known}; {UNQUANTISED}")
    return torch.empty(info.shape, device="meta")  # float32, so that no conversion imports torch's rules of dtypes


def load_weights(
    model: nn.Module,
    architecture: Architecture,
    vocabularies: Vocabularies,
    weights: LazyStateDict,
    stored_names: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Copy a checkpoint, which `compare_checkpoint` has checked, into a model.

    The largest tensors come first: what is mapped and converted beside the weights that are complete is then least
    while these are most.
    """
    names = set(weights.names)
    mapped = map_tensors(model, architecture, vocabularies)
    with torch.no_grad():
        for entry in sorted(mapped, key=lambda entry: -entry.tensor.numel()):
            parts = _find_stored(entry, names)
            if parts and entry.vocabulary_map and len(parts) == 1 and entry.converter.read is concatenate:
                _copy_rows(entry, parts[0], entry.vocabulary_map, weights)
            elif parts:
                _copy(entry, _convert(entry, [weights[name] for name in parts], weights.where))
            else:
                entry.tensor.zero_()
            _check_copies(entry, parts, weights, stored_names)
            _check_finite(entry, parts, weights.where)
            if entry.vocabulary_map and OUTPUT_BIAS.fullmatch(entry.name):
                entry.tensor[list(entry.vocabulary_map.suppressed_ids)] = SUPPRESSED_BIAS


def _copy_rows(entry: MappedTensor, name: str, vocabulary_map: VocabularyMap, weights: LazyStateDict) -> None:
    """Copy the rows of a vocabulary, which are often most of a checkpoint, a few at a time: mapped and converted as a
    whole they would need as much memory as in the model."""
    order, first = torch.tensor(vocabulary_map.hf_ids), 0
    for part in weights.iterate_rows(name):
        ids = ((order >= first) & (order < first + len(part))).nonzero().squeeze(1)
        entry.tensor[ids] = part.float()[order[ids] - first]
        first += len(part)
    entry.tensor[order == NO_HF_ID] = 0  # absent special tokens


def _copy(entry: MappedTensor, tensor: Tensor) -> None:
    """Copy a converted tensor into a model's; the rows of a vocabulary get Headwise's order."""
    if entry.vocabulary_map is None:
        entry.tensor.copy_(tensor)
        return
    order = torch.tensor(entry.vocabulary_map.hf_ids)
    torch.index_select(tensor.float(), 0, order.clamp(min=0), out=entry.tensor.data)
    entry.tensor[order == NO_HF_ID] = 0  # absent special tokens


def build_state_dict(model: nn.Module, architecture: Architecture, vocabularies: Vocabularies) -> dict[str, Tensor]:
    """The Hugging Face state dict of a model, with tied tensors under each of their names."""
    state: dict[str, Tensor] = {}
    for entry in map_tensors(model, architecture, vocabularies):
        tensor = entry.tensor.detach().cpu()
        if entry.vocabulary_map:
            tensor = to_hf_order(tensor, entry.vocabulary_map)
        if not entry.candidates:
            _check_zero(entry, tensor, architecture)
            continue
        if entry.converter.by_head:
            tensor = regroup_rows(tensor, len(entry.sizes), entry.heads)
        converted = entry.converter.write(tensor, entry.sizes)
        for parts in (parts for copies in entry.written for parts in copies):
            state |= dict(zip(parts, converted, strict=True))
    return state


class NamePatterns:
    """The patterns of a name map. Those without placeholders, of which there may be hundreds, are looked up."""

    def __init__(self, name_map: NameMap):
        self.converters = [
            value if isinstance(value, WeightConverter) else WeightConverter((value,)) for value in name_map.values()
        ]
        self.literals = {name: number for number, name in enumerate(name_map) if "{" not in name}
        self.patterns = {number: _compile_pattern(name) for number, name in enumerate(name_map) if "{" in name}

    def list_candidates(self, name: str) -> Iterator[tuple[re.Pattern[str], WeightConverter]]:
        """The patterns that may match a tensor's name or its module's, in the order of the name map."""
        literals = {self.literals[key]: key for key in (name, name.rpartition(".")[0]) if key in self.literals}
        for number in sorted({*self.patterns, *literals}):
            pattern = self.patterns.get(number) or _compile_pattern(literals[number])
            yield pattern, self.converters[number]


@cache  # the same names at every checkpoint, more than `re` caches
def _compile_pattern(name: str) -> re.Pattern[str]:
    escaped = re.escape(name)
    for placeholder, group in PLACEHOLDERS.items():
        escaped = escaped.replace(re.escape(placeholder), group)
    return re.compile(escaped)


def _expand_names(
    model: nn.Module, name: str, tensor: Tensor, pattern: re.Pattern[str], converter: WeightConverter
) -> list[Copies]:
    """The Hugging Face names of a tensor, if the pattern matches its name or its module's."""
    module, _, leaf = name.rpartition(".")
    whole_name = pattern.fullmatch(name)
    match = whole_name or pattern.fullmatch(module)
    if not match or (converter.by_expert and tensor.dim() < 3):  # a dense network under the name of experts
        return []
    ending = "" if whole_name else f".{LEAF_NAMES.get(leaf, leaf)}"
    layers = list(_list_layers(model, match))
    names = _expand_experts(converter.names, len(tensor)) if converter.by_expert else converter.names
    return [
        list(dict.fromkeys(tuple(template.format(**layer) + ending for template in templates) for layer in layers))
        for templates in (names, *converter.alternatives)
    ]


def _expand_experts(names: Sequence[str], experts: int) -> tuple[str, ...]:
    """The names with the number of each expert for `{e}`, expert by expert."""
    return tuple(name.replace("{e}", str(expert)) for expert in range(experts) for name in names)


def _list_layers(model: nn.Module, match: re.Match[str]) -> Iterator[dict[str, Any]]:
    """The values of `{i}`, `{group}`, `{inner}` and `{side}`: a layer that shares its weights is stored several times,
    unless its name has the group that shares them and its number in the group."""
    groups = match.groupdict()
    if "i" not in groups:
        yield groups | ({"n-1": int(groups["n"]) - 1} if "n" in groups else {})
        return
    stack: Any = model.get_submodule(match.string[: match.start("i")].removesuffix(".layers."))
    for index, layer in enumerate(stack.layer_numbers):
        if layer == int(groups["i"]):
            yield groups | {"i": index, "group": layer // stack.pattern_length, "inner": layer % stack.pattern_length}


def _list_part_sizes(owner: nn.Module, name: str, tensor: Tensor) -> Sequence[int]:
    """The rows of each part of a fused tensor, or the shape of a patch; empty for any other tensor."""
    if isinstance(owner, SelfProjection | CrossProjection) and name.rsplit(".", 2)[1] == "project":
        return list_projection_sizes(owner)
    if getattr(owner, "gated", False) and name.rsplit(".", 2)[1] == "inner":
        return (len(tensor) // 2,) * 2
    return (owner.channels, owner.patch, owner.patch) if isinstance(owner, PatchEmbedding) else ()


def _find_vocabulary_map(name: str, vocabularies: Vocabularies) -> VocabularyMap | None:
    if not VOCABULARY_TENSORS.fullmatch(name):
        return None
    vocabulary_map = vocabularies.source if name.startswith("encoder.") else vocabularies.target
    return vocabulary_map if vocabulary_map.vocab else None  # a regression has neither tokens nor labels


def _find_stored(entry: MappedTensor, names: set[str]) -> Parts:
    """The first names of a tensor that the checkpoint has; tied tensors are often stored once."""
    return next((copies[0] for copies in entry.candidates if names.issuperset(copies[0])), ())


def _convert(entry: MappedTensor, parts: Sequence[Tensor], where: str) -> Tensor:
    """Stored tensors -> the Headwise tensor, by Hugging Face ids, with its shape checked."""
    shapes = " and ".join(str(tuple(part.shape)) for part in parts)
    expected = (
        (entry.vocabulary_map.vocab, *entry.tensor.shape[1:]) if entry.vocabulary_map else tuple(entry.tensor.shape)
    )
    try:
        # What only moves values is converted as it is copied into the model, without a copy in between.
        moves = entry.converter.read in (concatenate, transpose_matrix)
        tensor = entry.converter.read(parts if moves else [part.float() for part in parts])
        tensor = regroup_rows(tensor, entry.heads, len(entry.sizes)) if entry.converter.by_head else tensor
    except (RuntimeError, IndexError, TypeError):  # TypeError: fewer dimensions
        tensor = torch.zeros(())
    if tensor.shape != expected:
        names = entry.candidates[0][0]
        raise UserError(
            f"{where}: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} {shapes}, config.json asks for "
            f"{expected} in all; take both from one model"
        )
    return tensor


def regroup_rows(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """VocabularyMap in `outer` groups of `inner` -> in `inner` groups of `outer`."""
    return tensor.unflatten(0, (outer, inner, -1)).transpose(0, 1).flatten(0, 2)


def to_hf_order(table: Tensor, vocabulary_map: VocabularyMap) -> Tensor:
    """(V, ...) by Headwise ids -> by Hugging Face ids. A mask token that fine-tuning dropped has a row of zeros."""
    if vocabulary_map.mask is not None and len(table) == len(vocabulary_map.hf_ids) - 1:
        table = torch.cat((table, torch.zeros_like(table[:1])))
    return table[list(vocabulary_map.headwise_ids)]


def _check_names(
    mapped: Sequence[MappedTensor],
    architecture: Architecture,
    weights: LazyStateDict,
    stored_names: Mapping[str, str],
) -> None:
    """Check that every tensor of the model is stored, and that every stored tensor is used, a copy of a used one, or
    ignored for a reason."""
    names, where = set(weights.names), weights.where
    absent = [
        entry
        for entry in mapped
        if entry.candidates and not entry.converter.optional and not _find_stored(entry, names)
    ]
    missing = [name for entry in absent for name in entry.candidates[0][0]]
    known = {name for entry in mapped for name in entry.hf_names}
    used = {stored_names[name] for name in known if name in stored_names}
    unused = [name for name in names - known if stored_names.get(name) not in used]
    reasons = {name: _find_ignore_reason(name, architecture) for name in unused}
    unexpected = [name for name, reason in reasons.items() if not reason]
    if missing:
        raise UserError(f"{where}: has no {list_names(missing)}, which config.json asks for; take both from one model")
    if unexpected:
        raise UserError(f"{where}: config.json does not ask for {list_names(unexpected)}; take both from one model")
    for reason in sorted({reason for reason in reasons.values() if reason}):
        log.info("%s: %s ignored: %s", where, list_names(name for name in reasons if reasons[name] == reason), reason)


def _find_ignore_reason(name: str, architecture: Architecture) -> str:
    """Why a tensor is ignored; empty where it may not be."""
    return next((reason for pattern, reason in architecture.ignored.items() if re.fullmatch(pattern, name)), "")


def _check_copies(entry: MappedTensor, parts: Parts, weights: LazyStateDict, stored_names: Mapping[str, str]) -> None:
    """Refuse a checkpoint that stores one tensor under several names with different values."""
    stored = set(weights.readers)
    others = [copy for copies in entry.candidates for copy in copies if stored.issuperset(copy) and copy != parts]
    for copy in others:
        if len(copy) != len(parts) or not all(
            stored_names.get(one, one) == stored_names.get(other, other) or weights.are_equal(one, other)
            for one, other in zip(parts, copy, strict=True)
        ):
            raise UserError(
                f"{weights.where}: {list_names(parts)} and {list_names(copy)} are one part of the model, but differ; "
                "remove one"
            )


def _check_finite(entry: MappedTensor, parts: Parts, where: str) -> None:
    """Refuse weights that are not finite. Their sum is not finite either, and needs no memory; it may overflow, so
    single values are looked at only then."""
    if parts and not entry.tensor.sum().isfinite() and not entry.tensor.isfinite().all():
        raise UserError(f"{where}: {list_names(parts)}: has weights that are NaN or infinite; fetch it again")


def _check_zero(entry: MappedTensor, tensor: Tensor, architecture: Architecture) -> None:
    if tensor.count_nonzero():
        raise UserError(f"{entry.name}: a checkpoint of {architecture.model_type} has no tensor for it; train without")
