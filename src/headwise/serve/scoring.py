"""log P of a text, token by token, by any model that generates."""

from __future__ import annotations

from typing import Any

import torch

from headwise.blocks.evaluation import eval_mode, get_device
from headwise.decode.config import DecodeConfig
from headwise.decode.generator import Request, get_decoder_prefix
from headwise.errors import UserError
from headwise.inference.trained_model import TrainedModel
from headwise.serve.limits import MAX_SCORED_TOKENS


@torch.inference_mode()
def score_text(trained: TrainedModel, text: str, source: str, ends: bool) -> dict[str, Any]:
    """log P(text), of an encoder-decoder given `source`; with `ends`, of the end of the text after it, too."""
    model, target = trained.model, trained.tokenisers.target
    continues = model.continues_prompt
    if bool(source) == continues:
        raise UserError(
            "source: a language model has none; leave it out"
            if continues
            else "source: this run turns a source into a text; send both"
        )
    ids = [*target.encode(text), *([model.end_id] if ends else [])]
    encoder_ids = [] if continues else trained.tokenisers.source.encode(trained.experiment.data.add_prefix(source))
    limit = min(model.max_length or MAX_SCORED_TOKENS, MAX_SCORED_TOKENS)
    if len(ids) + 1 + len(get_decoder_prefix(model)) > limit:
        raise UserError(f"text: has {len(ids):,} tokens, and at most {limit - 1:,} can be scored; shorten it")
    request = Request([encoder_ids], DecodeConfig(), get_device(model))
    log_probs: list[float] = []
    with eval_mode(model):
        state, token = model.start(request.build_inputs(model)), request.build_first_tokens(model)
        for number in ids:
            logits, state = model.step(token, state)
            log_probs.append(float(logits[0].float().log_softmax(-1)[number]))
            token = torch.tensor([number], device=request.device)
    tokens = [
        {"token": name, "id": number, "log_prob": log_prob}
        for name, number, log_prob in zip(target.tokens(ids), ids, log_probs, strict=True)
    ]
    return {"log_prob": sum(log_probs), "tokens": tokens}
