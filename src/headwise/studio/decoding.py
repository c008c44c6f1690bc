"""Decoding token by token: the next-token distribution, the attention of each step, and the tree of a beam search.

The server keeps no state: a request names all tokens written so far, and they are decoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from headwise.blocks.evaluation import eval_mode, get_device
from headwise.blocks.record import AttentionRecord, record
from headwise.decode.beam import BeamSearch
from headwise.decode.generator import Generator, Request
from headwise.decode.length_penalty import gnmt_length_penalty
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.svg import replace_controls
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.studio.binary_response import BinaryResponse
from headwise.studio.progress import report
from headwise.studio.texts import encode_checked, get_input_tokeniser, report_unknown
from headwise.text import BOS, PAD
from headwise.text.base import Tokeniser

TOP_LOGITS = 300  # logits sent to the page; the others are sent as one log-sum per temperature
TEMPERATURES = tuple(round(0.1 * n, 1) for n in range(1, 21))
GREEDY = {
    "beams": 1, "nbest": 1, "temperature": 0, "top_k": 0, "top_p": 1.0, "min_p": 0, "typical_p": 1.0,
    "convention": "headwise",
}  # fmt: skip


def build_request(trained: TrainedModel, text: str, **settings: Any) -> Request:
    """A decoding request for one text, with the run's decoding settings made greedy and `settings` changed."""
    if not trained.experiment.task.writes or trained.experiment.task.reads != "texts":
        raise UserError(f"this run was trained to {trained.task.kind}, which writes no texts; name another run")
    model = trained.model
    ids = encode_checked(
        get_input_tokeniser(trained), text if model.continues_prompt else trained.experiment.data.add_prefix(text)
    )
    if not ids and not model.continues_prompt:
        raise UserError("there is no text; enter one")
    return Request(
        [ids], trained.build_decode_config(**GREEDY | settings), get_device(model), trained.tokenisers.target
    )


def token_labels(tokeniser: Tokeniser, ids: Sequence[int]) -> list[str]:
    """Tokens as printable labels."""
    return [replace_controls(token) for token in tokeniser.tokens(ids)]


@torch.inference_mode()
def decode_step(trained: TrainedModel, text: str, written: Sequence[int]) -> tuple[BinaryResponse, dict[str, Any]]:
    """The distribution of the token after `written`, and the attention of the steps."""
    model, tokeniser, request = trained.model, trained.tokenisers.target, build_request(trained, text)
    finished = check_tokens(model, written, request)
    read = written[: len(written) - finished]
    logits, maps = run_steps(model, request, read)
    log_probs = logits.log_softmax(-1)  # (T, V)
    token_log_probs = (
        log_probs[: len(written)].gather(1, torch.tensor(written, dtype=torch.long)[:, None])[:, 0].tolist()
    )
    response = BinaryResponse()
    return response, {
        "written": [
            {"id": token, "label": label, "log_prob": log_prob}
            for token, label, log_prob in zip(written, token_labels(tokeniser, written), token_log_probs, strict=True)
        ],
        "text": tokeniser.decode(written),
        "note": report_unknown(get_input_tokeniser(trained), text),
        "finished": finished,
        "end": model.end_id,
        "next": None if finished else next_token_logits(model, tokeniser, logits[-1]),
        "attention": pack_attention(response, trained, request, read, maps),
    }


def check_tokens(model: Generator, written: Sequence[int], request: Request) -> bool:
    """Whether the tokens end with the end token; ids that the model cannot have written are refused."""
    if any(not 0 <= token < model.vocab for token in written):
        raise UserError(f"tokens: this model has ids from 0 to {model.vocab - 1:,}; go back")
    if model.end_id in written[:-1]:
        raise UserError("tokens: no token may follow the end token; go back")
    length = len(written) + (len(request.sources[0]) if model.continues_prompt else 0) + 1
    if model.max_length and length > model.max_length:
        raise UserError(f"this model has {model.max_length:,} positions, and all are used; go back")
    return bool(written) and written[-1] == model.end_id


def run_steps(model: Generator, request: Request, written: Sequence[int]) -> tuple[Tensor, AttentionRecord]:
    """The logits before each token and after the last, (T + 1, V), and the attention maps of these steps. Of a language
    model only the last step is recorded, since its rows of self-attention differ in length."""
    tokens = torch.tensor([int(request.build_first_tokens(model)), *written], device=request.device).split(1)
    unrecorded = len(tokens) - 1 if model.continues_prompt else 0
    all_logits: list[Tensor] = []
    with eval_mode(model):
        state = model.start(request.build_inputs(model))
        for token in tokens[:unrecorded]:
            logits, state = model.step(token, state)
            all_logits.append(logits[0])
        with record() as maps:
            for token in tokens[unrecorded:]:
                logits, state = model.step(token, state)
                all_logits.append(logits[0])
    if not torch.isfinite(all_logits[-1]).any():
        raise UserError("no token has a finite logit: the weights are damaged or training diverged")
    return torch.stack(all_logits).float().cpu(), maps


def next_token_logits(model: Generator, tokeniser: Tokeniser, logits: Tensor) -> dict[str, Any]:
    """The largest of the logits (V,), and the log-sum of the others at each temperature."""
    allowed = logits.clone()
    allowed[sorted({PAD, BOS, model.start_id} - {model.end_id})] = -torch.inf
    order = allowed.argsort(descending=True)
    order = order[torch.isfinite(allowed[order])]
    top, rest = order[:TOP_LOGITS], allowed[order[TOP_LOGITS:]]
    return {
        "ids": top.tolist(),
        "labels": token_labels(tokeniser, top.tolist()),
        "logits": allowed[top].tolist(),
        "normaliser": float(logits.logsumexp(0)),
        "others": len(rest),
        "temperatures": TEMPERATURES,
        "others_logsumexp": [float((rest / temperature).logsumexp(0)) for temperature in TEMPERATURES]
        if len(rest)
        else [],
    }


