"""Logits processors: penalties on repetitions, n-gram blocking, forced and suppressed tokens, lengths, stop strings.

They form one list, in the order of `transformers`: penalties, which change scores, come before constraints, which set
them to -inf. A convention decides where in the list scores become log P.

Letters: R rows, V vocabulary, L length of the history: a row's prompt, padded on the left, and its generated tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.decode.config import NO_TOKEN, DecodeConfig
from headwise.errors import UserError
from headwise.text import BOS, PAD
from headwise.text.base import Tokeniser


@dataclass(frozen=True)
class Rows:
    """What logits processors know of the rows of a batch. Padding is `NO_TOKEN`."""

    history: Tensor  # (R, L)
    sources: Tensor  # (R, S) the source or prompt, padded on the left
    prompt_lengths: Tensor  # (R,) tokens before the first generated one, BOS included
    limits: Tensor  # (R,) maximum lengths of the outputs
    done: Tensor  # (R,) generated tokens
    least_done: int  # at most the least of `done`, on the host
    least_left: int  # at most the least of `limits - done`, on the host
    forced: int = 0  # tokens of the prompt that count as generated

    def extend(self, tokens: Tensor | None) -> Rows:
        """The rows after one more token each, which `tokens` (R, 1) adds to the history."""
        history = self.history if tokens is None else torch.cat((self.history, tokens), dim=1)
        done, least_done, least_left = self.done + 1, self.least_done + 1, self.least_left - 1
        return replace(self, history=history, done=done, least_done=least_done, least_left=least_left)

    def select(self, rows: Tensor) -> Rows:
        """These rows, in this order."""
        return replace(self, **{name: getattr(self, name)[rows] for name in PER_ROW})

    def join(self, other: Rows) -> Rows:
        """These rows and those of another batch with the same processors."""
        return Rows(
            **{name: join_left_padded(getattr(self, name), getattr(other, name)) for name in PER_ROW},
            least_done=min(self.least_done, other.least_done),
            least_left=min(self.least_left, other.least_left),
            forced=self.forced,
        )


PER_ROW = ("history", "sources", "prompt_lengths", "limits", "done")


def join_left_padded(first: Tensor, second: Tensor) -> Tensor:
    """Concatenate rows of tokens (R, L), the shorter ones padded on the left; or numbers (R,)."""
    if first.dim() == 1:
        return torch.cat((first, second))
    longest = max(first.shape[1], second.shape[1])
    return torch.cat([F.pad(ids, (longest - ids.shape[1], 0), value=NO_TOKEN) for ids in (first, second)])


# Scores (R, V) after the processors before it -> scores. Those after the log softmax may change them in place.
LogitsProcessor = Callable[[Tensor, Rows], Tensor]


def build_processors(
    config: DecodeConfig,
    vocab: int,
    start: int,
    end: int,
    device: torch.device,
    tokeniser: Tokeniser | None = None,
) -> list[LogitsProcessor]:
    """The logits processors of a config, in the order of `transformers` (`_get_logits_processor`)."""
    check_token_ids(config, vocab, end)
    if config.stop and tokeniser is None:
        raise UserError("decode.stop: stop strings need the tokeniser of a language model; leave them out")
    convention = config.conventions
    ends = (end, *config.eos_token_ids)
    never = () if convention.generates_special else sorted({PAD, BOS, start} - {end})
    penalties: list[LogitsProcessor | None] = [
        penalty_on_sources(config.encoder_repetition_penalty) if config.encoder_repetition_penalty != 1 else None,
        penalty_on_history(config.repetition_penalty) if config.repetition_penalty != 1 else None,
    ]
    constraints: list[LogitsProcessor | None] = [
        suppress(never, device) if never else None,
        end_at_limit(end) if convention.forces_eos else None,
        block_ngrams(config.no_repeat_ngram_size) if config.no_repeat_ngram_size else None,
        block_source_ngrams(config.encoder_no_repeat_ngram_size) if config.encoder_no_repeat_ngram_size else None,
        *(
            forbid_sequence(words, device)
            for words in config.bad_words_ids
            if words not in {(token,) for token in ends}
        ),
        end_not_before(config, ends) if config.min_length or config.min_total_length else None,
        force_first(config.forced_bos_token_id) if config.forced_bos_token_id != NO_TOKEN else None,
        force_last(config.forced_eos_token_id) if config.forced_eos_token_id != NO_TOKEN else None,
        suppress(config.suppress_tokens, device) if config.suppress_tokens else None,
        suppress_first(config, device) if config.begin_suppress_tokens else None,
        end_after_stop(tokeniser, config.stop, end) if tokeniser and config.stop else None,
        log_softmax if config.renormalize_logits else None,
    ]
    normalises_first = convention.normalises_first and config.search == "beam"
    order = [log_softmax, *penalties] if normalises_first else [*penalties, log_softmax]
    return [processor for processor in (*order, *constraints) if processor is not None]


def check_token_ids(config: DecodeConfig, vocab: int, end: int) -> None:
    """Raise if a config names a token that the model does not have, or suppresses the EOS that it forces."""
    named = {
        "bad_words_ids": [token for words in config.bad_words_ids for token in words],
        "suppress_tokens": config.suppress_tokens,
        "begin_suppress_tokens": config.begin_suppress_tokens,
        "forced_bos_token_id": [config.forced_bos_token_id],
        "forced_eos_token_id": [config.forced_eos_token_id],
        "eos_token_ids": config.eos_token_ids,
        "decoder_start_token_id": [config.decoder_start_token_id],
    }
    for key, ids in named.items():
        if max(ids, default=0) >= vocab:
            raise UserError(f"decode.{key}: the model has no token {max(ids)}; choose ids from 0 to {vocab - 1}")
    if config.conventions.forces_eos and end in config.suppress_tokens:
        raise UserError("decode.suppress_tokens: EOS cannot be suppressed, since every output ends with it; remove it")


def log_softmax(scores: Tensor, rows: Rows) -> Tensor:
    # One fused pass: on CPU as fast as logsumexp, and the result is a new tensor that can be modified in place.
    return scores.log_softmax(-1, dtype=torch.float32)


def penalty_on_history(penalty: float) -> LogitsProcessor:
    """Repetition penalty: tokens of the history become less likely."""
    return lambda scores, rows: penalize_tokens(scores, rows.history, penalty)


def penalty_on_sources(penalty: float) -> LogitsProcessor:
    """Encoder repetition penalty: tokens of the source become more likely."""
    return lambda scores, rows: penalize_tokens(scores, rows.sources, 1 / penalty)


def penalize_tokens(scores: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    """Repetition penalty (Keskar et al. 2019, 4.1): divides the logits (R, V) of the tokens (R, L).

    DISCREPANCY: the paper divides all logits; dividing a negative one would raise it, so negative ones are multiplied.

    >>> penalize_tokens(torch.tensor([[0.0, 3.0, -3.0, 3.0]]), torch.tensor([[1, 2, 1]]), 1.5).tolist()
    [[0.0, 2.0, -4.5, 3.0]]
    """
    repeated = mark_tokens(scores, tokens)
    return torch.where(repeated, torch.where(scores > 0, scores / penalty, scores * penalty), scores)


def mark_tokens(scores: Tensor, tokens: Tensor) -> Tensor:
    """Which columns of the scores (R, V) are among the tokens (R, L) of their row; `NO_TOKEN` is none."""
    vocab = scores.shape[1]
    marked = scores.new_zeros((len(scores), vocab + 1), dtype=torch.bool)
    return marked.scatter_(1, tokens.where(tokens >= 0, vocab), True)[:, :vocab]


def suppress(tokens: Sequence[int], device: torch.device) -> LogitsProcessor:
    """These tokens are never generated."""
    ids = torch.tensor(tokens, device=device)
    return lambda scores, rows: scores.index_fill_(1, ids, -torch.inf)


def suppress_first(config: DecodeConfig, device: torch.device) -> LogitsProcessor:
    """Tokens that are not generated first; or second, where the first token is forced."""
    ids = torch.tensor(config.begin_suppress_tokens, device=device)
    forces = config.forced_bos_token_id != NO_TOKEN

    def process(scores: Tensor, rows: Rows) -> Tensor:
        if rows.least_done > forces:
            return scores
        first = (rows.prompt_lengths == 1).long() * forces  # (R,) 1 where the token before it is forced
        begins = (first == rows.done)[:, None]
        return torch.where(begins, scores.index_fill(1, ids, -torch.inf), scores)

    return process


def end_at_limit(end: int) -> LogitsProcessor:
    """At the maximum length EOS is the only token, with its own log P."""

    def process(scores: Tensor, rows: Rows) -> Tensor:
        if rows.least_left > 0:
            return scores
        due = rows.limits <= rows.done
        log_probs = scores[:, end].clone()
        scores.masked_fill_(due[:, None], -torch.inf)
        scores[:, end] = log_probs
        return scores

    return process


def block_ngrams(size: int) -> LogitsProcessor:
    """N-gram blocking: no n-gram of the history is generated again."""
    return lambda scores, rows: forbid_ngrams(scores, rows.history, rows.history, size)


def block_source_ngrams(size: int) -> LogitsProcessor:
    """No n-gram of the source is generated."""
    return lambda scores, rows: forbid_ngrams(scores, rows.history, rows.sources, size)


def forbid_ngrams(scores: Tensor, history: Tensor, text: Tensor, size: int) -> Tensor:
    """N-gram blocking (Paulus et al. 2018, 2.5): forbids tokens that, after the history (R, L), would complete an
    n-gram of the text (R, S).

    >>> history = torch.tensor([[4, 5, 6, 4]])
    >>> forbid_ngrams(torch.zeros(1, 7), history, history, 2).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, -inf, 0.0]]
    """
    if text.shape[1] < size or history.shape[1] < size - 1:
        return scores
    ngrams = text.unfold(1, size, 1)  # (R, S) -> (R, S - size + 1, size)
    matches = (ngrams[..., :-1] == history[:, None, history.shape[1] - size + 1 :]).all(-1)
    return scores.masked_fill_(mark_tokens(scores, ngrams[..., -1].where(matches, NO_TOKEN)), -torch.inf)


def forbid_sequence(words: Sequence[int], device: torch.device) -> LogitsProcessor:
    """A sequence of tokens is never completed."""
    if len(words) == 1:
        return suppress(words, device)
    prefix, last = torch.tensor(words[:-1], device=device), words[-1]

    def process(scores: Tensor, rows: Rows) -> Tensor:
        if rows.history.shape[1] < len(prefix):
            return scores
        matches = (rows.history[:, -len(prefix) :] == prefix).all(1)
        scores[:, last].masked_fill_(matches, -torch.inf)
        return scores

    return process


def end_not_before(config: DecodeConfig, ends: Sequence[int]) -> LogitsProcessor:
    """Minimum length: no EOS before it. An EOS that is forced at the maximum length takes precedence."""
    forces_eos = config.conventions.forces_eos

    def process(scores: Tensor, rows: Rows) -> Tensor:
        early = rows.prompt_lengths + rows.done < config.min_total_length
        early |= rows.forced + rows.done < config.min_length
        if forces_eos:
            early &= rows.limits > rows.done
        for end in ends:
            scores[:, end].masked_fill_(early, -torch.inf)
        return scores

    return process


def force_first(token: int) -> LogitsProcessor:
    """The first token after BOS or the decoder start, if no prompt follows it; its log P is 0."""

    def process(scores: Tensor, rows: Rows) -> Tensor:
        return scores if rows.least_done else force(scores, (rows.prompt_lengths == 1) & (rows.done == 0), token)

    return process


def force_last(token: int) -> LogitsProcessor:
    """The last token of an output of maximum length; its log P is 0."""

    def process(scores: Tensor, rows: Rows) -> Tensor:
        return force(scores, rows.limits == rows.done + 1, token) if rows.least_left <= 1 else scores

    return process


def force(scores: Tensor, forced: Tensor, token: int) -> Tensor:
    """Make a token the only one of the forced rows (R,), with log P = 0."""
    scores.masked_fill_(forced[:, None], -torch.inf)
    scores[:, token].masked_fill_(forced, 0)
    return scores


def end_after_stop(tokeniser: Tokeniser, stop: Sequence[str], end: int) -> LogitsProcessor:
    """After a stop string EOS is forced; its log P is 0."""
    return lambda scores, rows: force(scores, find_stops(tokeniser, rows.history, rows.done, stop), end)


def find_stops(tokeniser: Tokeniser, history: Tensor, generated: Tensor, stop: Sequence[str]) -> Tensor:
    """Whether the text of the last `generated` (R,) tokens of each row contains a stop string, (R,); earlier tokens
    were checked in earlier steps."""
    span = max(len(string.encode()) for string in stop)  # the most tokens of a stop string: each has a byte or more
    counts = generated.clamp(max=span).tolist()
    # One more token, whose text is removed again: it decides how the next one is joined to it.
    tails = history[:, max(0, history.shape[1] - max(counts, default=0) - 1) :].tolist()

    def has_stop(tail: list[int], new: int) -> bool:
        tail = [PAD if token == NO_TOKEN else token for token in tail[max(0, len(tail) - new - 1) :]]
        text = tokeniser.decode(tail)[len(tokeniser.decode(tail[: len(tail) - new])) :]
        return any(string in text for string in stop)

    found = [has_stop(tail, new) for tail, new in zip(tails, counts, strict=True)]
    return torch.tensor(found, dtype=torch.bool, device=history.device)
