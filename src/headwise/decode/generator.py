"""What a search asks of a model, and the one step all searches share.

Letters: B sources, K rows of a source, R = B * K rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.decode.config import DecodeConfig
from headwise.decode.logits_processors import HistoryProcessors, LogitsProcessors
from headwise.errors import UserError
from headwise.text import BOS, EOS, PAD
from headwise.text.base import Tokeniser

Source = (
    Sequence[int] | Tensor
)  # token ids without special tokens, as a tokeniser gives them; or an image (C, H, W), normalised


def length(source: Source) -> int:
    """How many tokens a source has. Of an image only its model knows; as a rule, about as many as it has rows of pixels
    (224 rows are 196 patches of 16 x 16)."""
    return source.shape[-2] if isinstance(source, Tensor) else len(source)


class State(Protocol):
    """What a model remembers between steps."""

    def select(self, rows: Tensor) -> State:
        """The state of `rows`, in that order; a source that stays keeps all its K rows."""
        ...

    def join(self, other: Any) -> State:
        """The state of these rows and, after them, those of another state of the same model: each goes on as it would
        alone. Neither of the two is used any more."""
        ...


class Generator(Protocol):
    """A model that can be decoded step by step: Transformer, recurrent network, n-gram, ensemble."""

    @property
    def start_id(self) -> int: ...
    @property
    def end_id(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def continues(self) -> bool:
        """Whether it goes on with the source (a language model) instead of answering it."""
        ...

    @property
    def ragged(self) -> bool:
        """Whether it starts from prompts of different lengths at once, padded on the right."""
        ...

    @property
    def max_length(self) -> int:
        """How many positions there are for what it writes, its prompt and the start included; 0: any number."""
        ...

    def start(self, source: Tensor, beams: int = 1) -> Any:
        """(B, S), or images (B, C, H, W) -> the state of B * beams rows; rows of a source are contiguous."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The last tokens (R,) -> logits of the next ones (R, V), and the new state."""
        ...


@dataclass(frozen=True)
class Request:
    """A batch of sources to decode, all of them texts or all of them images."""

    sources: Sequence[Source]
    config: DecodeConfig
    device: torch.device
    tokeniser: Tokeniser | None = None  # of the outputs; stop strings need it

    def limits(self, model: Generator) -> list[int]:
        """The most tokens that each output may have."""
        limits = [self.config.limit(length(source)) for source in self.sources]
        if not model.max_length:
            return limits
        rooms = [model.max_length - len(self._begun(model, source)) for source in self.sources]
        return [min(both) for both in zip(limits, rooms, strict=True)]

    def past(self, model: Generator) -> Tensor:
        """The prompts of a model that goes on with them, (R, P), padded on the left; of others nothing, (R, 0)."""
        rows = [torch.tensor(source if model.continues else (), dtype=torch.long) for source in self.sources]
        padded = pad_sequence(rows, batch_first=True, padding_value=PAD, padding_side="left")
        return padded.repeat_interleave(self.config.rows, 0).to(self.device)  # (B, P) -> (R, P)

    def opening(self, model: Generator) -> Tensor:
        """What `start` reads, (B, S), padded on the right: sources with their end tokens; or, where the model goes on
        with them, all tokens before the last, which is the first to be stepped. Images as they are."""
        images = [source for source in self.sources if isinstance(source, Tensor)]
        if images:
            return torch.stack(images).to(self.device)  # (B, C, H, W)
        if model.continues:
            begun = [self._begun(model, source) for source in self.sources]
            longest = max(map(len, begun))
            if model.max_length and longest >= model.max_length:
                raise UserError(
                    f"a prompt of {max(map(len, self.sources))} tokens is too long: this model has {model.max_length} "
                    f"positions, for the prompt and what it writes; leave out {longest - model.max_length + 1} or more"
                )
            rows = [torch.tensor(each[:-1], dtype=torch.long) for each in begun]
        else:
            rows = [torch.tensor([*source, EOS]) for source in self.sources]
        return pad_sequence(rows, batch_first=True, padding_value=PAD).to(self.device)

    def _begun(self, model: Generator, source: Source) -> list[int]:
        """What stands before the first token to be written: the start, and a prompt after it. Some models read prompts
        without the start."""
        prompt = list(source) if model.continues else []
        return prompt if prompt and not self.config.marked else [model.start_id, *prompt]

    def first(self, model: Generator) -> Tensor:
        """The token that each row is stepped with first, (R,)."""
        last = [source[-1] if model.continues and source else model.start_id for source in self.sources]
        return torch.tensor(last, device=self.device).repeat_interleave(self.config.rows)  # (B,) -> (R,)


