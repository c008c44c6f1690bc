"""Models with every output layer and token embedding keep the promises of their parts, decode and learn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.output_layers import AdaptiveSoftmax
from headwise.blocks.stack import count_parameters
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.ensemble import Ensemble
from headwise.decode.int8 import quantize
from headwise.decode.int8_screen import prepare_for_cpu
from headwise.models.cost import count_cost
from headwise.testing import check_model, perturb_parameters
from headwise.testing.generative import check_overfit, check_round_trip
from headwise.testing.parts_file import judge_file

VOCAB, START, END = 13, 1, 2
CLUSTERS = {"kind": "adaptive", "cutoffs": [5, 8], "widths": [8, 4, 2]}
EQUAL = {"kind": "adaptive", "cutoffs": [5, 8], "div_value": 1}
EMBEDDINGS: dict[str, Any] = {"table": "table", "adaptive": CLUSTERS}
OUTPUTS: dict[str, Any] = {
    "softmax": "softmax",
    "adaptive": CLUSTERS,
    "without projection": EQUAL,
    "mixture": {"kind": "mixture", "components": 3},
}
PAIRS = [
    pair
    for pair in product(EMBEDDINGS, OUTPUTS)
    if pair not in (("table", "softmax"), ("adaptive", "without projection"))
]


def build(embedding: str = "table", output: str = "softmax", name: str = "transformer-tiny", **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab": VOCAB, "width": 8, "heads": 2, "hidden": 8, "dropout": 0.0, **settings}
    layers = {"token_embedding": EMBEDDINGS[embedding], "output_layer": OUTPUTS[output]}
    return headwise.build(name, **sizes, **layers)


@pytest.mark.parametrize(("embedding", "output"), PAIRS)
@pytest.mark.parametrize("task", ["transduce", "language-model", "masked"])
def test_models_do_what_their_parts_declare(embedding: str, output: str, task: str, tmp_path: Path) -> None:
    settings = {"task": task, "output_bias": task == "language-model"}
    check_model(build(embedding, output, **settings))
    if task == "transduce":
        fresh = build(embedding, output, **settings).double().eval()
        check_round_trip(
            perturb_parameters(build(embedding, output, **settings)), fresh, tmp_path / "model.safetensors"
        )


OTHERS: dict[str, dict[str, Any]] = {
    "t5-tiny": {"head_width": 4},
    "gpt2-tiny": {"positions": "sinusoid"},
    "transformer-xl-tiny": {},
    "llama-tiny": {},
    "reformer-tiny": {"task": "language-model"},
    "lstm-tiny": {"heads": None},
    "bahdanau-tiny": {"heads": None, "hidden": None},
    "perceiver-tiny": {"embedding_width": 8},
    "bert-tiny": {"positions": "sinusoid"},
    "fnet-tiny": {"positions": "sinusoid"},
    "funnel-tiny": {"heads": 2, "head_width": 4},
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_text_model_takes_them(name: str) -> None:
    settings = {"heads": 2, "hidden": 8, **OTHERS[name]}
    settings = {key: value for key, value in settings.items() if value is not None}
    for embedding, output in (("adaptive", "adaptive"), ("adaptive", "mixture"), ("table", "without projection")):
        layers = {"token_embedding": EMBEDDINGS[embedding], "output_layer": OUTPUTS[output]}
        model: Any = headwise.build(name, vocab=VOCAB, width=8, **settings, **layers)
        ids = torch.randint(4, VOCAB, (2, 5))
        pair = (ids, ids) if hasattr(model, "encoder") and hasattr(model, "decoder") else (ids,)
        loss = model(*pair, labels=ids, label_smoothing=0.1)
        loss.total.backward()
        logits = model.eval()(*pair)
        assert logits.shape == (2, 5, VOCAB) and loss.total.isfinite()
        torch.testing.assert_close(logits.exp().sum(-1), torch.ones(2, 5))  # of these kinds log-probabilities
        unreached = [key for key, parameter in model.named_parameters() if parameter.grad is None]
        assert all(key.startswith("next_sentence_head.") for key in unreached)


@pytest.mark.parametrize("task", ["tag", "classify", "answer"])
def test_classifiers_have_adaptive_embeddings_and_heads_of_labels(task: str) -> None:
    model = build("adaptive", "adaptive", task=task, outputs=2)
    ids = torch.randint(4, VOCAB, (2, 5))
    assert model(ids).shape == {"tag": (2, 5, 2), "classify": (2, 2), "answer": (2, 5, 2)}[task]


def decode_naively(model: Any, source: list[int], length: int) -> tuple[list[int], float]:
    """The best of all sequences of at most `length` tokens with their end, by full passes."""
    candidates: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for _ in range(length):
        log_probs = compute_next(model, source, [ids for ids, _ in candidates]).tolist()
        grown = [
            ([*ids, token], score + log_p[token])
            for (ids, score), log_p in zip(candidates, log_probs, strict=True)
            for token in range(END, VOCAB)
        ]
        finished += [candidate for candidate in grown if candidate[0][-1] == END]
        candidates = [candidate for candidate in grown if candidate[0][-1] != END]
    return max(finished, key=lambda candidate: candidate[1])


def compute_next(model: Any, source: list[int], rows: list[list[int]]) -> Tensor:
    """Log-probabilities of the token after each of these rows, by one full pass."""
    sources, targets = [[*source, END]] * len(rows), [[START, *ids] for ids in rows]
    return model(torch.tensor(sources), torch.tensor(targets))[:, -1].log_softmax(-1)


@pytest.fixture(scope="module")
def trained() -> Callable[[str, str], Any]:
    """Models that were trained for some steps to write two tokens backwards."""
    models: dict[tuple[str, str], Any] = {}

    @torch.enable_grad()
    def train(embedding: str, output: str) -> Any:
        if (embedding, output) not in models:
            model = build(embedding, output, depth=1, output_bias=True).train()
            adam = torch.optim.AdamW(model.parameters(), lr=0.01)
            for _ in range(60):
                ids = torch.randint(4, VOCAB, (32, 2))
                ends = torch.full((32, 1), END)
                target = torch.cat((torch.full((32, 1), START), ids.flip(1)), 1)
                loss = model(torch.cat((ids, ends), 1), target, labels=torch.cat((ids.flip(1), ends), 1))
                (loss.total / loss.count).backward()
                adam.step()
                adam.zero_grad()
            models[embedding, output] = model.eval()
        return models[embedding, output]

    return train


SOURCES = [[4, 5], [9, 12], [8, 4]]


def run(model: Any, **settings: Any) -> list[Any]:
    return [hypotheses[0] for hypotheses in decode(model, SOURCES, DecodeConfig(max_length=3, **settings))]


@torch.no_grad()
@pytest.mark.parametrize(("embedding", "output"), PAIRS)
def test_decoding_is_that_of_full_passes(embedding: str, output: str, trained: Callable[[str, str], Any]) -> None:
    """Greedy search takes the largest log-probability of each full pass; a beam as wide as the vocabulary finds the
    best of all sequences; both give their exact log-probabilities."""
    model = trained(embedding, output)
    for source, found in zip(SOURCES, run(model), strict=True):
        ids, total = [], 0.0
        while len(ids) < len(found.ids) + 1:
            (log_p,) = compute_next(model, source, [ids])
            log_p[:END] = -torch.inf
            ids.append(int(log_p.argmax()))
            total += float(log_p.max())
        assert [*found.ids, END] == ids and found.log_prob == pytest.approx(total, abs=1e-4)
    wide = run(model, beams=VOCAB * VOCAB, length_penalty=0.0)
    for source, found in list(zip(SOURCES, wide, strict=True))[:1]:
        ids, total = decode_naively(model, source, 3)
        assert [*found.ids, END] == ids and found.log_prob == pytest.approx(total, abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("embedding", "output"), PAIRS)
def test_fast_copies_decode_the_same(embedding: str, output: str, trained: Callable[[str, str], Any]) -> None:
    """Column-major weights, and an ensemble of the model with itself; int8 within its error."""
    model = trained(embedding, output)
    expected, config = [found.ids for found in run(model)], DecodeConfig(max_length=3)
    for copy in (prepare_for_cpu(model, config, min_weights=0), Ensemble([model] * 2)):
        assert [found.ids for found in run(copy)] == expected
    assert len(run(model, temperature=0.5, seed=1)) == len(SOURCES)
    log_p, approximate = (compute_next(each, [4, 5], [[6, 9]]) for each in (model, quantize(model, min_weights=0)))
    assert 0 < (approximate - log_p).norm() / log_p.norm() < 0.05


@pytest.mark.parametrize(("embedding", "output"), [("adaptive", "adaptive"), ("table", "mixture")])
def test_overfits_a_batch(embedding: str, output: str) -> None:
    check_overfit(build(embedding, output, depth=1), steps=120, lr=0.02)


T5_BASE = {"vocab": 32_128, "device": "meta"}
SENTINELS = {"kind": "adaptive", "cutoffs": [2500, 8500, 32_000], "widths": [768, 256, 64, 768]}
# Narang et al. 2021: one tied table is replaced by tables of clusters and their projections, or gets a mixture beside.
BASE = 222_903_552
TABLE, TAILS = 32_128 * 768, 6000 * 256 + 256 * 768 + 64 * 768
COUNTS: dict[str, tuple[dict[str, Any], int, float]] = {
    "adaptive input embeddings": (
        {"token_embedding": {"kind": "adaptive", "cutoffs": [2500, 8500], "widths": [768, 256, 64]}},
        BASE - TABLE + 2500 * 768 + TAILS + 23_628 * 64,
        203.39e6,
    ),
    "adaptive softmax": (
        {"token_embedding": SENTINELS, "output_layer": SENTINELS},
        BASE - TABLE + (2500 + 128 + 3) * 768 + TAILS + 23_500 * 64,
        204e6,
    ),
    "adaptive softmax without projection": (
        {"output_layer": {"kind": "adaptive", "cutoffs": [2500, 8500, 32_000], "div_value": 1}},
        BASE + 3 * 768,
        223e6,
    ),
    "mixture of softmaxes": ({"output_layer": "mixture"}, BASE + 15 * (768 * 768 + 768), 231.71e6),
}


@pytest.mark.parametrize("row", COUNTS)
def test_parameter_counts_are_those_of_narang(row: str) -> None:
    settings, count, published = COUNTS[row]
    model = headwise.build("t5-base", **T5_BASE, **settings)
    assert count_parameters(model) == count == pytest.approx(published, rel=0.003)


def test_adaptive_embeddings_cost_less_and_mixtures_more() -> None:
    """By matrix products of the output layer alone: two FLOPs for each weight and token."""
    rows = {"plain": {}} | {row: settings for row, (settings, *_) in COUNTS.items()}
    flops = {
        row: count_cost(headwise.build("t5-base", depth=1, **T5_BASE, **settings), 4).flops_per_token
        for row, settings in rows.items()
    }
    plain = flops["plain"]
    weights = 2500 * 768 + TAILS + 23_628 * 64
    inputs = 2 * 2 * 768 * (256 + 64)  # the projections of source and target tokens
    assert flops["adaptive input embeddings"] - plain == 2 * (weights - TABLE) + inputs
    assert flops["mixture of softmaxes"] - plain == 2 * (14 * TABLE + 15 * 768 * 768 + 15 * 768)
    assert flops["adaptive softmax without projection"] - plain == 2 * 3 * 768


def test_contradicting_ties_are_refused() -> None:
    with pytest.raises(UserError, match=r"^tie: the token embedding has one table, the adaptive softmax clusters of"):
        build("table", "adaptive", tie="all")
    with pytest.raises(UserError, match=r"^tie: the token embedding has 5 x 8, 3 x 4, 5 x 2, the adaptive softmax"):
        build("adaptive", "without projection", tie="all")
    assert isinstance(build("table", "adaptive").decoder.head, AdaptiveSoftmax)  # auto: untied


def test_a_tied_model_has_no_weights_but_those_of_the_embedding() -> None:
    model = build("adaptive", "adaptive")
    assert model.decoder.head.table is model.decoder.embed.table is model.encoder.embed.table
    assert build("adaptive", "adaptive", tie="none").decoder.head.table is not model.decoder.embed.table
    mixed = build("adaptive", "mixture")
    assert mixed.decoder.head.table is mixed.decoder.embed.table


@torch.no_grad()
def test_a_cutoff_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(UserError, match=r"^token_embedding\.cutoffs: 8 is beyond the vocabulary of 7 tokens; choose"):
        build("adaptive", "softmax", vocab=7)
    with pytest.raises(UserError, match=r"^output_layer\.cutoffs: 8 is beyond the vocabulary of 7 tokens; choose"):
        build("table", "adaptive", vocab=7)


OWN = """
from typing import Literal

