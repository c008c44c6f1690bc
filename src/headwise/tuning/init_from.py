"""Initialise a model with the weights and the tokenisers of a pretrained one (`init_from`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headwise.data.config import TextDataConfig
from headwise.data.corpora import open_training_pairs
from headwise.data.prepare import Prepared
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.text import UNK
from headwise.text.base import Tokeniser
from headwise.text.paired import Paired
from headwise.text.tokenisers import Tokenisers
from headwise.tuning.config import parse_run_reference
from headwise.tuning.names import summarize_names
from headwise.tuning.transfer import resize_weights

if TYPE_CHECKING:
    from headwise.experiment.config import Experiment
    from headwise.text.config import TokeniserConfig

log = logging.getLogger(__name__)

SAMPLE, MAX_SAMPLED = 200, 5000  # texts in which unknown tokens are counted, and characters of each
MUCH_UNKNOWN = 0.1  # share of unknown tokens that is told
# Modules that are initialised from another module if the pretrained model lacks one of the same name and the new model
# lacks the other: an encoder and a language model head from a decoder (Radford et al. 2018), a pooler from the
# next-sentence head (Devlin et al. 2019).
SUBSTITUTES = {"encoder": "decoder", "language_model_head": "decoder.head", "pool": "next_sentence_head"}
HEADS = ("head", "heads")  # modules with one row per label
LM_HEAD = r"(decoder\.head|language_model_head)"
VOCABULARY = re.compile(rf".*embed\.table\.weight|{LM_HEAD}\.(table\.weight|bias)")  # one row per token
CLUSTER = re.compile(rf".*(embed|{LM_HEAD})\.table\.tables\.\d+\.weight")  # one row per token of a cluster


@dataclass(frozen=True)
class LoadReport:
    """Which tensors of the new model are loaded and which newly initialised; which of the pretrained one are unused."""

    source: str
    loaded: list[str]
    new: list[str]
    unused: list[str]
    used: list[str]  # names in the pretrained model

    def __str__(self) -> str:
        new, unused = summarize_names(self.new, self.loaded), summarize_names(self.unused, self.used)
        return f"{len(self.loaded)} tensors loaded from {self.source}; newly initialised: {new}; unused: {unused}"

    def check(self, model: nn.Module) -> None:
        """Raise if a newly initialised parameter is frozen: it would stay random."""
        frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
        if random := [name for name in self.new if name in frozen]:
            others = [*self.loaded, *(name for name in self.new if name not in frozen)]
            raise UserError(
                f"tuning: {summarize_names(random, others)} cannot be loaded from {self.source} and would stay "
                "random; name it in tuning.unfreeze"
            )


def prepare_data(experiment: Experiment, source: TrainedModel) -> Prepared:
    """Prepare the experiment's data with the tokenisers of the pretrained model; only labels get a new vocabulary.

    A [tokeniser] table with other settings is an error.
    """
    new, old = (get_source_settings(config.tokeniser) for config in (experiment, source.experiment))
    if new != old:
        wanted, actual = (
            ", ".join(f"{key} = {value}" for key, value in sorted(items)) for items in (old - new, new - old)
        )
        path, _ = parse_run_reference(experiment.init_from)
        raise UserError(
            f"tokeniser: {path} was trained with {wanted}, the experiment has {actual}; leave out [tokeniser]"
        )
    task = experiment.task.task_class
    inputs, outputs = get_text_tokenisers(source)
    if isinstance(experiment.data, TextDataConfig):
        share = measure_unknown(experiment.data, inputs)
        if share > MUCH_UNKNOWN:
            log.warning(
                "%.0f %% of the tokens are unknown to the tokeniser of %s; start from one of such texts, or from none",
                100 * share, experiment.init_from,
            )  # fmt: skip
    if experiment.task.labelled:
        sides = inputs, task.prepare(experiment.data, experiment.tokeniser).tokenisers.target
    elif experiment.task.writes == "continuation":
        sides = outputs, outputs
    else:
        sides = inputs, outputs if experiment.task.transduces else inputs
    return task.prepare(experiment.data, Tokenisers(*sides))


def measure_unknown(data: TextDataConfig, tokeniser: Tokeniser) -> float:
    """The share of unknown tokens in the first training texts."""
    pairs = islice(open_training_pairs(data), SAMPLE)
    ids = [number for source, target in pairs for number in tokeniser.encode((source or target)[:MAX_SAMPLED])]
    return ids.count(UNK) / max(len(ids), 1)


def get_text_tokenisers(source: TrainedModel) -> tuple[Tokeniser, Tokeniser]:
    """The tokenisers of the pretrained model's inputs and outputs; that of its inputs twice if it outputs labels."""
    sides = source.tokenisers.source, source.tokenisers.target
    inputs, outputs = (side.inner if isinstance(side, Paired) else side for side in sides)
    return inputs, inputs if source.experiment.task.labelled else outputs