class Stepper:
    """log P of the next tokens: padding and start are never produced, the end is due at the limit and not before the
    shortest length, no sequence comes again that may not.

    These rules only close ways; the numbers stay the model's own log P. Every hypothesis is thus a whole sentence, its
    end included, and hypotheses can be compared however they came to an end. After a stop string the end is free:
    log P = 0. A penalty on repetitions changes the model's P for all that follows.
    """

    def __init__(self, model: Generator, request: Request):
        self.model = model
        never = sorted({PAD, BOS, model.start_id} - {model.end_id})
        self.never = torch.tensor(never, device=request.device)
        self.choices = model.vocab - len(never)
        limits = request.limits(model)
        due = torch.tensor(limits, device=request.device)
        self.limits = due.repeat_interleave(request.config.rows)  # (B,) -> (R,)
        self.first_limit = min(limits)
        self.longest = max(limits)
        self.rules = LogitsProcessors()
        if request.config.looks_back:
            self.rules = HistoryProcessors(request.config, request.past(model), model.end_id, request.tokeniser)

    def __call__(self, tokens: Tensor, state: Any, done: int) -> tuple[Tensor, Any]:
        """Tokens (R,) -> log P (R, V) after `done` tokens, and the new state."""
        logits, state = self.model.step(tokens, state)
        logits = self.rules.process(logits, tokens, done)
        # One fused pass: on CPU it is as fast as logsumexp, and its result is ours to write on.
        log_probs = logits.log_softmax(-1, dtype=torch.float32)
        log_probs.index_fill_(1, self.never, -torch.inf)
        if done >= self.first_limit:
            due = self.limits <= done
            end = log_probs[:, self.model.end_id].clone()
            log_probs.masked_fill_(due[:, None], -torch.inf)
            log_probs[:, self.model.end_id] = end
        self.rules.finish(log_probs, self.limits, done)
        return log_probs, state

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        self.rules.select(rows)
        if len(rows) < len(self.limits):  # rows that only change places are of one source, and have one limit
            self.limits = self.limits[rows]


def best(scores: Tensor, count: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they are, as `topk`, several times faster on long rows.

    The largest `count` lie in the `count` blocks with the largest maxima, so only those are sorted.

        >>> values, places = best(torch.arange(10000.0)[None], 3)
        >>> places.tolist()
        [[9999, 9998, 9997]]
    """
    vocab = scores.shape[1]
    blocks = vocab // block
    # The way is chosen by the vocabulary alone, so that ties fall the same way in any batch.
    if count == 1 and blocks < 256:
        return scores.max(1, keepdim=True)
    if blocks < count * 16:
        return scores.topk(count)
    inside = blocks * block
    maxima = scores[:, :inside].unflatten(1, (blocks, block)).amax(2)  # (R, V) -> (R, blocks)
    offsets = torch.arange(block, device=scores.device)
    places = (maxima.topk(count)[1][:, :, None] * block + offsets).flatten(1)  # (R, count * block)
    if inside < vocab:
        tail = torch.arange(inside, vocab, device=scores.device).expand(len(scores), -1)
        places = torch.cat((places, tail), dim=1)
    values, order = scores.gather(1, places).topk(count)
    return values, places.gather(1, order)
