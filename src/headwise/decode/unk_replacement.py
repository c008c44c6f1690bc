"""Unknown words, replaced by the words of the source that they were written from.

PosUnk of Luong et al. (2015), "Addressing the Rare Word Problem in Neural Machine Translation", with the attention as
the aligner, as in Jean et al. (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from headwise.blocks.evaluation import eval_mode
from headwise.blocks.record import record
from headwise.data.read import read_pairs
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.driver import batches
from headwise.decode.generator import Request
from headwise.decode.hypothesis import Hypothesis
from headwise.errors import UserError
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.text import PAD, UNK
from headwise.text.base import Tokeniser
from headwise.text.vocabulary import Words


def replace_unknown(
    model: Any,
    texts: Sequence[str],
    found: Sequence[Sequence[Hypothesis]],
    sides: tuple[Tokeniser, Tokeniser],
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
) -> list[list[str]]:
    """UNK replacement: the text of each hypothesis of each source, with its unknown words replaced where the config
    says so."""
    source, target = sides
    outputs = [[target.decode(hypothesis.ids) for hypothesis in own] for own in found]
    if not config.replace_unknown:
        return outputs
    if not (isinstance(source, Words) and isinstance(target, Words)):
        raise UserError("decode.replace_unknown: needs tokenisers of kind 'words' on both sides; leave it out")
    if not isinstance(model, EncoderDecoder):
        raise UserError(
            "decode.replace_unknown: needs the attention of one model; use a single run and engine 'native'"
        )
    words = [list(source.split_units(source.normalise(text))) for text in texts]
    meanings = build_dictionary(config.dictionary, source)
    wanting = [
        (number, rank)
        for number, own in enumerate(found)
        for rank, hypothesis in enumerate(own)
        if UNK in hypothesis.ids and words[number]
    ]
    lengths = [max(len(words[number]) + 1, len(found[number][rank].ids)) for number, rank in wanting]
    for batch in batches(lengths, config.tokens_per_batch):
        some = [wanting[each] for each in batch]
        ids = [found[number][rank].ids for number, rank in some]
        places = align_unknown(model, [source.encode(texts[number]) for number, _ in some], ids, device)
        for (number, rank), own, aligned in zip(some, ids, places, strict=True):
            seen = [words[number][place] for place in aligned[: len(own)]]
            names = zip(own, target.tokens(own), seen, strict=True)
            outputs[number][rank] = target.separator.join(
                meanings.get(word, word) if token == UNK else name for token, name, word in names
            )
    return outputs


@torch.inference_mode()
def align_unknown(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    device: torch.device | str = "cpu",
) -> list[list[int]]:
    """The place in its source, end mark excluded, that each token of each target was written from.

    By the last attention to the source, the mean over its heads. Rows go on behind their targets' ends.
    """
    device = torch.device(device)
    inputs = [torch.tensor([model.start_id, *target[:-1]]) for target in targets]
    with eval_mode(model), record() as maps:
        model(
            Request(sources, GREEDY, device).opening(model),
            pad_sequence(inputs, batch_first=True, padding_value=PAD).to(device),
        )
    across = [place for place, kind in maps.kinds.items() if kind == "cross"]
    if not across:
        raise UserError("decode.replace_unknown: this model does not look at its source; use replace_unknown = false")
    weights = maps.weights[across[-1]][-1].mean(1)  # (N, H, T, S) -> (N, T, S)
    lengths = torch.tensor([len(source) for source in sources], device=device)
    beyond = torch.arange(weights.shape[-1], device=device) >= lengths[:, None, None]  # (N, 1, S)
    found: list[list[int]] = weights.masked_fill(beyond, -1.0).argmax(-1).tolist()
    return found


def build_dictionary(file: str, source: Tokeniser) -> dict[str, str]:
    """What words of the source are to become, from lines of source TAB target; others stay as they are."""
    return {source.normalise(word): meaning for word, meaning in read_pairs((Path(file),))} if file else {}
