"""Ablation: hide tokens, or zero heads and layers, and compare log-probabilities; and the logit lens.

Letters: N rows of a batch, each with its own ablations; T output tokens, S tokens that may be hidden, H heads,
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
from headwise.studio.decoding import build_request, get_prompt_tokens, token_labels
from headwise.studio.limits import MAX_SCORED_TOKENS
from headwise.studio.progress import report
from headwise.studio.texts import get_input_tokeniser, report_unknown

NEW_TOKENS = 8  # tokens that a language model generates if no output is given
BATCH_TOKENS = 4096  # tokens in a batch
BATCH_LOGITS = 2**25  # logits in a batch: 128 MB
TOP_TOKENS = 3  # of the logit lens, at each position and layer


@dataclass(frozen=True)
class Ablations:
    """What to remove: positions of tokens; heads as (kind, layer, head); layers as (kind, layer)."""

    hidden: Sequence[int] = ()
    heads: Sequence[tuple[str, int, int]] = ()
    layers: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class AblationMasks:
    """What to remove in each row of a batch, in the form of `blocks.intervene`."""

    rows: int
    hide: Mapping[str, Tensor] = field(default_factory=dict)  # (N, S)
    heads: Mapping[LayerPath, Tensor] = field(default_factory=dict)  # (N, H)
    parts: Mapping[LayerPath, Tensor] = field(default_factory=dict)  # (N,)

    def slice_rows(self, start: int, end: int) -> dict[str, Any]:
        """The masks of some rows, as keyword arguments of `intervene`."""
        groups: dict[str, Mapping[Any, Tensor]] = {"hide": self.hide, "heads": self.heads, "parts": self.parts}
        return {name: {key: mask[start:end] for key, mask in group.items()} for name, group in groups.items()}


class AblationCase:
    """A text and the output that is scored: `target`, or the tokens `ids`, or else what the model generates."""

    def __init__(self, trained: TrainedModel, text: str, target: str = "", ids: Sequence[int] = ()):
        model = trained.model
        if not isinstance(model, EncoderDecoder | LanguageModel):
            raise UserError("this run's model has no layers to intervene in; choose another run")
        self.model, self.tokenisers, self.unknown_tokens = (
            model,
            trained.tokenisers,
            report_unknown(get_input_tokeniser(trained), text),
        )
        self.request = build_request(
            trained, text, max_length=NEW_TOKENS if model.continues_prompt else MAX_SCORED_TOKENS
        )
        self.output = list(ids) or self._encode_output(target)
        if len(self.output) > MAX_SCORED_TOKENS:
            raise UserError(f"target: has {len(self.output)} tokens; give at most {MAX_SCORED_TOKENS}")
        if not all(0 <= token < model.vocab for token in self.output):
            raise UserError(f"ids: this model has ids from 0 to {model.vocab - 1:,}")
        self.source, self.prompt = get_prompt_tokens(model, self.request)
        start = self.prompt if model.continues_prompt else [model.start_id]
        self.inputs = [[*start, *self.output[:-1]]]
        if not model.continues_prompt:
            self.inputs.insert(0, self.request.build_inputs(model)[0].tolist())
        self.first_position = len(start) - 1  # the position that predicts the first output token
        if model.max_length and len(self.inputs[-1]) > model.max_length:
            raise UserError(f"this model has {model.max_length:,} positions; give a shorter text")
        with torch.inference_mode(), survey() as self.survey:
            self.compute_logits(1)

    def _encode_output(self, target: str) -> list[int]:
        ids = self.tokenisers.target.encode(target) if target else self.generate().ids
        return [*ids] if ids and self.model.continues_prompt else [*ids, self.model.end_id]

    def generate(self) -> Hypothesis:
        """The model's own output, decoded greedily."""
        request = self.request
        return decode(self.model, request.sources, request.config, request.device, request.tokeniser)[0][0]

    def compute_logits(self, rows: int) -> Tensor:
        """The logits of each output token, (N, T, V)."""
        ids = (torch.tensor([ids], device=self.request.device).expand(rows, -1) for ids in self.inputs)
        return self.model(*ids)[:, self.first_position : self.first_position + len(self.output)]

    @torch.inference_mode()
    def compute_log_probs(self, masks: AblationMasks) -> Tensor:
        """The log-probability of each output token in each row, (N, T)."""
        parts = [part for part in self.model.modules() if isinstance(part, Part)]
        one_by_one = not all(part.properties.batch_independent for part in parts)
        length = sum(map(len, self.inputs))
        batch = (
            1
            if one_by_one
            else max(1, min(BATCH_TOKENS // length, BATCH_LOGITS // (len(self.inputs[-1]) * self.model.vocab)))
        )
        batches = []
        for start in range(0, masks.rows, batch):
            end = min(start + batch, masks.rows)
            with intervene(**masks.slice_rows(start, end)):
                log_probs = self.compute_logits(end - start).log_softmax(-1, dtype=torch.float32)
            output = torch.tensor(self.output, device=log_probs.device).expand(end - start, -1)
            batches.append(log_probs.gather(2, output[..., None])[..., 0])  # (n, T, V) -> (n, T)
            report(end, masks.rows)
        return torch.cat(batches)

    @property
    def stack(self) -> str:
        """The stack whose tokens may be hidden."""
        return "encoder" if self.source else "decoder"

    @property
    def hideable_tokens(self) -> list[int]:
        """The tokens that can be hidden from attention; none if there is no attention or its keys are not tokens."""
        tokens = self.source or self.prompt
        keys = len(tokens) if self.source else len(tokens) + len(self.output) - 1
        kinds = {"encoder", "cross"} if self.source else {"decoder"}
        has_token_keys = [
            self.survey.keys.get(path) == keys for path, kind in self.survey.kinds.items() if kind in kinds
        ]
        return tokens if has_token_keys and all(has_token_keys) and not getattr(self.model, "memory_length", 0) else []

    def get_path(self, kind: str, layer: int) -> LayerPath:
        paths = self.survey.list_paths(kind)
        if not 0 <= layer < len(paths):
            raise UserError(f"there is no layer {layer + 1} of {kind} attention here")
        return paths[layer]

    def can_ablate_layer(self, path: LayerPath) -> bool:
        """Whether the part at this path is attention alone. Recurrent decoders have theirs inside another part."""
        return self.survey.head_counts.get(path, 0) != 1

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.bool, device=self.request.device)

    def build_masks(self, ablations: Ablations) -> AblationMasks:
        """Masks of two rows: one without ablations, one with all of them."""
        hide: dict[str, Tensor] = {}
        heads: dict[LayerPath, Tensor] = {}
        parts: dict[LayerPath, Tensor] = {}
        count = len(self.hideable_tokens)
        if not all(0 <= token < count for token in ablations.hidden):
            raise UserError(f"hidden: {count} tokens can be hidden here; choose among them")
        if ablations.hidden:
            hide[self.stack] = self.zeros(2, count)
            hide[self.stack][1, list(ablations.hidden)] = True
        for kind, layer, head in ablations.heads:
            path = self.get_path(kind, layer)
            count = self.survey.head_counts.get(path, 0)
            if not 0 <= head < count:
                raise UserError(
                    f"heads: layer {layer + 1} of {kind} attention has {count} heads to ablate; choose one of them"
                )
            heads.setdefault(path, self.zeros(2, count))[1, head] = True
        for kind, layer in ablations.layers:
            path = self.get_path(kind, layer)
            if not self.can_ablate_layer(path):
                raise UserError(f"layers: {kind} attention is one head inside another part; ablate the head instead")
            parts[path] = self.zeros(2)
            parts[path][1] = True
        return AblationMasks(2, hide, heads, parts)


@torch.inference_mode()
def ablate(case: AblationCase, ablations: Ablations) -> dict[str, Any]:
    """The log-probability of each token without and with the ablations, and the output generated with them."""
    masks, tokenisers = case.build_masks(ablations), case.tokenisers
    log_probs = case.compute_log_probs(masks)
    with intervene(**masks.slice_rows(1, 2)):
        generated = case.generate()
    survey, target = case.survey, tokenisers.target
    return {
        "ids": case.output,
        "text": target.decode(case.output),
        "output": [
            {"label": label, "before": before, "after": after}
            for label, before, after in zip(token_labels(target, case.output), *log_probs.tolist(), strict=True)
        ],
        "generated": target.decode(generated.ids),
        "note": case.unknown_tokens,
        "input": token_labels(tokenisers.source if case.source else target, case.source or case.prompt),
        "hideable": bool(case.hideable_tokens),
        "kinds": [
            {
                "name": kind,
                "layers": [
                    {"heads": survey.head_counts.get(path, 0), "can_ablate": case.can_ablate_layer(path)}
                    for path in survey.list_paths(kind)
                ],
            }
            for kind in dict.fromkeys(survey.kinds.values())
        ],
    }


def measure_heads(case: AblationCase, kind: str, layer: int) -> dict[str, Any]:
    """The change of the output's log-probability when each head of a layer, or the whole layer, is ablated."""
    path = case.get_path(kind, layer)
    count = case.survey.head_counts.get(path, 0)
    heads = case.zeros(count + 2, count)  # row 0: no ablation; last row: the whole layer
    heads[1:-1].fill_diagonal_(True)
    parts = case.zeros(count + 2)
    parts[-1] = case.can_ablate_layer(path)
    totals = case.compute_log_probs(
        AblationMasks(count + 2, heads={path: heads} if count else {}, parts={path: parts})
    ).sum(1)
    effects = (totals - totals[0]).tolist()
    return {"heads": effects[1:-1], "layer": effects[-1] if case.can_ablate_layer(path) else None}


def measure_tokens(case: AblationCase) -> dict[str, Any]:
    """The change of the output's log-probability when each token is hidden."""
    count = len(case.hideable_tokens)
    hide = case.zeros(count + 1, count)
    hide[1:].fill_diagonal_(True)
    totals = case.compute_log_probs(AblationMasks(count + 1, hide={case.stack: hide} if count else {})).sum(1)
    return {"tokens": (totals - totals[0])[1:].tolist()}


@torch.inference_mode()
def logit_lens(case: AblationCase) -> dict[str, Any]:
    """The logit lens (nostalgebraist 2020): each layer's stream through the final norm and the vocabulary head."""
    decoder, target = case.model.decoder, case.tokenisers.target
    with collect("layer") as collected:
        logits = case.compute_logits(1)
    streams = [values[-1].x for path, values in collected.values["layer"].items() if path[0] == "decoder"]
    output = torch.tensor(case.output, device=logits.device)
    layers = []
    for x in streams:
        logits = decoder.head(decoder.stack.final(x[:, -len(output) :]))[0]  # the output positions: (T, C) -> (T, V)
        log_probs = logits.log_softmax(-1, dtype=torch.float32)
        probs, ids = log_probs.exp().topk(min(TOP_TOKENS, log_probs.shape[1]))  # (T, guesses)
        output_log_probs = log_probs.gather(1, output[:, None])
        top_labels = token_labels(target, ids.flatten().tolist())
        layers.append(
            {
                "top_tokens": [
                    top_labels[start : start + ids.shape[1]] for start in range(0, len(top_labels), ids.shape[1])
                ],
                "probs": probs.tolist(),
                "log_probs": output_log_probs[:, 0].tolist(),
                "ranks": (log_probs > output_log_probs).sum(1).add(1).tolist(),
            }
        )
    return {"tokens": token_labels(target, case.output), "layers": layers}
