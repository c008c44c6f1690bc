"""The catalogue: every model that can be built by name, and where it lives.

A name is an architecture (`transformer`) or one size of it (`transformer-base`). `HOMES` is the explicit table of
architectures. What is known of them without building one (papers, tasks, sizes, parameter counts) is read from
`catalog.json`, so that listing them imports neither torch nor a model; `python -m headwise.models.index` writes it,
and `summaries.json` (`models/summary.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headwise.config.base import Config, Table, slot
from headwise.config.plugins import load_entry_points
from headwise.errors import UserError, nearest

if TYPE_CHECKING:
    from headwise.models.config import ModelConfig
    from headwise.models.entry import Entry

HOMES = {  # in the order of years
    "ngram": "headwise.models.ngram:ENTRY",
    "mlp": "headwise.models.mlp:ENTRY",
    "hmm": "headwise.models.hmm:ENTRY",
    "rnn": "headwise.models.recurrent:RNN_ENTRY",
    "lstm": "headwise.models.recurrent:LSTM_ENTRY",
    "skipgram": "headwise.models.skipgram:SKIPGRAM_ENTRY",
    "cbow": "headwise.models.skipgram:CBOW_ENTRY",
    "gru": "headwise.models.recurrent:GRU_ENTRY",
    "sutskever": "headwise.models.seq2seq:SUTSKEVER_ENTRY",
    "cho": "headwise.models.seq2seq:CHO_ENTRY",
    "bahdanau": "headwise.models.seq2seq:BAHDANAU_ENTRY",
    "luong": "headwise.models.seq2seq:LUONG_ENTRY",
    "gnmt": "headwise.models.gnmt:GNMT_ENTRY",
    "deep-att": "headwise.models.deep_att:ENTRY",
    "bytenet": "headwise.models.bytenet:ENTRY",
    "convs2s": "headwise.models.convs2s:ENTRY",
    "transformer": "headwise.models.transformer:ENTRY",
    "gpt": "headwise.models.gpt:GPT_ENTRY",
    "bert": "headwise.models.bert:BERT_ENTRY",
    "dmca": "headwise.models.dmca:ENTRY",
    "universal-transformer": "headwise.models.universal_transformer:ENTRY",
    "evolved-transformer": "headwise.models.evolved_transformer:ENTRY",
    "transformer-xl": "headwise.models.transformer_xl:ENTRY",
    "gpt2": "headwise.models.gpt:GPT2_ENTRY",
    "albert": "headwise.models.bert:ALBERT_ENTRY",
    "bart": "headwise.models.bart:ENTRY",
    "t5": "headwise.models.t5:ENTRY",
    "deberta": "headwise.models.deberta:ENTRY",
    "gpt3": "headwise.models.gpt:GPT3_ENTRY",
    "bigbird": "headwise.models.bigbird:ENTRY",
    "reformer": "headwise.models.reformer:ENTRY",
    "funnel": "headwise.models.funnel:ENTRY",
    "linformer": "headwise.models.linformer:ENTRY",
    "synthesizer": "headwise.models.synthesizer:ENTRY",
    "linear-transformer": "headwise.models.performer:LINEAR_TRANSFORMER_ENTRY",
    "performer": "headwise.models.performer:PERFORMER_ENTRY",
    "fnet": "headwise.models.fnet:ENTRY",
    "nystromformer": "headwise.models.nystromformer:ENTRY",
    "gmlp": "headwise.models.gmlp:GMLP_ENTRY",
    "workspace": "headwise.models.workspace:ENTRY",
    "switch": "headwise.models.switch:ENTRY",
    "t5-narang": "headwise.models.t5_narang:ENTRY",
    "perceiver": "headwise.models.perceiver:PERCEIVER_ENTRY",
    "s4d": "headwise.models.s4d:ENTRY",
    "llama": "headwise.models.llama:ENTRY",
    "retnet": "headwise.models.retnet:ENTRY",
    "vit": "headwise.models.vit:ENTRY",
    "deit": "headwise.models.deit:ENTRY",
    "captioner": "headwise.models.captioner:ENTRY",
    "show-and-tell": "headwise.models.show_attend_tell:TELL_ENTRY",
    "show-attend-tell": "headwise.models.show_attend_tell:ATTEND_ENTRY",
    "swin": "headwise.models.swin:SWIN_ENTRY",
    "swinv2": "headwise.models.swin:SWINV2_ENTRY",
    "cnn": "headwise.models.cnn:ENTRY",
    "resnet": "headwise.models.resnet:ENTRY",
    "levit": "headwise.models.levit:ENTRY",
    "cait": "headwise.models.cait:ENTRY",
    "volo": "headwise.models.volo:ENTRY",
    "mixer": "headwise.models.mixer:ENTRY",
    "gmlp-image": "headwise.models.gmlp:GMLP_IMAGE_ENTRY",
    "perceiver-image": "headwise.models.perceiver:PERCEIVER_IMAGE_ENTRY",
    "detr": "headwise.models.detr:ENTRY",
    "alphafold1": "headwise.models.alphafold1:ENTRY",
    "alphafold2": "headwise.models.alphafold2:ENTRY",
    "dqn": "headwise.models.dqn:ENTRY",
    "sac": "headwise.models.sac:ENTRY",
    "curl": "headwise.models.curl:CURL_ENTRY",
    "m-curl": "headwise.models.curl:M_CURL_ENTRY",
    "recurrent-policy": "headwise.models.recurrent_policy:ENTRY",
    "attention-agent": "headwise.models.attention_agent:ENTRY",
    "decision-transformer": "headwise.models.decision_transformer:ENTRY",
    "go": "headwise.models.go:ENTRY",
    "hdp": "headwise.models.hdp:ENTRY",
    "placement-heuristic": "headwise.models.placement_heuristic:ENTRY",
}


# a model of the user's own in the catalogue: its family, its one size, and the vocabulary for which it is counted
OWN_FAMILY, OWN_SIZE, OWN_VOCAB = "own", "base", 8000


@dataclass(frozen=True)
class SizeInfo:
    """One size of an architecture: the vocabulary it was published with, its exact parameter count, the paper's."""

    vocab: int
    parameters: int
    published: str


