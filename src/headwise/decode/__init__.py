"""Search for outputs: greedy, sampled or by beam, over any model with `start` and `step`."""

from headwise.decode.driver import decode, decode_batches, stream
from headwise.decode.ensemble import Ensemble
from headwise.decode.generator import Generator, State
from headwise.decode.hypothesis import Hypothesis, length_penalty

__all__ = [
    "Ensemble",
    "Generator",
    "Hypothesis",
    "State",
    "decode",
    "decode_batches",
    "length_penalty",
    "stream",
]
