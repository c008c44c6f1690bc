"""What a trained model attends to while it reads and writes one text."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from headwise.blocks.evaluation import get_device
from headwise.blocks.record import record
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError
from headwise.inference.maps import Maps
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.language_model import LanguageModel
from headwise.text import EOS
from headwise.text.tokenisers import Tokenisers

NOTHING = "this run's model has no attention to look at; inspect another run"


@torch.inference_mode()
def collect_attention(
    model: Any, tokenisers: Tokenisers, text: str, target: str = "", config: DecodeConfig = GREEDY
) -> Maps:
    """The attention of every layer and head, for any model that has some.

    A transducer reads `text` and writes `target`, or its own output where that is empty; a language model goes through
    `text`; what labels or fills in reads it. At each row a writer is about to write that token.
    """
    device = get_device(model)
    source, written = tokenisers.source, tokenisers.target
    if target and not isinstance(model, EncoderDecoder):
        raise UserError("target: this model reads a text and writes no other; leave it out")
    inputs: tuple[list[int], ...]
    if isinstance(model, EncoderDecoder):
        read = [*source.encode(text), EOS]
        wrote = [*written.encode(target), EOS] if target else []
        wrote = wrote or [*decode(model, [read[:-1]], config, device)[0][0].ids, EOS]
        inputs = (read, [model.start_id, *wrote[:-1]])
    elif isinstance(model, LanguageModel) and model.continues:
        read, wrote = [], written.encode(text)
        inputs = ([model.start_id, *wrote[:-1]],)
    elif hasattr(model, "encoder"):
        read, wrote = [*source.encode(text), EOS], []
        inputs = (read,)
    elif isinstance(model, Ensemble) or not isinstance(model, nn.Module):
        raise UserError("only a single run can be inspected, not an ensemble or a deployment engine")
    else:
        raise UserError(NOTHING)
    if not text:
        raise UserError("there is no text to look at; give one")
    with record() as maps:
        model(*(torch.tensor([ids], device=device) for ids in inputs))
    if not maps.weights:
        raise UserError(NOTHING)
    opening = [] if isinstance(model, LanguageModel) or model.encoder.opening is None else [model.encoder.opening]
    start: dict[str, Any] = {}
    if isinstance(model, EncoderDecoder) and model.decoder.opening is not None:  # then it writes the start, too
        start, wrote = {"start": written.tokens([model.decoder.opening])[0]}, [model.start_id, *wrote]
    latents = len(getattr(getattr(model, "encoder", None), "latents", ()))
    tokens = tuple(source.tokens([*opening, *read])), tuple(written.tokens(wrote))
    between = tuple(f"latent {number}" for number in range(1, latents + 1))
    return Maps(maps.stack_by_kind(), *tokens, exact=maps.stack_exact_by_kind(), latents=between, **start)
