"""The Transformer and what it became, to 2019."""

from __future__ import annotations

from headwise.entries.entry import Check, Entry
from headwise.models import bart, bert, dmca, gpt, t5, transformer, transformer_xl

ENTRIES = (
    Entry(
        name="transformer",
        paper="Vaswani et al., Attention Is All You Need",
        year=2017,
        family="encoder-decoder",
        config=transformer.TransformerConfig,
        sizes=transformer.SIZES,
        vocab=37_000,
        published={"base": "65M", "big": "213M"},
        checks=(
            Check("torch.nn.Transformer", "tests/parity/test_torch.py::test_transformer", "torch"),
            Check(
                "transformers.MarianMTModel",
                "tests/parity/test_marian.py::test_logits_are_equal_both_ways",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.OpenAIGPTLMHeadModel",
                "tests/parity/test_hf_decoders.py::test_logits_and_hidden_states_are_equal",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.BertForPreTraining",
                "tests/parity/test_bert_kin.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
    ),
    Entry(
        name="dmca",
        paper="Liu et al., Generating Wikipedia by Summarizing Long Sequences",
        year=2018,
        family="decoder",
        config=dmca.DmcaConfig,
        sizes=dmca.SIZES,
        vocab=32_000,
        checks=(
            Check(
                "dense attention under the same mask, written out in float64",
                "tests/blocks/mixers/test_sparse.py::test_equal_to_dense_attention_under_the_rule",
            ),
            Check(
                "compressed attention's equations",
                "tests/blocks/mixers/test_compressed.py::test_equal_to_its_equations",
            ),
        ),
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
        checks=(
            Check(
                "its equations, unrolled in float64",
                "tests/parity/test_xl.py::test_two_segments_are_the_papers_equations",
            ),
            Check(
                "the attention of transformers.XLNetModel",
                "tests/parity/test_xl.py::test_attention_is_that_of_xlnet",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.GPT2LMHeadModel",
                "tests/parity/test_hf_decoders.py::test_logits_and_hidden_states_are_equal",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.AlbertForPreTraining",
                "tests/parity/test_bert_kin.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.BartForConditionalGeneration",
                "tests/parity/test_t5_bart.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.T5ForConditionalGeneration",
                "tests/parity/test_t5_bart.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
    ),
)
