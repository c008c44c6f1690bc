"""From 2020 on."""

from __future__ import annotations

from headwise.entries.entry import Check, Entry
from headwise.models import (
    bigbird,
    deberta,
    fnet,
    gpt,
    linformer,
    llama,
    perceiver,
    performer,
    reformer,
    switch,
    synthesizer,
    workspace,
)

ENTRIES = (
    Entry(
        name="deberta",
        paper="He et al., DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
        year=2020,
        family="encoder",
        config=deberta.DebertaConfig,
        sizes=deberta.SIZES,
        vocab=50_265,
        published={"base": "139M", "large": "405M"},
        checks=(
            Check(
                "transformers.DebertaModel",
                "tests/parity/test_bert_kin.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.GPT2LMHeadModel where every layer is dense",
                "tests/parity/test_hf_decoders.py::test_gpt3_is_gpt2_where_every_layer_is_dense",
                "transformers",
            ),
            Check(
                "the same with masks for the bands",
                "tests/parity/test_hf_decoders.py::test_gpt3_hides_what_is_outside_the_band_in_every_other_layer",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.BigBirdModel",
                "tests/parity/test_bigbird.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.ReformerModel",
                "tests/parity/test_reformer.py::test_a_whole_encoder_gives_their_hidden_states",
                "transformers",
            ),
            Check(
                "reformer-pytorch",
                "tests/parity/test_reformer.py::test_reformer_pytorch_mixes_alike",
                "reformer_pytorch",
            ),
        ),
    ),
    Entry(
        name="linformer",
        paper="Wang et al., Linformer: Self-Attention with Linear Complexity",
        year=2020,
        family="encoder",
        config=linformer.LinformerConfig,
        sizes=linformer.SIZES,
        vocab=50_265,
        checks=(
            Check(
                "linformer (PyPI)",
                "tests/parity/test_linformer_package.py::test_outputs_are_those_of_the_package",
                "linformer",
            ),
        ),
    ),
    Entry(
        name="synthesizer",
        paper="Tay et al., Synthesizer: Rethinking Self-Attention in Transformer Models",
        year=2020,
        family="encoder-decoder",
        config=synthesizer.SynthesizerConfig,
        sizes=synthesizer.SIZES,
        vocab=37_000,
        checks=(
            Check(
                "its equations, written out in float64",
                "tests/blocks/attention/test_synthesizer.py::test_values_and_a_table_are_all_that_a_random_synthesizer_has",
            ),
        ),
    ),
    Entry(
        name="linear-transformer",
        paper="Katharopoulos et al., Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
        year=2020,
        family="encoder-decoder",
        config=performer.LinearTransformerConfig,
        sizes=performer.LINEAR_SIZES,
        vocab=256,
        checks=(
            Check(
                "its recurrence, unrolled in float64",
                "tests/blocks/mixers/test_linear.py::test_a_decoder_is_the_recurrence_of_the_paper",
            ),
        ),
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
        checks=(
            Check(
                "performer-pytorch",
                "tests/parity/test_performer_pytorch.py::test_the_softmax_kernel",
                "performer_pytorch",
            ),
            Check(
                "exact softmax attention",
                "tests/blocks/mixers/test_favor.py::test_many_features_approach_softmax_attention",
            ),
        ),
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
        checks=(
            Check(
                "transformers.FNetForPreTraining",
                "tests/parity/test_fnet_folders.py::test_outputs_are_equal_both_ways",
                "transformers",
            ),
        ),
    ),
    Entry(
        name="workspace",
        paper="Goyal et al., Coordination Among Neural Modules Through a Shared Global Workspace",
        year=2021,
        family="encoder",
        config=workspace.WorkspaceModelConfig,
        sizes=workspace.SIZES,
        vocab=10_000,
        checks=(
            Check(
                "its equations, written out in float64",
                "tests/blocks/mixers/test_workspace.py::test_two_layers_are_the_equations_written_out",
            ),
        ),
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
        checks=(
            Check(
                "transformers.SwitchTransformersForConditionalGeneration",
                "tests/parity/test_switch.py::test_outputs_are_equal_where_every_token_finds_a_place",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.PerceiverForMaskedLM",
                "tests/parity/test_perceiver_hf.py::test_logits_are_equal",
                "transformers",
            ),
        ),
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
        checks=(
            Check(
                "transformers.LlamaForCausalLM",
                "tests/parity/test_hf_decoders.py::test_logits_and_hidden_states_are_equal",
                "transformers",
            ),
        ),
    ),
)
