"""What changes when tokens are hidden or heads silenced, and what each layer would write by itself.

Letters: N rows, each with changes of its own; T tokens that are judged, S tokens that may be hidden, H heads,
L layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.intervene import intervene, survey
from headwise.blocks.record import collect
from headwise.blocks.stream import LayerPath, Part
from headwise.decode.driver import decode
from headwise.decode.hypothesis import Hypothesis
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.language_model import LanguageModel
from headwise.studio.decoding import labels, read_first, request_of
from headwise.studio.limits import MOST_JUDGED
from headwise.studio.texts import reads, remark

CONTINUED = 8  # tokens that a language model goes on with by itself
AT_ONCE = 4096  # tokens in a batch
LOGITS = 2**25  # numbers in a batch's logits: 128 MB
GUESSES = 3  # of a layer, for each token


@dataclass(frozen=True)
class Changes:
    """What to do to a model, by the names that pages use: places of tokens; kinds with their layers and heads."""

    hidden: Sequence[int] = ()
    heads: Sequence[tuple[str, int, int]] = ()
    layers: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Masks:
    """What to do to each row of a batch, as `blocks.intervene` takes it."""

    rows: int
    hide: Mapping[str, Tensor] = field(default_factory=dict)  # (N, S)
    heads: Mapping[LayerPath, Tensor] = field(default_factory=dict)  # (N, H)
    parts: Mapping[LayerPath, Tensor] = field(default_factory=dict)  # (N,)

    def of(self, start: int, end: int) -> dict[str, Any]:
        """Those of some rows."""
        groups: dict[str, Mapping[Any, Tensor]] = {"hide": self.hide, "heads": self.heads, "parts": self.parts}
        return {name: {key: mask[start:end] for key, mask in group.items()} for name, group in groups.items()}


class Case:
    """A text and what is written after it: `target`, or the tokens `ids`, or else the model's own output."""

    def __init__(self, loaded: TrainedModel, text: str, target: str = "", ids: Sequence[int] = ()):
        model = loaded.model
        if not isinstance(model, EncoderDecoder | LanguageModel):
            raise UserError("this run's model has no layers to intervene in; choose another run")
        self.model, self.tokenisers, self.remark = model, loaded.tokenisers, remark(reads(loaded), text)
        self.request = request_of(loaded, text, max_length=CONTINUED if model.continues else MOST_JUDGED)
        self.wrote = list(ids) or self._wrote(target)
        if len(self.wrote) > MOST_JUDGED:
            raise UserError(f"target: {len(self.wrote)} tokens are too many to judge; give at most {MOST_JUDGED}")
        if not all(0 <= token < model.vocab for token in self.wrote):
            raise UserError(f"ids: this model knows tokens from 0 to {model.vocab - 1:,}")
        self.source, self.before = read_first(model, self.request)
        start = self.before if model.continues else [model.start_id]
        self.inputs = [[*start, *self.wrote[:-1]]]
        if not model.continues:
            self.inputs.insert(0, self.request.opening(model)[0].tolist())
        self.first = len(start) - 1  # where the first token is predicted
        if model.max_length and len(self.inputs[-1]) > model.max_length:
            raise UserError(f"this model has {model.max_length:,} positions; give a shorter text")
        with torch.inference_mode(), survey() as self.survey:
            self.logits(1)

    def _wrote(self, target: str) -> list[int]:
        wrote = self.tokenisers.target.encode(target) if target else self.written().ids
        return [*wrote] if wrote and self.model.continues else [*wrote, self.model.end_id]

    def written(self) -> Hypothesis:
        """What the model writes by itself, greedily."""
        request = self.request
        return decode(self.model, request.sources, request.config, request.device, request.tokeniser)[0][0]

    def logits(self, rows: int) -> Tensor:
        """Before each token that is judged, (N, T, V)."""
        ids = (torch.tensor([ids], device=self.request.device).expand(rows, -1) for ids in self.inputs)
        return self.model(*ids)[:, self.first : self.first + len(self.wrote)]

    @torch.inference_mode()
    def log_probs(self, masks: Masks) -> Tensor:
        """log P of each token in each row, (N, T)."""
        parts = [part for part in self.model.modules() if isinstance(part, Part)]
        alone = not all(part.properties.batch_independent for part in parts)
        length = sum(map(len, self.inputs))
        most = 1 if alone else max(1, min(AT_ONCE // length, LOGITS // (len(self.inputs[-1]) * self.model.vocab)))
        found = []
        for start in range(0, masks.rows, most):
            end = min(start + most, masks.rows)
            with intervene(**masks.of(start, end)):
                log_probs = self.logits(end - start).log_softmax(-1, dtype=torch.float32)
            wrote = torch.tensor(self.wrote, device=log_probs.device).expand(end - start, -1)
            found.append(log_probs.gather(2, wrote[..., None])[..., 0])  # (n, T, V) -> (n, T)
        return torch.cat(found)

    @property
    def stack(self) -> str:
        """Whose tokens may be hidden."""
        return "encoder" if self.source else "decoder"

    @property
    def hideable(self) -> list[int]:
        """The tokens that can be hidden from attention: none where there is no attention, or keys are not tokens."""
        tokens = self.source or self.before
        keys = len(tokens) if self.source else len(tokens) + len(self.wrote) - 1
        kinds = {"encoder", "cross"} if self.source else {"decoder"}
        looked = [self.survey.keys.get(path) == keys for path, kind in self.survey.kinds.items() if kind in kinds]
        return tokens if looked and all(looked) and not getattr(self.model, "memory_length", 0) else []

    def path(self, kind: str, layer: int) -> LayerPath:
        places = self.survey.places(kind)
        if not 0 <= layer < len(places):
            raise UserError(f"there is no layer {layer + 1} of {kind} attention here")
        return places[layer]

    def whole(self, path: LayerPath) -> bool:
        """Whether the part at a place is attention and nothing else: recurrent decoders have theirs inside."""
        return self.survey.counts.get(path, 0) != 1

    def silent(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.bool, device=self.request.device)

    def masks(self, changes: Changes) -> Masks:
        """A row in which nothing is changed, and one with all changes."""
        hide: dict[str, Tensor] = {}
        heads: dict[LayerPath, Tensor] = {}
        parts: dict[LayerPath, Tensor] = {}
        count = len(self.hideable)
        if not all(0 <= token < count for token in changes.hidden):
            raise UserError(f"hidden: {count} tokens can be hidden here; choose among them")
        if changes.hidden:
            hide[self.stack] = self.silent(2, count)
            hide[self.stack][1, list(changes.hidden)] = True
        for kind, layer, head in changes.heads:
            path = self.path(kind, layer)
            count = self.survey.counts.get(path, 0)
            if not 0 <= head < count:
                raise UserError(f"heads: {count} can be silenced in layer {layer + 1} of {kind} attention")
            heads.setdefault(path, self.silent(2, count))[1, head] = True
        for kind, layer in changes.layers:
            path = self.path(kind, layer)
            if not self.whole(path):
                raise UserError(f"layers: {kind} attention is one head inside of another part; silence the head")
            parts[path] = self.silent(2)
            parts[path][1] = True
        return Masks(2, hide, heads, parts)


@torch.inference_mode()
def intervened(case: Case, changes: Changes) -> dict[str, Any]:
    """log P of each token without and with the changes, and what the model writes with them."""
    masks, side = case.masks(changes), case.tokenisers
    log_probs = case.log_probs(masks)
    with intervene(**masks.of(1, 2)):
        own = case.written()
    found, target = case.survey, side.target
    return {
        "ids": case.wrote,
        "text": target.decode(case.wrote),
        "output": [
            {"label": label, "before": before, "after": after}
            for label, before, after in zip(labels(target, case.wrote), *log_probs.tolist(), strict=True)
        ],
        "own": target.decode(own.ids),
        "remark": case.remark,
        "read": labels(side.source if case.source else target, case.source or case.before),
        "hideable": bool(case.hideable),
        "kinds": [
            {
                "name": kind,
                "layers": [
                    {"heads": found.counts.get(path, 0), "whole": case.whole(path)} for path in found.places(kind)
                ],
            }
            for kind in dict.fromkeys(found.kinds.values())
        ],
    }


def effects(case: Case, kind: str, layer: int) -> dict[str, Any]:
    """How log P of the output changes when a head is silenced, for each of a layer, and for all of its attention."""
    path = case.path(kind, layer)
    count = case.survey.counts.get(path, 0)
    heads = case.silent(count + 2, count)  # row 0: nothing is changed; the last row: all of it is silent
    heads[1:-1].fill_diagonal_(True)
    parts = case.silent(count + 2)
    parts[-1] = case.whole(path)
    totals = case.log_probs(Masks(count + 2, heads={path: heads} if count else {}, parts={path: parts})).sum(1)
    found = (totals - totals[0]).tolist()
    return {"heads": found[1:-1], "whole": found[-1] if case.whole(path) else None}


def token_effects(case: Case) -> dict[str, Any]:
    """How log P of the output changes when a token is hidden, for each that can be."""
    count = len(case.hideable)
    hide = case.silent(count + 1, count)
    hide[1:].fill_diagonal_(True)
    totals = case.log_probs(Masks(count + 1, hide={case.stack: hide} if count else {})).sum(1)
    return {"tokens": (totals - totals[0])[1:].tolist()}


@torch.inference_mode()
def lens(case: Case) -> dict[str, Any]:
    """What each layer would write if it were the last: its stream through the final norm and the head (the logit lens
    of nostalgebraist 2020)."""
    decoder, target = case.model.decoder, case.tokenisers.target
    with collect("layer") as side:
        own = case.logits(1)
    streams = [values[-1].x for path, values in side.values["layer"].items() if path[0] == "decoder"]
    wrote = torch.tensor(case.wrote, device=own.device)
    layers = []
    for x in streams:
        logits = decoder.head(decoder.stack.final(x[:, -len(wrote) :]))[0]  # the last of the texts: (T, C) -> (T, V)
        log_probs = logits.log_softmax(-1, dtype=torch.float32)
        probs, ids = log_probs.exp().topk(min(GUESSES, log_probs.shape[1]))  # (T, guesses)
        own_log_probs = log_probs.gather(1, wrote[:, None])
        names = labels(target, ids.flatten().tolist())
        layers.append(
            {
                "guesses": [names[start : start + ids.shape[1]] for start in range(0, len(names), ids.shape[1])],
                "probs": probs.tolist(),
                "log_probs": own_log_probs[:, 0].tolist(),
                "ranks": (log_probs > own_log_probs).sum(1).add(1).tolist(),
            }
        )
    return {"tokens": labels(target, case.wrote), "layers": layers}
