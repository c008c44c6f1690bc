"""The generator interface of a model, the decoding request, and the decoding step that all searches share.

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

Source = Sequence[int] | Tensor  # token ids without special tokens, or a normalised image (C, H, W)


def source_length(source: Source) -> int:
    """The number of tokens of a source; for an image an estimate, its height (224 rows are 196 patches of 16 x 16)."""
    return source.shape[-2] if isinstance(source, Tensor) else len(source)


class State(Protocol):
    """The decoding state of a model between steps: KV cache, recurrent state, ..."""

    def select(self, rows: Tensor) -> State:
        """The state of `rows`, in that order; a source keeps all of its K rows or none."""
        ...

    def join(self, other: Any) -> State:
        """The rows of this state followed by those of another state of the same model; each row decodes as it would
        alone. Neither input state may be used afterwards."""
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
        """Whether the output continues the source (language model) or is a separate sequence (encoder-decoder)."""
        ...

    @property
    def ragged(self) -> bool:
        """Whether `start` takes a batch of prompts of different lengths, padded on the right."""
        ...

    @property
    def max_length(self) -> int:
        """The number of positions, for BOS, prompt and output together; 0: unlimited."""
        ...

    def start(self, source: Tensor, beams: int = 1) -> Any:
        """Token ids (B, S) or images (B, C, H, W) -> the state of B * beams rows; rows of a source are contiguous."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The last tokens (R,) -> logits of the next tokens (R, V), and the new state."""
        ...


@dataclass(frozen=True)
class Request:
    """A batch of sources to decode: all token ids or all images."""

    sources: Sequence[Source]
    config: DecodeConfig
    device: torch.device
    tokeniser: Tokeniser | None = None  # of the outputs, for stop strings

    def compute_limits(self, model: Generator) -> list[int]:
        """The maximum length of each output."""
        limits = [self.config.limit(source_length(source)) for source in self.sources]
        if not model.max_length:
            return limits
        positions = [model.max_length - len(self._build_prompt(model, source)) for source in self.sources]
        return [min(pair) for pair in zip(limits, positions, strict=True)]

    def build_history(self, model: Generator) -> Tensor:
        """The prompts of a language model, (R, P), padded on the left; (R, 0) for an encoder-decoder."""
        rows = [torch.tensor(source if model.continues else (), dtype=torch.long) for source in self.sources]
        padded = pad_sequence(rows, batch_first=True, padding_value=PAD, padding_side="left")
        return padded.repeat_interleave(self.config.rows, 0).to(self.device)  # (B, P) -> (R, P)

    def build_inputs(self, model: Generator) -> Tensor:
        """The inputs of `start`, padded on the right: sources with EOS, (B, S); for a language model the prompts
        without their last token, which is the input of the first step; images unchanged."""
        images = [source for source in self.sources if isinstance(source, Tensor)]
        if images:
            return torch.stack(images).to(self.device)  # (B, C, H, W)
        if model.continues:
            prompts = [self._build_prompt(model, source) for source in self.sources]
            longest = max(map(len, prompts))
            if model.max_length and longest >= model.max_length:
                raise UserError(
                    f"a prompt of {max(map(len, self.sources))} tokens is too long: this model has {model.max_length} "
                    f"positions for prompt and output; leave out {longest - model.max_length + 1} or more"
                )
            rows = [torch.tensor(prompt[:-1], dtype=torch.long) for prompt in prompts]
        else:
            rows = [torch.tensor([*source, EOS]) for source in self.sources]
        return pad_sequence(rows, batch_first=True, padding_value=PAD).to(self.device)

    def _build_prompt(self, model: Generator, source: Source) -> list[int]:
        """The tokens before the first generated one: BOS (unless `config.marked` is false) and the prompt."""
        prompt = list(source) if model.continues else []
        return prompt if prompt and not self.config.marked else [model.start_id, *prompt]

    def build_first_tokens(self, model: Generator) -> Tensor:
        """The input of the first step, (R,): the last token of the prompt, or BOS."""
        last = [source[-1] if model.continues and source else model.start_id for source in self.sources]
        return torch.tensor(last, device=self.device).repeat_interleave(self.config.rows)  # (B,) -> (R,)


class Stepper:
    """One decoding step: log P of the next tokens after the logits processors. PAD and BOS are never generated, and
    EOS is forced at the maximum length.

    Constraints set log P to -inf and do not renormalise, so the other values remain the model's log P: every hypothesis
    is a complete sequence with EOS, and hypotheses are comparable however they ended. After a stop string EOS has
    log P = 0. A repetition penalty changes the distribution itself.
    """

    def __init__(self, model: Generator, request: Request):
        self.model = model
        never = sorted({PAD, BOS, model.start_id} - {model.end_id})
        self.never = torch.tensor(never, device=request.device)
        self.choices = model.vocab - len(never)
        limits = request.compute_limits(model)
        due = torch.tensor(limits, device=request.device)
        self.limits = due.repeat_interleave(request.config.rows)  # (B,) -> (R,)
        self.first_limit = min(limits)
        self.longest = max(limits)
        self.processors = LogitsProcessors()
        if request.config.needs_history:
            self.processors = HistoryProcessors(
                request.config, request.build_history(model), model.end_id, request.tokeniser
            )

    def __call__(self, tokens: Tensor, state: Any, done: int) -> tuple[Tensor, Any]:
        """Last tokens (R,) -> log P (R, V) of the token after `done` generated ones, and the new state."""
        logits, state = self.model.step(tokens, state)
        logits = self.processors.process(logits, tokens, done)
        # One fused pass: on CPU as fast as logsumexp, and the result is a new tensor that can be modified in place.
        log_probs = logits.log_softmax(-1, dtype=torch.float32)
        log_probs.index_fill_(1, self.never, -torch.inf)
        if done >= self.first_limit:
            due = self.limits <= done
            end = log_probs[:, self.model.end_id].clone()
            log_probs.masked_fill_(due[:, None], -torch.inf)
            log_probs[:, self.model.end_id] = end
        self.processors.finish(log_probs, self.limits, done)
        return log_probs, state

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, in this order."""
        self.processors.select(rows)
        if len(rows) < len(self.limits):  # reordered rows belong to one source, with one limit
            self.limits = self.limits[rows]


def topk(scores: Tensor, count: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their indices: `Tensor.topk`, several times faster on long rows.

    The largest `count` lie in the `count` blocks with the largest maxima, so only those are sorted.

        >>> values, indices = topk(torch.arange(10000.0)[None], 3)
        >>> indices.tolist()
        [[9999, 9998, 9997]]
    """
    vocab = scores.shape[1]
    blocks = vocab // block
    # The branch depends on the vocabulary alone, so that ties are broken the same way in any batch.
    if count == 1 and blocks < 256:
        return scores.max(1, keepdim=True)
    if blocks < count * 16:
        return scores.topk(count)
    inside = blocks * block
    maxima = scores[:, :inside].unflatten(1, (blocks, block)).amax(2)  # (R, V) -> (R, blocks)
    offsets = torch.arange(block, device=scores.device)
    indices = (maxima.topk(count)[1][:, :, None] * block + offsets).flatten(1)  # (R, count * block)
    if inside < vocab:
        tail = torch.arange(inside, vocab, device=scores.device).expand(len(scores), -1)
        indices = torch.cat((indices, tail), dim=1)
    values, order = scores.gather(1, indices).topk(count)
    return values, indices.gather(1, order)