@dataclass(frozen=True)
class ModelInfo:
    """What the index knows of one architecture."""

    name: str
    paper: str
    year: int
    family: str
    tasks: tuple[str, ...]
    oracle: str
    outputs: int
    sizes: Mapping[str, SizeInfo]


@cache
def read_index() -> dict[str, ModelInfo]:
    """Every architecture by name, from the index in the package."""
    rows = json.loads(resources.files("headwise").joinpath("catalog.json").read_text("utf-8"))
    return {
        row["name"]: ModelInfo(
            **{
                **row,
                "tasks": tuple(row["tasks"]),
                "sizes": {size: SizeInfo(**info) for size, info in row["sizes"].items()},
            }
        )
        for row in rows
    }


@cache
def names() -> list[str]:
    """Every name that `build` takes, sizes included."""
    return [f"{info.name}-{size}" for info in read_index().values() for size in info.sizes]


def resolve(name: str) -> tuple[str, str]:
    """The architecture and size that a name means; without a size, the first.

    >>> resolve("transformer-big"), resolve("transformer")
    (('transformer', 'big'), ('transformer', 'base'))
    """
    index = read_index()
    if name in index:
        return name, next(iter(index[name].sizes))
    for info in index.values():
        if name.startswith(f"{info.name}-") and (size := name.removeprefix(f"{info.name}-")) in info.sizes:
            return info.name, size
    own = next((kind for kind in list_own_models() if name in (kind, f"{kind}-{OWN_SIZE}")), "")
    if own:
        return own, OWN_SIZE
    raise UserError(f"there is no model '{name}'; {suggest(name)}")


def list_own_models() -> dict[str, type[ModelConfig]]:
    """The models of the user's own, by kind."""
    load_entry_points()
    own = {kind: config for kind, config in MODELS.loaded.items() if kind not in HOMES and kind not in MODELS.homes}
    return cast("dict[str, type[ModelConfig]]", own)


def suggest(name: str) -> str:
    """The end of an error sentence: the nearest names, sizes included, or all architectures."""
    near = nearest(name, [*HOMES, *names(), *list_own_models()])
    return near if near.startswith("did") else nearest(name, HOMES)


def find(name: str) -> tuple[Entry, str]:
    """The catalogue entry and size that a name means."""
    architecture, size = resolve(name)
    return CATALOG[architecture], size


class Catalog(Mapping[str, "Entry"]):
    """Catalogue entries by name; the file of a model is imported when its entry is looked up."""

    def __getitem__(self, name: str) -> Entry:
        if name not in HOMES and (config := list_own_models().get(name)) is not None:
            return make_own_entry(name, config)
        module, _, attribute = HOMES[name].partition(":")
        entry: Entry = getattr(import_module(module), attribute)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)


CATALOG = Catalog()


def make_own_entry(name: str, config: type[ModelConfig]) -> Entry:
    """The entry of a user's own model: one size, with the defaults of its config."""
    make_entry: type[Entry] = import_module("headwise.models.entry").Entry
    summary = (config.__doc__ or name).strip().splitlines()[0]
    return make_entry(name, summary, 0, OWN_FAMILY, config, {OWN_SIZE: {}}, OWN_VOCAB)


class ModelTable(Table):
    """Models by `kind`: an architecture, or one of its sizes with further settings beside it."""

    def __getitem__(self, name: str) -> type[Config]:
        if name in names():
            name = resolve(name)[0]
        if name in HOMES and name not in self.loaded:
            self.add(CATALOG[name].config)
        return super().__getitem__(name)

    @property
    def names(self) -> list[str]:
        return [*HOMES, *super().names]

    def parse(self, value: Any) -> Config:
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, Mapping) and value.get("kind") in names():
            entry, size = find(str(value["kind"]))
            value = entry.merge(size, {**value, "kind": entry.name})
        elif isinstance(value, Mapping) and str(kind := value.get("kind", self.default)) in HOMES:
            value = CATALOG[kind].merge("", value)
        return super().parse(value)

    def suggest(self, name: str) -> str:
        return suggest(name)

    def is_taken(self, kind: str, cls: type[Config] | None = None) -> bool:
        if kind in HOMES:
            return cls is None or CATALOG[kind].config is not cls
        return kind in names() or super().is_taken(kind, cls)

    def __contains__(self, name: str) -> bool:
        return name in HOMES or name in names() or super().__contains__(name)


# A back-off model comes from an ARPA file, so nobody builds it by name.
MODELS = ModelTable(
    "model", default="transformer", place="model", homes={"backoff": "headwise.models.ngram:BackoffConfig"}
)

if TYPE_CHECKING:  # to a type checker, the config of what a slot holds
    AnyModel: TypeAlias = ModelConfig
else:
    AnyModel = slot(MODELS)
