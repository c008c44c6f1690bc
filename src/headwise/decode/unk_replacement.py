"""UNK replacement: unknown words are copied, or translated by a dictionary, from the source words they attend to.

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
from headwise.decode.coverage_penalty import average_cross_attention
from headwise.decode.driver import batch_by_length
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
    hypotheses: Sequence[Sequence[Hypothesis]],
    sides: tuple[Tokeniser, Tokeniser],
    config: DecodeConfig = GREEDY,
    device: torch.device | str = "cpu",
) -> list[list[str]]:
    """UNK replacement: the texts of the hypotheses of each source, unknown words replaced if the config says so."""
    source, target = sides
    outputs = [[target.decode(hypothesis.ids) for hypothesis in nbest] for nbest in hypotheses]
    if not config.replace_unknown:
        return outputs
    if not (isinstance(source, Words) and isinstance(target, Words)):
        raise UserError("decode.replace_unknown: needs tokenisers of kind 'words' on both sides; leave it out")
    if not isinstance(model, EncoderDecoder):
        raise UserError(
            "decode.replace_unknown: needs the attention of one model; use a single run and engine 'native'"
        )
    words = [list(source.split_units(source.normalise(text))) for text in texts]
    translations = build_dictionary(config.dictionary, source)
    with_unknown = [
        (index, rank)
        for index, nbest in enumerate(hypotheses)
        for rank, hypothesis in enumerate(nbest)
        if UNK in hypothesis.ids and words[index]
    ]
    lengths = [max(len(words[index]) + 1, len(hypotheses[index][rank].ids)) for index, rank in with_unknown]
    for batch in batch_by_length(lengths, config.tokens_per_batch):
        pairs = [with_unknown[position] for position in batch]
        targets = [hypotheses[index][rank].ids for index, rank in pairs]
        alignments = align_unknown(model, [source.encode(texts[index]) for index, _ in pairs], targets, device)
        for (index, rank), ids, alignment in zip(pairs, targets, alignments, strict=True):
            aligned_words = [words[index][position] for position in alignment[: len(ids)]]
            tokens = zip(ids, target.tokens(ids), aligned_words, strict=True)
            outputs[index][rank] = target.separator.join(
                translations.get(word, word) if token == UNK else name for token, name, word in tokens
            )
    return outputs


@torch.inference_mode()
def align_unknown(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    device: torch.device | str = "cpu",
) -> list[list[int]]:
    """Word alignment by attention: the position in the source, EOS excluded, of each token of each target.

    It is the argmax of the last cross-attention, averaged over heads. Rows are padded beyond the ends of their targets.
    """
    device = torch.device(device)
    inputs = [torch.tensor([model.start_id, *target[:-1]]) for target in targets]
    with eval_mode(model), record() as maps:
        model(
            Request(sources, GREEDY, device).build_inputs(model),
            pad_sequence(inputs, batch_first=True, padding_value=PAD).to(device),
        )
    weights = average_cross_attention(maps, "decode.replace_unknown")  # (N, T, S)
    lengths = torch.tensor([len(source) for source in sources], device=device)
    padding = torch.arange(weights.shape[-1], device=device) >= lengths[:, None, None]  # (N, 1, S)
    positions: list[list[int]] = weights.masked_fill(padding, -1.0).argmax(-1).tolist()
    return positions


def build_dictionary(file: str, source: Tokeniser) -> dict[str, str]:
    """The translations of source words, from lines of source TAB target; empty without a file."""
    return {source.normalise(word): translation for word, translation in read_pairs((Path(file),))} if file else {}