import torch.nn.functional as F

from headwise.blocks.heads import VocabularyHead
from headwise.blocks.output_layers import OutputConfig
from headwise.blocks.tables import OUTPUT_LAYERS


class CappedHead(VocabularyHead):
    def compute_log_probs(self, x):
        return F.tanh(F.linear(x, self.table.weight, self.bias)).log_softmax(-1)

    def forward(self, x):
        return self.compute_log_probs(self.transform(x))


@OUTPUT_LAYERS.add
class CappedConfig(OutputConfig):
    kind: Literal["capped"] = "capped"

    def build(self, output_ctx):
        return CappedHead(vocab=output_ctx.vocab, **output_ctx.settings)
"""


def test_an_output_layer_of_ones_own_is_checked(tmp_path: Path) -> None:
    """One whose loss is not that of its logits fails."""
    (tmp_path / "capped.py").write_text(OWN)
    verdicts = [verdict for _, verdict in judge_file(tmp_path / "capped.py")]
    assert {verdict.check for verdict in verdicts if not verdict.passed} == {"loss", "text loss"}
    assert len(verdicts) > 10


@pytest.mark.parametrize("task", ["transduce", "language-model", "masked"])
@pytest.mark.parametrize("embedding", list(EMBEDDINGS))
def test_a_softmax_with_weight_normalisation_does_what_its_parts_declare(task: str, embedding: str) -> None:
    torch.manual_seed(0)
    # ReLUs in the MLM transform of eight channels leave so little variance to its norm that central differences are off
    settings = {"width": 8, "heads": 2, "hidden": 8, "dropout": 0.0, "activation": "gelu", "task": task}
    layers = {"token_embedding": EMBEDDINGS[embedding], "output_layer": "weight_norm"}
    check_model(headwise.build("transformer-tiny", vocab=VOCAB, **settings, **layers))


def test_logits_with_weight_normalisation_are_those_of_torch() -> None:
    torch.manual_seed(0)
    head = headwise.build("transformer-tiny", vocab=VOCAB, output_layer="weight_norm", output_bias=True).decoder.head
    torch.nn.init.uniform_(head.gain, 0.5, 2.0)
    theirs = torch.nn.Linear(head.table.embedding_dim, VOCAB)
    theirs.load_state_dict({"weight": head.table.weight, "bias": head.bias})
    theirs = torch.nn.utils.parametrizations.weight_norm(theirs)
    theirs.parametrizations.weight.original0.data = head.gain.detach().unsqueeze(-1)  # type: ignore[union-attr]
    x = torch.randn(2, 3, head.table.embedding_dim)
    torch.testing.assert_close(head(x), theirs(x))


def test_weight_normalisation_of_a_table_in_clusters_is_refused() -> None:
    layers = {"token_embedding": CLUSTERS, "output_layer": "weight_norm"}
    with pytest.raises(UserError, match="tie: the token embedding has clusters"):
        headwise.build("transformer-tiny", vocab=VOCAB, width=8, heads=2, tie="all", **layers)
