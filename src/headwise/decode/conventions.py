"""The conventions of a search: those of this library, and those of `generate` in Hugging Face transformers.

The two differ in what no number expresses: where finished hypotheses are kept, how the length penalty is written, how
an output ends at its maximum length. They are values here, so that there is one search.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwise.decode.length_penalty import LengthPenalty, gnmt_length_penalty, power_length_penalty


@dataclass(frozen=True)
class Convention:
    """What a search does where libraries differ."""

    length_penalty: LengthPenalty  # |Y| is the number of generated tokens, EOS included
    finished_take_beams: bool  # a finished hypothesis takes a beam; else it moves to a pool of K beside the K beams
    forces_eos: bool  # at the maximum length EOS is forced, and its log P counts; else the output is cut there
    generates_special: bool  # whether PAD and BOS may be generated
    counts_start: bool  # whether BOS, or the decoder start, is part of the history of the logits processors
    normalises_first: bool  # in beam search the logits processors change log P; else logits, or log P by a constraint


HEADWISE = Convention(
    length_penalty=gnmt_length_penalty,
    finished_take_beams=True,
    forces_eos=True,
    generates_special=False,
    counts_start=False,
    normalises_first=False,
)
GENERATE = Convention(
    length_penalty=power_length_penalty,
    finished_take_beams=False,
    forces_eos=False,
    generates_special=True,
    counts_start=True,
    normalises_first=True,
)
CONVENTIONS = {"headwise": HEADWISE, "generate": GENERATE}