def pack_attention(
    response: BinaryResponse, trained: TrainedModel, request: Request, written: Sequence[int], maps: AttentionRecord
) -> list[dict[str, Any]]:
    """For each kind of attention the weights of the last step, (layers, heads, keys); for cross-attention also those of
    all steps, averaged over heads, (layers, steps, keys)."""
    tokenisers = trained.tokenisers
    source, target = get_prompt_tokens(trained.model, request)
    entries = []
    for kind, weights in maps.stack_by_kind().items():
        is_cross = kind == "cross"
        columns = (
            token_labels(tokenisers.source, source)
            if is_cross
            else token_labels(tokenisers.target, [*target, *written])
        )
        if weights.shape[-1] == 1 < len(columns):
            continue  # linear attention keeps a running sum, which has no weights of single tokens
        layers = [maps.weights[path] for path in maps.kinds if maps.kinds[path] == kind]
        entry = {
            "kind": kind,
            "columns": key_labels(columns, weights.shape[-1]),
            "heads": [steps[-1].shape[1] for steps in layers],
            "last": response.add(weights[:, :, -1]),
        }
        if is_cross:
            means = [torch.cat(steps, 2)[0].mean(0) for steps in layers]  # T x (1, H, 1, S) -> (H, T, S) -> (T, S)
            entry["steps"] = response.add(torch.stack(means).float().cpu().numpy())
        entries.append(entry)
    return entries


def get_prompt_tokens(model: Generator, request: Request) -> tuple[list[int], list[int]]:
    """The tokens that the encoder and the decoder have read before the first output token."""
    prompt, first = request.build_inputs(model)[0].tolist(), int(request.build_first_tokens(model))
    if not isinstance(model, EncoderDecoder):
        return [], [*prompt, first]
    prefixes = [[] if side.prefix_id is None else [side.prefix_id] for side in (model.encoder, model.decoder)]
    suffix_id = getattr(model.encoder, "suffix_id", None)
    return [*prefixes[0], *prompt, *([] if suffix_id is None else [suffix_id])], [*prefixes[1], first]


def key_labels(names: list[str], count: int) -> list[str]:
    """A label for each of `count` keys: the last tokens if older ones were dropped, numbers if keys are not tokens."""
    return names[-count:] if count <= len(names) else [str(number + 1) for number in range(count)]


@dataclass(frozen=True)
class BeamNode:
    """A hypothesis after one step of a beam search."""

    step: int
    slot: int
    parent: int  # index of the node it extends; -1: the start
    token: int
    log_prob: float  # sum over its tokens


class RecordingBeam(BeamSearch):
    """Beam search of one source that records every hypothesis."""

    def __init__(self, model: Generator, request: Request):
        super().__init__(model, request)
        self.nodes: list[BeamNode] = []
        self.node_of_slot = [-1] * self.width  # index of the node in each slot

    def record_candidates(self, steps: Tensor, rows: Tensor, tokens: Tensor, totals: Tensor) -> None:
        report(int(steps[0]), self.scorer.steps)
        nodes = [-1] * self.width
        for slot, (row, token, total) in enumerate(
            zip(rows[0].tolist(), tokens[0].tolist(), totals[0].tolist(), strict=True)
        ):
            if isfinite(total):
                nodes[slot] = len(self.nodes)
                self.nodes.append(BeamNode(int(steps[0]), slot, self.node_of_slot[row], token, total))
        self.node_of_slot = nodes


@torch.inference_mode()
def search_beams(trained: TrainedModel, text: str, beams: int, longest: int) -> dict[str, Any]:
    """Run a beam search; returns its output and the tree of all hypotheses."""
    model, tokeniser = trained.model, trained.tokenisers.target
    request = build_request(trained, text, beams=beams, max_length=longest)
    with eval_mode(model):
        state = model.start(request.build_inputs(model), beams=beams)  # raises for a text that is too long
        search = RecordingBeam(model, request).search(state)
    best = search.hypotheses()[0]
    if not best:
        raise UserError("no output has a finite score: the weights are damaged or training diverged")
    alpha = request.config.length_penalty
    return {
        "alpha": alpha,
        "beams": beams,
        "text": tokeniser.decode(best[0].ids),
        "score": best[0].score,
        "nodes": describe_nodes(search.nodes, tokeniser, model.end_id, alpha),
    }


def describe_nodes(nodes: Sequence[BeamNode], tokeniser: Tokeniser, end: int, alpha: float) -> list[dict[str, Any]]:
    """Every hypothesis with its fate: ended, extended, pruned, or stopped (open when the search ended)."""
    parents, last = {node.parent for node in nodes}, max(node.step for node in nodes)
    names = token_labels(tokeniser, [node.token for node in nodes])
    entries = []
    for number, (node, name) in enumerate(zip(nodes, names, strict=True)):
        ended = node.token == end
        fate = "extended" if number in parents else "stopped" if node.step == last else "pruned"
        score = node.log_prob / gnmt_length_penalty(node.step + 1, alpha)
        entries.append({**asdict(node), "label": name, "fate": "ended" if ended else fate, "score": score})
    return entries
