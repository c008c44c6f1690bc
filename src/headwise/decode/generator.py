"""The generator interface of a model, the decoding request, and the decoding step that all searches share.

Letters: B sources, K rows of a source, R = B * K rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.decode.config import NO_TOKEN, DecodeConfig
from headwise.decode.logits_processors import Rows, build_processors
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
    def continues_prompt(self) -> bool:
        """Whether the output continues the source (language model) or is a separate sequence (encoder-decoder)."""
        ...

    @property
    def ragged(self) -> bool:
        """Whether `start` takes a batch of prompts of different lengths, padded on the right."""
        ...

    @property
    def joins(self) -> bool:
        """Whether rows of different lengths may share a state."""
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
        forced = self.count_forced(model)
        limits = [max(1, self.config.limit(source_length(source)) - forced) for source in self.sources]
        if model.max_length:
            positions = [model.max_length - len(self._build_prompt(model, source)) for source in self.sources]
            limits = [min(pair) for pair in zip(limits, positions, strict=True)]
        if self.config.max_total_length:
            free = [self.config.max_total_length - length for length in self.count_prompts(model)]
            if min(free) < 1:
                raise UserError(
                    f"decode.max_total_length: {self.config.max_total_length} leaves no room for an output after a "
                    f"prompt of {max(self.count_prompts(model))} tokens; raise it"
                )
            limits = [min(pair) for pair in zip(limits, free, strict=True)]
        return limits

    def count_prompts(self, model: Generator) -> list[int]:
        """The number of tokens before the first generated one of each source, BOS included."""
        prefix = get_decoder_prefix(model)
        return [len(self._build_prompt(model, source)) + len(prefix) for source in self.sources]

    def count_forced(self, model: Generator) -> int:
        """How many tokens of the decoder's prompt count as generated: those after the first, where the convention is
        that of `generate`, whose BART generates its BOS."""
        return len(get_decoder_prefix(model)) if self.config.conventions.counts_start else 0

    def build_history(self, model: Generator) -> Tensor:
        """The tokens before the first generated one that logits processors see, (R, P), padded on the left: prompts;
        and, where the convention counts them, BOS or the decoder start."""
        if self.config.conventions.counts_start:
            rows = [[*get_decoder_prefix(model), *self._build_prompt(model, source)] for source in self.sources]
            start = self.config.decoder_start_token_id
            if start != NO_TOKEN:
                rows = [[start, *row[1:]] if row[:1] == [model.start_id] else row for row in rows]
        else:
            rows = [list(source) if model.continues_prompt else [] for source in self.sources]
        return self._repeat_rows(rows)

    def build_sources(self, model: Generator) -> Tensor:
        """The sources or prompts that logits processors see, (R, S), padded on the left; of images none."""
        rows = [[] if isinstance(source, Tensor) else list(source) for source in self.sources]
        if self.config.conventions.counts_start:
            if model.continues_prompt:
                return self.build_history(model)
            encoder = getattr(model, "encoder", None)
            suffix_id = getattr(encoder, "suffix_id", None)
            end = [EOS] if suffix_id is None else [EOS, suffix_id]
            rows = [[*get_prefix(encoder), *row, *end] for row in rows]
        return self._repeat_rows(rows)

    def _repeat_rows(self, rows: list[list[int]]) -> Tensor:
        """Lists of tokens -> (R, L), padded on the left, `config.rows` times each."""
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
        padded = pad_sequence(tensors, batch_first=True, padding_value=NO_TOKEN, padding_side="left")
        return padded.repeat_interleave(self.config.rows, 0).to(self.device)  # (B, L) -> (R, L)

    def build_inputs(self, model: Generator) -> Tensor:
        """The inputs of `start`, padded on the right: sources with EOS, (B, S); for a language model the prompts
        without their last token, which is the input of the first step; images unchanged."""
        images = [source for source in self.sources if isinstance(source, Tensor)]
        if images:
            return torch.stack(images).to(self.device)  # (B, C, H, W)
        if model.continues_prompt:
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
        prompt = list(source) if model.continues_prompt else []
        return prompt if prompt and not self.config.marked else [model.start_id, *prompt]

    def build_first_tokens(self, model: Generator) -> Tensor:
        """The input of the first step, (R,): the last token of the prompt, or BOS."""
        last = [source[-1] if model.continues_prompt and source else model.start_id for source in self.sources]
        return torch.tensor(last, device=self.device).repeat_interleave(self.config.rows)  # (B,) -> (R,)


def get_prefix(side: Any) -> list[int]:
    """The token that an encoder or decoder reads before every text, in a list; empty without one."""
    prefix_id = getattr(side, "prefix_id", None)
    return [] if prefix_id is None else [prefix_id]


def get_decoder_prefix(model: Generator) -> list[int]:
    """The tokens that the decoder of an encoder-decoder reads before the start token: of BART one, else none."""
    return [] if model.continues_prompt else get_prefix(getattr(model, "decoder", None))


class NextTokenScorer:
    """One decoding step: log P of the next tokens after the logits processors.

    By our own convention PAD and BOS are never generated, and EOS is forced at the maximum length. Constraints set
    log P to -inf and do not renormalise, so the other values remain the model's log P: every hypothesis is a complete
    sequence with EOS, and hypotheses are comparable however they ended. Forced tokens, and EOS after a stop string,
    have log P = 0. A repetition penalty changes the distribution itself.
    """

    def __init__(self, model: Generator, request: Request):
        config, convention, device = request.config, request.config.conventions, request.device
        self.model = model
        self.ends = [model.end_id, *config.eos_token_ids]
        special = () if convention.generates_special else {PAD, BOS, model.start_id} - {model.end_id}
        self.choices = model.vocab - len(special)
        limits = request.compute_limits(model)
        self.longest = max(limits)
        self.steps = self.longest + convention.forces_eos  # of the longest row, EOS included
        self.cuts_at_limit = not convention.forces_eos
        self.processors = build_processors(config, model.vocab, model.start_id, model.end_id, device, request.tokeniser)
        self.keeps_history = config.processes_logits
        none = torch.empty(len(limits) * config.rows, 0, dtype=torch.long, device=device)
        self.rows = Rows(
            history=request.build_history(model) if self.keeps_history else none,
            sources=request.build_sources(model) if config.reads_source else none,
            prompt_lengths=self._per_row(request.count_prompts(model), request),
            limits=self._per_row(limits, request),
            done=torch.zeros(len(limits) * config.rows, dtype=torch.long, device=device),
            least_done=0,
            least_left=min(limits),
            forced=request.count_forced(model),
        )

    @staticmethod
    def _per_row(numbers: list[int], request: Request) -> Tensor:
        return torch.tensor(numbers, device=request.device).repeat_interleave(request.config.rows)  # (B,) -> (R,)

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Last tokens (R,) -> log P (R, V) of the next, and the new state."""
        logits, state = self.model.step(tokens, state)
        return self.score(logits), state

    def score(self, logits: Tensor) -> Tensor:
        """Logits (R, V) -> log P."""
        scores = logits.float()
        for process in self.processors:
            scores = process(scores, self.rows)
        return scores

    def find_ended(self, tokens: Tensor, limits: Tensor, done: Tensor) -> Tensor:
        """Which of the tokens end an output after `done` others: EOS, and all where outputs are cut at `limits`."""
        ended = tokens == self.ends[0]
        for end in self.ends[1:]:
            ended |= tokens == end
        return ended | (limits <= done + 1) if self.cuts_at_limit else ended

    def extend(self, tokens: Tensor) -> None:
        """Continue with these tokens, one of each row."""
        self.rows = self.rows.extend(tokens[:, None] if self.keeps_history else None)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, in this order."""
        self.rows = self.rows.select(rows)

    def set_bounds(self, least_done: int, least_left: int) -> None:
        """Set the numbers of tokens of the shortest output, and of the one that is nearest to its limit."""
        self.rows = replace(self.rows, least_done=least_done, least_left=least_left)

    def join(self, other: NextTokenScorer) -> None:
        """Append the rows of another scorer with the same processors."""
        self.rows = self.rows.join(other.rows)


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
