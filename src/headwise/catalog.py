"""The explicit table of models: what can be built by name. No torch here.

A name is an architecture (`transformer`) or one size of it (`transformer-base`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.config.base import Config, Problems, Table, merge
from headwise.config.model import ModelConfig
from headwise.errors import UserError, nearest
from headwise.models import hmm, ngram, recurrent, seq2seq, skipgram, transformer


@dataclass(frozen=True)
class Entry:
    """One architecture: where it comes from, its sizes, and who can vouch for our version of it."""

    name: str
    paper: str
    year: int
    family: str
    config: type[ModelConfig]
    sizes: Mapping[str, Mapping[str, Any]]  # settings that differ from the config's defaults
    vocab: int  # of the published model, for its parameter count
    outputs: int = 0  # its target words, where they are others
    published: Mapping[str, str] = field(default_factory=dict)
    oracle: str = ""

    def configure(self, size: str, settings: Mapping[str, Any] | None = None) -> Any:
        """The config of a size, with some settings changed."""
        return self.config.model_validate(merge(self.sizes[size], settings or {}))


CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="ngram",
            paper="Shannon, A Mathematical Theory of Communication; Kneser and Ney 1995",
            year=1948,
            family="counts",
            config=ngram.NgramConfig,
            sizes=ngram.SIZES,
            vocab=10_000,
            oracle="nltk.lm",
        ),
        Entry(
            name="hmm",
            paper="Rabiner, A Tutorial on Hidden Markov Models; Brants 2000 (suffixes of unknown words)",
            year=1989,
            family="counts",
            config=hmm.HmmConfig,
            sizes=hmm.SIZES,
            vocab=10_000,
            oracle="all sequences of tags, enumerated",
        ),
        Entry(
            name="rnn",
            paper="Elman, Finding Structure in Time; Mikolov et al. 2010 (language model)",
            year=1990,
            family="recurrent",
            config=recurrent.RnnModelConfig,
            sizes=recurrent.SIZES,
            vocab=10_000,
            oracle="torch.nn.RNN",
        ),
        Entry(
            name="lstm",
            paper="Hochreiter and Schmidhuber, Long Short-Term Memory; Zaremba et al. 2014 (large)",
            year=1997,
            family="recurrent",
            config=recurrent.LstmModelConfig,
            sizes=recurrent.SIZES,
            vocab=10_000,
            oracle="torch.nn.LSTM",
        ),
        Entry(
            name="skipgram",
            paper="Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality",
            year=2013,
            family="vectors",
            config=skipgram.SkipGramConfig,
            sizes=skipgram.SIZES,
            vocab=10_000,
            oracle="the loss in closed form",
        ),
        Entry(
            name="gru",
            paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder",
            year=2014,
            family="recurrent",
            config=recurrent.GruModelConfig,
            sizes=recurrent.SIZES,
            vocab=10_000,
            oracle="torch.nn.GRU",
        ),
        Entry(
            name="sutskever",
            paper="Sutskever et al., Sequence to Sequence Learning with Neural Networks",
            year=2014,
            family="seq2seq",
            config=seq2seq.SutskeverConfig,
            sizes=seq2seq.STACKED,
            vocab=160_000,
            outputs=80_000,
            published={"base": "384M"},
            oracle="its equations, unrolled in float64",
        ),
        Entry(
            name="cho",
            paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder",
            year=2014,
            family="seq2seq",
            config=seq2seq.ChoConfig,
            sizes=seq2seq.DEEP_OUTPUT,
            vocab=15_000,
            oracle="its equations, unrolled in float64",
        ),
        Entry(
            name="bahdanau",
            paper="Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate",
            year=2015,
            family="seq2seq",
            config=seq2seq.BahdanauConfig,
            sizes=seq2seq.DEEP_OUTPUT,
            vocab=30_000,
            oracle="its equations, unrolled in float64",
        ),
        Entry(
            name="luong",
            paper="Luong et al., Effective Approaches to Attention-based Neural Machine Translation",
            year=2015,
            family="seq2seq",
            config=seq2seq.LuongConfig,
            sizes=seq2seq.STACKED,
            vocab=50_000,
            oracle="its equations, unrolled in float64",
        ),
        Entry(
            name="transformer",
            paper="Vaswani et al., Attention Is All You Need",
            year=2017,
            family="encoder-decoder",
            config=transformer.TransformerConfig,
            sizes=transformer.SIZES,
            vocab=37_000,
            published={"base": "65M", "big": "213M"},
            oracle="torch.nn.Transformer, transformers.MarianMTModel",
        ),
    )
}


def names() -> list[str]:
    """Every name that `build` takes, sizes included."""
    return [f"{entry.name}-{size}" for entry in CATALOG.values() for size in entry.sizes]


def find(name: str) -> tuple[Entry, str]:
    """The entry and size that a name means; without a size, the first.

    >>> find("transformer-big")[1], find("transformer")[1]
    ('big', 'base')
    """
    if name in CATALOG:
        return CATALOG[name], next(iter(CATALOG[name].sizes))
    architecture, _, size = name.rpartition("-")
    if architecture in CATALOG and size in CATALOG[architecture].sizes:
        return CATALOG[architecture], size
    raise UserError(f"there is no model '{name}'; {nearest(name, [*CATALOG, *names()])}")


class ModelTable(Table):
    """Models by `kind`: an architecture, or one of its sizes with further settings beside it."""

    def parse(self, value: Any) -> Config:
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, Mapping) and value.get("kind") in names():
            entry, size = find(str(value["kind"]))
            value = merge(entry.sizes[size], {**value, "kind": entry.name})
        try:
            return super().parse(value)
        except Problems as problem:
            if isinstance(value, Mapping) and problem.found[0][0] == ("kind",):
                known = [*self.kinds, *names()]
                text = f"no model is called '{value['kind']}'; {nearest(str(value['kind']), known)}"
                raise Problems([(("kind",), text)]) from None
            raise


MODELS = ModelTable("model", default="transformer")
for _entry in CATALOG.values():
    MODELS.add(_entry.config)
MODELS.add(ngram.BackoffConfig)  # comes from elsewhere, so nobody builds it by name
