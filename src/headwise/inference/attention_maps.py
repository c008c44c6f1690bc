"""Attention maps of a trained model on one text."""

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

START_NAME = "<start>"
NO_ATTENTION = "this run's model has no attention to look at; inspect another run"


@torch.inference_mode()
def collect_attention(
    model: Any, tokenisers: Tokenisers, text: str, target: str = "", config: DecodeConfig = GREEDY
) -> Maps:
    """The attention maps of every layer and head, for any model with attention.

    An encoder-decoder reads `text` and is given `target`, or its own output if that is empty; language models and
    encoders read `text`. The row of a generated token has the attention of the step that predicts it.
    """
    device = get_device(model)
    source_tokeniser, target_tokeniser = tokenisers.source, tokenisers.target
    if target and not isinstance(model, EncoderDecoder):
        raise UserError("target: only encoder-decoder models have a target text; leave it out")
    inputs: tuple[list[int], ...]
    if isinstance(model, EncoderDecoder):
        source = [*source_tokeniser.encode(text), EOS]
        output = [*target_tokeniser.encode(target), EOS] if target else []
        output = output or [*decode(model, [source[:-1]], config, device)[0][0].ids, EOS]
        inputs = (source, [model.start_id, *output[:-1]])
    elif isinstance(model, LanguageModel) and model.continues_prompt:
        source, output = [], target_tokeniser.encode(text)
        inputs = ([model.start_id, *output[:-1]],)
    elif hasattr(model, "encoder"):
        source, output = [*source_tokeniser.encode(text), EOS], []
        inputs = (source,)
    elif isinstance(model, Ensemble) or not isinstance(model, nn.Module):
        raise UserError("inspect: ensembles and deployment engines have no attention maps; name a single run")
    else:
        raise UserError(NO_ATTENTION)
    if not text:
        raise UserError("there is no text to look at; give one")
    with record() as maps:
        model(*(torch.tensor([ids], device=device) for ids in inputs))
    if not maps.weights:
        raise UserError(NO_ATTENTION)
    prefix = [] if isinstance(model, LanguageModel) or model.encoder.prefix_id is None else [model.encoder.prefix_id]
    suffix_id = getattr(getattr(model, "encoder", None), "suffix_id", None)
    source = source if suffix_id is None else [*source, suffix_id]
    start: dict[str, Any] = {}
    if isinstance(model, EncoderDecoder) and model.decoder.prefix_id is not None:  # the decoder then generates BOS, too
        start, output = {"start": target_tokeniser.tokens([model.decoder.prefix_id])[0]}, [model.start_id, *output]
    latents = len(getattr(getattr(model, "encoder", None), "latents", ()))
    # a start token after the tokeniser's vocabulary has no name there
    names = [
        START_NAME if number >= source_tokeniser.size else source_tokeniser.tokens([number])[0] for number in prefix
    ]
    tokens = (*names, *source_tokeniser.tokens(source)), tuple(target_tokeniser.tokens(output))
    latent_names = tuple(f"latent {number}" for number in range(1, latents + 1))
    return Maps(maps.stack_by_kind(), *tokens, exact=maps.stack_exact_by_kind(), latents=latent_names, **start)
