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
from headwise.models import (
    bart,
    bert,
    bigbird,
    deberta,
    dmca,
    fnet,
    gpt,
    hmm,
    linformer,
    llama,
    mixer,
    ngram,
    perceiver,
    performer,
    recurrent,
    reformer,
    seq2seq,
    skipgram,
    switch,
    synthesizer,
    t5,
    transformer,
    transformer_xl,
    workspace,
)


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
    vocabularies: Mapping[str, int] = field(default_factory=dict)  # of sizes that were published with another one
    outputs: int = 0  # its target words, where they are others
    published: Mapping[str, str] = field(default_factory=dict)
    oracle: str = ""

    def words(self, size: str) -> int:
        """The vocabulary that a size was published with."""
        return self.vocabularies.get(size, self.vocab)

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
        Entry(
            name="gpt",
            paper="Radford et al., Improving Language Understanding by Generative Pre-Training",
            year=2018,
            family="decoder",
            config=gpt.GptConfig,
            sizes=gpt.SIZES,
            vocab=40_478,
            published={"base": "117M"},
            oracle="transformers.OpenAIGPTLMHeadModel",
        ),
        Entry(
            name="bert",
            paper="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers",
            year=2018,
            family="encoder",
            config=bert.BertConfig,
            sizes=bert.SIZES,
            vocab=30_522,
            vocabularies=bert.VOCABULARIES,
            published={"base": "110M", "large": "340M"},
            oracle="transformers.BertForPreTraining",
        ),
        Entry(
            name="dmca",
            paper="Liu et al., Generating Wikipedia by Summarizing Long Sequences",
            year=2018,
            family="decoder",
            config=dmca.DmcaConfig,
            sizes=dmca.SIZES,
            vocab=32_000,
            oracle="dense attention under the same mask, written out in float64",
        ),
        Entry(
            name="transformer-xl",
            paper="Dai et al., Transformer-XL: Attentive Language Models beyond a Fixed-Length Context",
            year=2019,
            family="decoder",
            config=transformer_xl.TransformerXLConfig,
            sizes=transformer_xl.SIZES,
            vocab=267_735,
            vocabularies=transformer_xl.VOCABULARIES,
            published={"wt103": "151M", "wt103-large": "257M", "enwik8": "41M", "enwik8-large": "277M"},
            oracle="its equations, unrolled in float64; transformers.XLNetRelativeAttention",
        ),
        Entry(
            name="gpt2",
            paper="Radford et al., Language Models are Unsupervised Multitask Learners",
            year=2019,
            family="decoder",
            config=gpt.Gpt2Config,
            sizes=gpt.GPT2_SIZES,
            vocab=50_257,
            published={"small": "117M, corrected to 124M", "medium": "345M", "large": "762M", "xl": "1542M"},
            oracle="transformers.GPT2LMHeadModel",
        ),
        Entry(
            name="albert",
            paper="Lan et al., ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
            year=2019,
            family="encoder",
            config=bert.AlbertConfig,
            sizes=bert.ALBERT_SIZES,
            vocab=30_000,
            published={"base": "12M", "large": "18M", "xlarge": "60M", "xxlarge": "235M"},
            oracle="transformers.AlbertForPreTraining",
        ),
        Entry(
            name="bart",
            paper="Lewis et al., BART: Denoising Sequence-to-Sequence Pre-training",
            year=2019,
            family="encoder-decoder",
            config=bart.BartConfig,
            sizes=bart.SIZES,
            vocab=50_265,
            published={"base": "139M", "large": "406M"},
            oracle="transformers.BartForConditionalGeneration",
        ),
        Entry(
            name="t5",
            paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
            year=2019,
            family="encoder-decoder",
            config=t5.T5Config,
            sizes=t5.SIZES,
            vocab=32_128,
            published={"base": "220M", "small": "60M", "large": "770M", "3b": "2.8B", "11b": "11B"},
            oracle="transformers.T5ForConditionalGeneration",
        ),
        Entry(
            name="deberta",
            paper="He et al., DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
            year=2020,
            family="encoder",
            config=deberta.DebertaConfig,
            sizes=deberta.SIZES,
            vocab=50_265,
            published={"base": "139M", "large": "405M"},
            oracle="transformers.DebertaModel",
        ),
        Entry(
            name="gpt3",
            paper="Brown et al., Language Models are Few-Shot Learners",
            year=2020,
            family="decoder",
            config=gpt.Gpt3Config,
            sizes=gpt.GPT3_SIZES,
            vocab=50_257,
            published={
                "175b": "175.0B",
                "small": "125M",
                "medium": "350M",
                "large": "760M",
                "xl": "1.3B",
                "2.7b": "2.7B",
                "6.7b": "6.7B",
                "13b": "13.0B",
            },
            oracle="gpt2 where every layer is dense",
        ),
        Entry(
            name="bigbird",
            paper="Zaheer et al., Big Bird: Transformers for Longer Sequences",
            year=2020,
            family="encoder",
            config=bigbird.BigBirdConfig,
            sizes=bigbird.SIZES,
            vocab=50_358,
            published={"base": "127M"},
            oracle="transformers.BigBirdModel",
        ),
        Entry(
            name="reformer",
            paper="Kitaev et al., Reformer: The Efficient Transformer",
            year=2020,
            family="decoder",
            config=reformer.ReformerConfig,
            sizes=reformer.SIZES,
            vocab=320,
            vocabularies=reformer.VOCABULARIES,
            published={"crime": "3M", "enwik8": "149M"},
            oracle="transformers.ReformerModel; reformer-pytorch",
        ),
        Entry(
            name="linformer",
            paper="Wang et al., Linformer: Self-Attention with Linear Complexity",
            year=2020,
            family="encoder",
            config=linformer.LinformerConfig,
            sizes=linformer.SIZES,
            vocab=50_265,
            oracle="linformer (PyPI)",
        ),
        Entry(
            name="synthesizer",
            paper="Tay et al., Synthesizer: Rethinking Self-Attention in Transformer Models",
            year=2020,
            family="encoder-decoder",
            config=synthesizer.SynthesizerConfig,
            sizes=synthesizer.SIZES,
            vocab=37_000,
            oracle="its equations, written out in float64",
        ),
        Entry(
            name="linear-transformer",
            paper="Katharopoulos et al., Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
            year=2020,
            family="encoder-decoder",
            config=performer.LinearTransformerConfig,
            sizes=performer.LINEAR_SIZES,
            vocab=256,
            oracle="its recurrence, unrolled in float64",
        ),
        Entry(
            name="performer",
            paper="Choromanski et al., Rethinking Attention with Performers",
            year=2020,
            family="encoder-decoder",
            config=performer.PerformerModelConfig,
            sizes=performer.SIZES,
            vocab=37_000,
            vocabularies=performer.VOCABULARIES,
            oracle="performer-pytorch; exact softmax attention",
        ),
        Entry(
            name="fnet",
            paper="Lee-Thorp et al., FNet: Mixing Tokens with Fourier Transforms",
            year=2021,
            family="encoder",
            config=fnet.FNetConfig,
            sizes=fnet.SIZES,
            vocab=32_000,
            published={"base": "83M", "large": "238M"},
            oracle="transformers.FNetForPreTraining",
        ),
        Entry(
            name="mixer",
            paper="Tolstikhin et al., MLP-Mixer: An all-MLP Architecture for Vision",
            year=2021,
            family="encoder",
            config=mixer.MixerConfig,
            sizes=mixer.SIZES,
            vocab=10_000,
            oracle="its equations; the released parameter counts",
        ),
        Entry(
            name="workspace",
            paper="Goyal et al., Coordination Among Neural Modules Through a Shared Global Workspace",
            year=2021,
            family="encoder",
            config=workspace.WorkspaceModelConfig,
            sizes=workspace.SIZES,
            vocab=10_000,
            oracle="its equations, written out in float64",
        ),
        Entry(
            name="switch",
            paper="Fedus et al., Switch Transformers: Scaling to Trillion Parameter Models; Narang et al. 2021",
            year=2021,
            family="encoder-decoder",
            config=switch.SwitchConfig,
            sizes=switch.SIZES,
            vocab=32_128,
            published={
                "base-128": "7B",
                "large-128": "26B",
                "xxl-128": "395B",
                "c-2048": "1571B",
                "narang-top1": "1100M",
                "narang-top2": "648M",
            },
            oracle="transformers.SwitchTransformersForConditionalGeneration",
        ),
        Entry(
            name="perceiver",
            paper="Jaegle et al., Perceiver IO: A General Architecture for Structured Inputs & Outputs; Perceiver 2021",
            year=2021,
            family="encoder",
            config=perceiver.PerceiverConfig,
            sizes=perceiver.SIZES,
            vocab=262,
            published={"bytes": "201M"},
            oracle="transformers.PerceiverForMaskedLM",
        ),
        Entry(
            name="llama",
            paper="Touvron et al., LLaMA: Open and Efficient Foundation Language Models",
            year=2023,
            family="decoder",
            config=llama.LlamaConfig,
            sizes=llama.SIZES,
            vocab=32_000,
            vocabularies=llama.VOCABULARIES,
            published={"7b": "6.7B", "13b": "13.0B", "70b": "70B", "3-8b": "8B", "135m": "135M"},
            oracle="transformers.LlamaForCausalLM",
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
    for entry in CATALOG.values():
        if name.startswith(f"{entry.name}-") and (size := name.removeprefix(f"{entry.name}-")) in entry.sizes:
            return entry, size
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