def get_source_settings(config: TokeniserConfig) -> set[tuple[str, object]]:
    """The settings of the source tokeniser."""
    return set(config.model_dump(mode="json", exclude={"shared", "target", "pairs"}).items())


@torch.no_grad()
def init_from(model: nn.Module, experiment: Experiment, source: TrainedModel, tokenisers: Tokenisers) -> LoadReport:
    """Load the weights of a pretrained model: every tensor with the same name and shape.

    Of a token embedding the rows that both have, projections of another mixer converted, positions of another image
    size interpolated. A head is loaded only if task and labels are the same.
    """
    weights, pretrained = model.state_dict(), dict(source.model.state_dict())
    sources = map_modules(list_modules(weights), list_modules(pretrained))
    pretrained |= resize_weights(model, source.model, sources)
    same_outputs = source.task.kind == experiment.task.kind and have_same_labels(source.tokenisers, tokenisers)
    loaded: set[int] = set()  # addresses: a tied tensor has several names
    used: set[int] = set()
    for name, tensor in weights.items():
        module, _, rest = name.partition(".")
        value = pretrained.get(f"{sources[module]}.{rest}")
        if value is None or not tensor.numel() or tensor.data_ptr() in loaded or (module in HEADS and not same_outputs):
            continue
        if VOCABULARY.fullmatch(name) and value.shape[1:] == tensor.shape[1:]:
            side = tokenisers.source if module in ("encoder", "language_model_head") else tokenisers.target
            tensor, value = select_shared_rows(tensor, value, side.size, experiment.init_from)
        elif CLUSTER.fullmatch(name) and value.shape[1:] == tensor.shape[1:]:  # the last may have another mask token
            tensor, value = select_shared_rows(tensor, value, 0, experiment.init_from)
        if value.shape == tensor.shape:
            tensor.copy_(value)
            loaded.add(tensor.data_ptr())
            used.add(value.data_ptr())
    names = [name for name, tensor in weights.items() if tensor.data_ptr() in loaded]
    if not names:
        raise UserError(f"init_from: no tensor of {experiment.init_from} fits this model; leave out or correct [model]")
    new = [name for name, tensor in weights.items() if tensor.data_ptr() not in loaded]
    unused = [name for name, tensor in pretrained.items() if tensor.data_ptr() not in used]
    return LoadReport(experiment.init_from, names, new, unused, [name for name in pretrained if name not in unused])


def list_modules(names: Iterable[str]) -> set[str]:
    """The top-level modules of these tensors."""
    return {name.partition(".")[0] for name in names}


def map_modules(new: set[str], old: set[str]) -> dict[str, str]:
    """The module of the pretrained model from which each module of the new one is initialised.

    >>> map_modules({"encoder", "head"}, {"decoder"})["encoder"]
    'decoder'
    >>> map_modules({"encoder", "decoder"}, {"decoder"})["encoder"]
    'encoder'
    """
    return {
        module: other if module not in old and (other := SUBSTITUTES.get(module, module)) not in new else module
        for module in new
    }


def select_shared_rows(table: Tensor, pretrained: Tensor, size: int, source: str) -> tuple[Tensor, Tensor]:
    """The rows that two token embeddings share: rows after the tokeniser's `size` may be a mask token or padding."""
    if len(pretrained) < size:
        raise UserError(
            f"init_from: {source} has {len(pretrained):,} token embeddings and its tokeniser {size:,} tokens; name a "
            "complete model"
        )
    rows = min(len(table), len(pretrained))
    return table[:rows], pretrained[:rows]


def have_same_labels(one: Tokenisers, other: Tokenisers) -> bool:
    return one.target.vocabulary == other.target.vocabulary
