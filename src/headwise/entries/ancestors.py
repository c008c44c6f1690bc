"""What came before the Transformer."""

from __future__ import annotations

from headwise.entries.entry import Check, Entry
from headwise.models import hmm, ngram, recurrent, seq2seq, skipgram

ENTRIES = (
    Entry(
        name="ngram",
        paper="Shannon, A Mathematical Theory of Communication; Kneser and Ney 1995",
        year=1948,
        family="counts",
        config=ngram.NgramConfig,
        sizes=ngram.SIZES,
        vocab=10_000,
        checks=(
            Check(
                "nltk.lm: MLE, Lidstone",
                "tests/ngram/test_ngram.py::test_maximum_likelihood_and_add_k_are_those_of_nltk",
                "nltk",
            ),
            Check(
                "nltk.lm: interpolated Kneser-Ney with estimated discounts",
                "tests/ngram/test_ngram.py::test_kneser_ney_is_that_of_nltk_with_its_discounts_estimated",
                "nltk",
            ),
        ),
    ),
    Entry(
        name="hmm",
        paper="Rabiner, A Tutorial on Hidden Markov Models; Brants 2000 (suffixes of unknown words)",
        year=1989,
        family="counts",
        config=hmm.HmmConfig,
        sizes=hmm.SIZES,
        vocab=10_000,
        checks=(
            Check("all sequences of tags, enumerated", "tests/hmm/test_viterbi.py::test_no_other_sequence_is_better"),
        ),
    ),
    Entry(
        name="rnn",
        paper="Elman, Finding Structure in Time; Mikolov et al. 2010 (language model)",
        year=1990,
        family="recurrent",
        config=recurrent.RnnModelConfig,
        sizes=recurrent.SIZES,
        vocab=10_000,
        checks=(Check("torch.nn.RNN", "tests/parity/test_recurrent_torch.py::test_both_directions", "torch"),),
    ),
    Entry(
        name="lstm",
        paper="Hochreiter and Schmidhuber, Long Short-Term Memory; Zaremba et al. 2014 (large)",
        year=1997,
        family="recurrent",
        config=recurrent.LstmModelConfig,
        sizes=recurrent.SIZES,
        vocab=10_000,
        checks=(Check("torch.nn.LSTM", "tests/parity/test_recurrent_torch.py::test_both_directions", "torch"),),
    ),
    Entry(
        name="skipgram",
        paper="Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality",
        year=2013,
        family="vectors",
        config=skipgram.SkipGramConfig,
        sizes=skipgram.SIZES,
        vocab=10_000,
        checks=(
            Check(
                "the loss in closed form",
                "tests/embeddings/test_skipgram.py::test_loss_and_slopes_are_those_of_equation_4",
            ),
        ),
    ),
    Entry(
        name="gru",
        paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder",
        year=2014,
        family="recurrent",
        config=recurrent.GruModelConfig,
        sizes=recurrent.SIZES,
        vocab=10_000,
        checks=(Check("torch.nn.GRU", "tests/parity/test_recurrent_torch.py::test_both_directions", "torch"),),
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
        checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_sutskever"),),
    ),
    Entry(
        name="cho",
        paper="Cho et al., Learning Phrase Representations using RNN Encoder-Decoder",
        year=2014,
        family="seq2seq",
        config=seq2seq.ChoConfig,
        sizes=seq2seq.DEEP_OUTPUT,
        vocab=15_000,
        checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_cho"),),
    ),
    Entry(
        name="bahdanau",
        paper="Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate",
        year=2015,
        family="seq2seq",
        config=seq2seq.BahdanauConfig,
        sizes=seq2seq.DEEP_OUTPUT,
        vocab=30_000,
        checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_bahdanau"),),
    ),
    Entry(
        name="luong",
        paper="Luong et al., Effective Approaches to Attention-based Neural Machine Translation",
        year=2015,
        family="seq2seq",
        config=seq2seq.LuongConfig,
        sizes=seq2seq.STACKED,
        vocab=50_000,
        checks=(Check("its equations, unrolled in float64", "tests/parity/test_seq2seq_unrolled.py::test_luong"),),
    ),
)
