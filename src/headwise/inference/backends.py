"""Which engine decodes: our own loop, its 8-bit form, or CTranslate2."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from headwise.blocks.evaluation import get_device
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.utils.extras import describe_missing

Engine = Literal["auto", "native", "ctranslate2"]
log = logging.getLogger(__name__)


def choose(
    loaded: TrainedModel, engine: Engine = "auto", int8: bool = False, threads: int = 1, config: DecodeConfig = GREEDY
) -> TrainedModel:
    """The same model on another engine. `auto` takes CTranslate2 where it is installed and can do what is asked."""
    reason = beyond(config) or obstacle(loaded)
    if engine == "ctranslate2" and reason:
        raise UserError(f"--engine ctranslate2: {reason}; use --engine native")
    wrong = int8 and engine != "native" and overflows()
    if engine == "ctranslate2" or (engine == "auto" and not reason and not wrong):
        from headwise.interop.ctranslate2 import CTranslate2Engine

        if wrong:
            log.warning(
                "CTranslate2's 8-bit products may overflow on this CPU, and outputs be wrong; "
                "use --engine native, or leave out --int8"
            )
        return replace(loaded, model=CTranslate2Engine.from_trained(loaded, int8=int8, threads=threads))
    if int8:
        from headwise.decode.int8 import quantize

        return replace(loaded, model=quantize(loaded.model))
    if isinstance(loaded.model, nn.Module) and get_device(loaded.model).type == "cpu":
        from headwise.decode.int8_screen import for_cpu

        return replace(loaded, model=for_cpu(loaded.model, config))
    return loaded


def overflows() -> bool:
    """Whether this CPU adds 8-bit products in 16 bits. CTranslate2 does not mind where it runs on oneDNN: there 80 of
    1,500 words of a small trained model came out otherwise, 21 with right sums, and of a large random one all."""
    from headwise.decode import int8

    return torch.backends.quantized.engine != "none" and int8.overflows()


def beyond(config: DecodeConfig) -> str:
    """What of our own ways to decode CTranslate2 does not have; empty if nothing."""
    if config.search == "sample":
        return "it cannot repeat our random draws"
    if config.looks_back:
        return "it does not know stop strings, penalties and other rules about what was written"
    return "it does not show where unknown words come from" if config.replace_unknown else ""


def obstacle(loaded: TrainedModel) -> str:
    """Why CTranslate2 cannot run this model; empty if it can."""
    from headwise.interop.ctranslate2 import find_unsupported

    if not isinstance(loaded.model, EncoderDecoder):
        return "it runs single models, not this one"
    if get_device(loaded.model).type != "cpu":
        return "it was given a model on another device than the CPU"
    if reason := find_unsupported(loaded.experiment.model):
        return reason
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        return describe_missing("ctranslate2")
    return ""
