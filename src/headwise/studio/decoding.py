"""Writing token by token: what may come next, what is looked at meanwhile, and how a beam search went.

The server remembers nothing of it: a question says which tokens were written, and they are written again.
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
from headwise.decode.beam import Beams
from headwise.decode.generator import Generator, Request
from headwise.decode.hypothesis import length_penalty
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.svg import visible
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.studio.binary_response import Pack
from headwise.studio.texts import fitting, reads, remark
from headwise.text import BOS, PAD
from headwise.text.base import Tokeniser

SENT = 300  # logits that a page gets; of the others it gets sums
TEMPERATURES = tuple(round(0.1 * n, 1) for n in range(1, 21))  # for which it gets them
GREEDILY = {"beams": 1, "nbest": 1, "temperature": 0, "top_k": 0, "top_p": 1.0}


def request_of(loaded: TrainedModel, text: str, **settings: Any) -> Request:
    """The text as the model is to read it, with its own way of decoding and some settings changed."""
    if not loaded.experiment.task.writes or loaded.experiment.task.reads != "texts":
        raise UserError(f"this run was trained to {loaded.task.kind}, which writes no texts; name another run")
    model = loaded.model
    ids = fitting(reads(loaded), text if model.continues else loaded.experiment.data.prefixed(text))
    if not ids and not model.continues:
        raise UserError("there is no text to read; give one")
    return Request([ids], loaded.decoding(**GREEDILY | settings), get_device(model), loaded.tokenisers.target)


def labels(tokeniser: Tokeniser, ids: Sequence[int]) -> list[str]:
    """Tokens as they are shown."""
    return [visible(token) for token in tokeniser.tokens(ids)]


@torch.inference_mode()
def stepped(loaded: TrainedModel, text: str, written: Sequence[int]) -> tuple[Pack, dict[str, Any]]:
    """What may follow `written`, and what the model looks at before it writes that."""
    model, tokeniser, request = loaded.model, loaded.tokenisers.target, request_of(loaded, text)
    over = check(model, written, request)
    read = written[: len(written) - over]
    logits, maps = walked(model, request, read)
    log_probs = logits.log_softmax(-1)  # (T, V)
    so_far = log_probs[: len(written)].gather(1, torch.tensor(written, dtype=torch.long)[:, None])[:, 0].tolist()
    pack = Pack()
    return pack, {
        "written": [
            {"id": token, "label": label, "log_prob": log_prob}
            for token, label, log_prob in zip(written, labels(tokeniser, written), so_far, strict=True)
        ],
        "text": tokeniser.decode(written),
        "remark": remark(reads(loaded), text),
        "over": over,
        "end": model.end_id,
        "next": None if over else following(model, tokeniser, logits[-1]),
        "attention": attention(pack, loaded, request, read, maps),
    }


def check(model: Generator, written: Sequence[int], request: Request) -> bool:
    """Whether what was written has its end; nonsense is refused."""
    if any(not 0 <= token < model.vocab for token in written):
        raise UserError(f"tokens: this model knows those from 0 to {model.vocab - 1:,}; go back")
    if model.end_id in written[:-1]:
        raise UserError("tokens: nothing follows the end; go back")
    begun = len(written) + (len(request.sources[0]) if model.continues else 0) + 1
    if model.max_length and begun > model.max_length:
        raise UserError(f"this model has {model.max_length:,} positions, and they are used up; go back")
    return bool(written) and written[-1] == model.end_id


def walked(model: Generator, request: Request, written: Sequence[int]) -> tuple[Tensor, AttentionRecord]:
    """The logits before each token and after the last, (T + 1, V), and the attention of these steps; where a model goes
    on with a text, whose looks grow longer, that of the last step alone."""
    tokens = torch.tensor([int(request.first(model)), *written], device=request.device).split(1)
    alone = len(tokens) - 1 if model.continues else 0
    found: list[Tensor] = []
    with eval_mode(model):
        state = model.start(request.opening(model))
        for token in tokens[:alone]:
            logits, state = model.step(token, state)
            found.append(logits[0])
        with record() as maps:
            for token in tokens[alone:]:
                logits, state = model.step(token, state)
                found.append(logits[0])
    if not torch.isfinite(found[-1]).any():
        raise UserError("no token has a probability here: the weights are damaged or training diverged")
    return torch.stack(found).float().cpu(), maps


def following(model: Generator, tokeniser: Tokeniser, logits: Tensor) -> dict[str, Any]:
    """The largest logits (V,) of what may be written, and log-sums of the others, divided by each temperature."""
    allowed = logits.clone()
    allowed[sorted({PAD, BOS, model.start_id} - {model.end_id})] = -torch.inf
    order = allowed.argsort(descending=True)
    order = order[torch.isfinite(allowed[order])]
    sent, rest = order[:SENT], allowed[order[SENT:]]
    return {
        "ids": sent.tolist(),
        "labels": labels(tokeniser, sent.tolist()),
        "logits": allowed[sent].tolist(),
        "normaliser": float(logits.logsumexp(0)),
        "others": len(rest),
        "temperatures": TEMPERATURES,
        "rest": [float((rest / by).logsumexp(0)) for by in TEMPERATURES] if len(rest) else [],
    }


def attention(
    pack: Pack, loaded: TrainedModel, request: Request, written: Sequence[int], maps: AttentionRecord
) -> list[dict[str, Any]]:
    """Of each kind of attention the last step's weights, (layers, heads, keys); of that to a source also all steps',
    the mean over heads, (layers, steps, keys)."""
    sides = loaded.tokenisers
    source, target = read_first(loaded.model, request)
    found = []
    for kind, weights in maps.by_kind().items():
        across = kind == "cross"
        names = labels(sides.source, source) if across else labels(sides.target, [*target, *written])
        if weights.shape[-1] == 1 < len(names):
            continue  # running sums, in which tokens of the past are no longer told apart
        own = [maps.weights[place] for place in maps.kinds if maps.kinds[place] == kind]
        about = {
            "kind": kind,
            "columns": fitted(names, weights.shape[-1]),
            "heads": [each[-1].shape[1] for each in own],
            "last": pack.add(weights[:, :, -1]),
        }
        if across:
            steps = [torch.cat(each, 2)[0].mean(0) for each in own]  # T x (1, H, 1, S) -> (H, T, S) -> (T, S)
            about["steps"] = pack.add(torch.stack(steps).float().cpu().numpy())
        found.append(about)
    return found


def read_first(model: Generator, request: Request) -> tuple[list[int], list[int]]:
    """What the encoder and the decoder have read before the first token is written."""
    opening, first = request.opening(model)[0].tolist(), int(request.first(model))
    if not isinstance(model, EncoderDecoder):
        return [], [*opening, first]
    marks = [[] if side.opening is None else [side.opening] for side in (model.encoder, model.decoder)]
    return [*marks[0], *opening], [*marks[1], first]


def fitted(names: list[str], count: int) -> list[str]:
    """A name for each of `count` keys: the last ones of a memory that forgets, numbers where keys are no tokens."""
    return names[-count:] if count <= len(names) else [str(number + 1) for number in range(count)]


@dataclass(frozen=True)
class BeamNode:
    """A hypothesis after one step of a beam search."""

    step: int
    slot: int
    parent: int  # the number of what it grew from; -1: the beginning
    token: int
    log_prob: float  # of all its tokens


class RecordingBeam(Beams):
    """Beams that keep what they were. Of one source."""

    def __init__(self, model: Generator, request: Request):
        super().__init__(model, request)
        self.nodes: list[BeamNode] = []
        self.before = [-1] * self.width  # the number of what stands in each slot

    def _finish(self, step: int) -> None:
        self.step, self.totals = step, self.live[0].tolist()  # before those that end leave the beam
        super()._finish(step)

    def _drop(self, rows: Tensor) -> Tensor:
        now = [-1] * self.width
        for slot, (row, token, total) in enumerate(zip(rows.tolist(), self.tokens.tolist(), self.totals, strict=True)):
            if isfinite(total):
                now[slot] = len(self.nodes)
                self.nodes.append(BeamNode(self.step, slot, self.before[row], token, total))
        self.before = now
        return super()._drop(rows)


@torch.inference_mode()
def searched(loaded: TrainedModel, text: str, beams: int, longest: int) -> dict[str, Any]:
    """How a beam search came to its output: every hypothesis with what it grew from and what became of it."""
    model, tokeniser = loaded.model, loaded.tokenisers.target
    request = request_of(loaded, text, beams=beams, max_length=longest)
    with eval_mode(model):
        state = model.start(request.opening(model), beams=beams)  # refuses a text that is too long
        found = RecordingBeam(model, request).searched(state)
    best = found.hypotheses()[0]
    if not best:
        raise UserError("no output has a probability here: the weights are damaged or training diverged")
    alpha = request.config.length_penalty
    return {
        "alpha": alpha,
        "beams": beams,
        "text": tokeniser.decode(best[0].ids),
        "score": best[0].score,
        "nodes": describe_nodes(found.nodes, tokeniser, model.end_id, alpha),
    }


def describe_nodes(nodes: Sequence[BeamNode], tokeniser: Tokeniser, end: int, alpha: float) -> list[dict[str, Any]]:
    """Each hypothesis, and its fate: it ended, went on, died, or was left when nothing could beat what had ended."""
    parents, last = {node.parent for node in nodes}, max(node.step for node in nodes)
    names = labels(tokeniser, [node.token for node in nodes])
    found = []
    for number, (node, name) in enumerate(zip(nodes, names, strict=True)):
        ended = node.token == end
        going = "lived" if number in parents else "left" if node.step == last else "died"
        score = node.log_prob / length_penalty(node.step + 1, alpha)
        found.append({**asdict(node), "label": name, "fate": "ended" if ended else going, "score": score})
    return found
