"""Begin with the weights of a model that exists: what goes where, and in which units its texts are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headwise.data.prepare import Prepared
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.text.base import Tokeniser
from headwise.text.paired import Paired
from headwise.text.tokenisers import Tokenisers
from headwise.tuning.config import parse_run_reference
from headwise.tuning.names import summarize_names
from headwise.tuning.transfer import resize_weights

if TYPE_CHECKING:
    from headwise.experiment.config import Experiment
    from headwise.text.config import TokeniserConfig

# What a part of the new model begins with where the old one has no part of that name, and the new one none of this:
# a reader with a writer's stack (Radford et al. 2018), a pooler with the one that judged pairs (Devlin et al. 2019).
INSTEAD = {"encoder": "decoder", "pool": "order"}
HEADS = ("head", "heads")  # parts with a row for each label
VOCABULARY = re.compile(r".*embed\.table\.weight|decoder\.head\.(table\.weight|bias)")  # one row a token


@dataclass(frozen=True)
class Pretrained:
    """Which tensors were taken over, which of the new model's are new, which of the old one's were left."""

    source: str
    taken: list[str]
    new: list[str]
    left: list[str]
    rest: list[str]  # of the old model: those that were not left

    def __str__(self) -> str:
        new, left = summarize_names(self.new, self.taken), summarize_names(self.left, self.rest)
        return f"{len(self.taken)} tensors taken over from {self.source}; new: {new}; left there: {left}"

    def check(self, model: nn.Module) -> None:
        """Refuse a model in which something new is frozen: it would stay random."""
        frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
        if stuck := [name for name in self.new if name in frozen]:
            others = [*self.taken, *(name for name in self.new if name not in frozen)]
            raise UserError(
                f"tuning: {summarize_names(stuck, others)} cannot be taken over from {self.source} and would stay "
                "random; name it in tuning.unfreeze"
            )


def prepare_data(experiment: Experiment, source: TrainedModel) -> Prepared:
    """The experiment's data in the units of the model that it begins with.

    The texts are read as it learnt to read them. A [tokeniser] that says otherwise is a mistake; labels are new.
    """
    own, theirs = (units(each.tokeniser) for each in (experiment, source.experiment))
    if own != theirs:
        told, asked = (
            ", ".join(f"{key} = {value}" for key, value in sorted(some)) for some in (theirs - own, own - theirs)
        )
        path, _ = parse_run_reference(experiment.init_from)
        raise UserError(f"tokeniser: {path} learnt with {told} and the experiment says {asked}; leave [tokeniser] out")
    task = experiment.task.task_class
    read, written = text_sides(source)
    if experiment.task.labelled:
        sides = read, task.prepare(experiment.data, experiment.tokeniser).tokenisers.target
    elif experiment.task.writes == "continuation":
        sides = written, written
    else:
        sides = read, written if experiment.task.transduces else read
    return task.prepare(experiment.data, Tokenisers(*sides))


def text_sides(source: TrainedModel) -> tuple[Tokeniser, Tokeniser]:
    """The units of what the old model reads and of what it writes, which are the same where it writes labels."""
    sides = source.tokenisers.source, source.tokenisers.target
    read, written = (side.inner if isinstance(side, Paired) else side for side in sides)
    return read, read if source.experiment.task.labelled else written


def units(config: TokeniserConfig) -> set[tuple[str, object]]:
    """What a config says of the source side."""
    return set(config.model_dump(mode="json", exclude={"shared", "target", "pairs"}).items())


@torch.no_grad()
def init_from(model: nn.Module, experiment: Experiment, source: TrainedModel, tokenisers: Tokenisers) -> Pretrained:
    """Copy every tensor of the old model that has the same name and shape in the new one, a table of words as far as
    both go, projections of another mixer as far as they mean the same, positions of another grid interpolated. A head
    is taken over only where it has the same task and the same labels."""
    own, theirs = model.state_dict(), dict(source.model.state_dict())
    ways = routes(parts(own), parts(theirs))
    theirs |= resize_weights(model, source.model, ways)
    same_outputs = source.task.kind == experiment.task.kind and same(source.tokenisers, tokenisers)
    done: set[int] = set()  # by place in memory: a tied tensor has several names
    used: set[int] = set()
    for name, tensor in own.items():
        part, _, rest = name.partition(".")
        given = theirs.get(f"{ways[part]}.{rest}")
        if given is None or not tensor.numel() or tensor.data_ptr() in done or (part in HEADS and not same_outputs):
            continue
        if VOCABULARY.fullmatch(name) and given.shape[1:] == tensor.shape[1:]:
            side = tokenisers.source if part == "encoder" else tokenisers.target
            tensor, given = known(tensor, given, side.size, experiment.init_from)
        if given.shape == tensor.shape:
            tensor.copy_(given)
            done.add(tensor.data_ptr())
            used.add(given.data_ptr())
    taken = [name for name, tensor in own.items() if tensor.data_ptr() in done]
    if not taken:
        raise UserError(f"init_from: nothing in {experiment.init_from} fits this model; leave out [model], or mend it")
    new = [name for name, tensor in own.items() if tensor.data_ptr() not in done]
    left = [name for name, tensor in theirs.items() if tensor.data_ptr() not in used]
    return Pretrained(experiment.init_from, taken, new, left, [name for name in theirs if name not in left])


def parts(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def routes(new: set[str], old: set[str]) -> dict[str, str]:
    """Which part of the old model each part of the new one begins with.

    >>> routes({"encoder", "head"}, {"decoder"})["encoder"]
    'decoder'
    >>> routes({"encoder", "decoder"}, {"decoder"})["encoder"]
    'encoder'
    """
    return {part: other if part not in old and (other := INSTEAD.get(part, part)) not in new else part for part in new}


def known(tensor: Tensor, given: Tensor, size: int, source: str) -> tuple[Tensor, Tensor]:
    """The rows of two tables that both have: behind the tokeniser's own may stand a mask or padding."""
    if len(given) < size:
        raise UserError(
            f"init_from: {source} has vectors for {len(given):,} tokens and its tokeniser {size:,}; name a whole model"
        )
    rows = min(len(tensor), len(given))
    return tensor[:rows], given[:rows]


def same(one: Tokenisers, other: Tokenisers) -> bool:
    """Whether the outputs are the same."""
    return one.target.vocabulary == other.target.vocabulary
