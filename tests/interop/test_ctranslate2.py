"""The exported model is the same model: equal probabilities, equal outputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch

from headwise.data.config import TextDataConfig
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.interop.ctranslate2 import CTranslate2Engine, export_ctranslate2, find_unsupported
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, SPECIALS
from headwise.train.config import TrainConfig

SMALL = {"width": 32, "heads": 4, "encoder": {"depth": 2}, "decoder": {"depth": 2}}
SOURCE, TARGET = [5, 6, 7, 8, 9, 12, 18, EOS], [7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 9, EOS]
FEWER_HEADS = [[{"heads": 2}, {"attend_to": "memory", "heads": 2}, {"kind": "mlp", "hidden": 20}]]


@pytest.mark.parametrize(
    "settings",
    [
        {"wiring": "post", "activation": "relu"},
        {"wiring": "pre", "activation": "gelu"},
        {"positions": "none", "activation": "swish"},
        {"positions": {"kind": "learned", "max_length": 20}, "activation": "swiglu"},
        {"positions": "rotary", "activation": "gelu_tanh", "norm": "rms"},
        {"positions": {"kind": "shaw", "max_distance": 3}, "activation": "glu", "wiring": "pre"},
        {"positions": {"kind": "t5", "buckets": 8, "max_distance": 6}, "activation": "geglu"},
        {"norm": {"kind": "layer", "eps": 1e-3}, "output_bias": True, "tie": "none", "scale_embeddings": False},
        {"attention_bias": False, "mlp_bias": False, "encoder": {"depth": 3, "shared": True, "groups": 2}},
        {"decoder": {"depth": 1, "layers": FEWER_HEADS}},
    ],
    ids=str,
)
def test_probabilities_are_equal(settings: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = TransformerConfig.model_validate({**SMALL, **settings})
    model = config.build(19).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # zero biases and unit gains would hide a wrong place
        log_probs = model(torch.tensor([SOURCE]), torch.tensor([[BOS, *TARGET[:-1]]])).log_softmax(-1)
    expected = log_probs[0].gather(1, torch.tensor(TARGET)[:, None])[:, 0]
    export_ctranslate2(model, config, None, tmp_path / "out")
    names = [*SPECIALS, *map(str, range(4, 19))]
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1)
    result = translator.score_batch([[names[i] for i in SOURCE]], [[names[i] for i in TARGET[:-1]]])[0]
    assert (torch.tensor(result.log_probs) - expected).abs().max() < 1e-5


@pytest.fixture(scope="module")
def folder(reverser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "reverser"
    export_ctranslate2(reverser.model, reverser.config, reverser.tokenisers, folder)
    return folder


def test_greedy_and_beam_outputs_are_equal(reverser: Any, folder: Path) -> None:
    engine = CTranslate2Engine(folder)
    for config in (DecodeConfig(), DecodeConfig(beams=4, length_penalty=0, tokens_per_batch=64)):
        decoded, translated = decode(reverser.model, reverser.sources, config), engine.decode(reverser.sources, config)
        assert [hypotheses[0].ids for hypotheses in translated] == [hypotheses[0].ids for hypotheses in decoded]
        for hypotheses, translated_hypotheses in zip(
            decoded, translated, strict=True
        ):  # theirs is P among the tokens that may be written
            assert translated_hypotheses[0].log_prob == pytest.approx(
                hypotheses[0].log_prob, abs=0.02
            )  # theirs is over the tokens that may be written


def test_an_engine_takes_the_place_of_the_model(reverser: Any) -> None:
    experiment = Experiment(data=TextDataConfig(), model=reverser.config, train=TrainConfig(epochs=1))
    loaded = TrainedModel(reverser.model, reverser.tokenisers, experiment)
    deployed = replace(loaded, model=CTranslate2Engine.from_trained(loaded))
    assert deployed.translate(["abcd", "hgf", ""], beams=2) == ["dcba", "fgh", ""]


def test_nbest_are_distinct_and_ranked_by_our_score(reverser: Any, folder: Path) -> None:
    config = DecodeConfig(beams=4, nbest=3)
    for actual in CTranslate2Engine(folder).decode(reverser.sources[:8], config):
        assert len({hypothesis.ids for hypothesis in actual}) == 3
        assert [h.score for h in actual] == sorted((h.score for h in actual), reverse=True)


def test_outputs_keep_to_their_own_limit(reverser: Any, folder: Path) -> None:
    config = DecodeConfig(max_ratio=0.5, max_extra=0)
    actual = CTranslate2Engine(folder).decode(reverser.sources, config)
    expected = decode(reverser.model, reverser.sources, config)
    assert [hypotheses[0].ids for hypotheses in actual] == [hypotheses[0].ids for hypotheses in expected]


def test_outputs_are_no_shorter_than_the_shortest_length(reverser: Any, folder: Path) -> None:
    config = DecodeConfig(min_length=1 + max(map(len, reverser.sources)), max_extra=20)
    actual = decode(CTranslate2Engine(folder), reverser.sources, config)
    expected = decode(reverser.model, reverser.sources, config)
    assert {len(hypotheses[0].ids) >= config.min_length for hypotheses in actual} == {True}
    assert [len(hypotheses[0].ids) for hypotheses in actual] == [len(hypotheses[0].ids) for hypotheses in expected]


def test_eight_bits_agree_on_a_trained_model(reverser: Any, folder: Path, tmp_path: Path) -> None:
    export_ctranslate2(reverser.model, reverser.config, reverser.tokenisers, tmp_path / "int8", int8=True)
    exact = decode(reverser.model, reverser.sources)
    for engine in (CTranslate2Engine(folder, int8=True), CTranslate2Engine(tmp_path / "int8")):
        actual = engine.decode(reverser.sources)
        assert sum(a[0].ids == b[0].ids for a, b in zip(actual, exact, strict=True)) >= 0.9 * len(exact)
    assert (tmp_path / "int8" / "model.bin").stat().st_size < (folder / "model.bin").stat().st_size


def test_separate_vocabularies(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = TransformerConfig.model_validate(SMALL)
    model = config.build(12, 9).eval()
    export_ctranslate2(model, config, None, tmp_path / "out")
    sources, short = [[11, 4, 10], [7]], DecodeConfig(max_extra=4)
    decoded, translated = decode(model, sources, short), CTranslate2Engine(tmp_path / "out").decode(sources, short)
    assert [hypotheses[0].ids for hypotheses in translated] == [hypotheses[0].ids for hypotheses in decoded]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"positions": "alibi"}, "positions"),
        ({"positions": {"kind": "rotary", "fraction": 0.5}}, "positions"),
        ({"positions": {"kind": "rotary", "scaling": {"kind": "linear", "factor": 2.0}}}, "positions"),
        ({"embedding_norm": True}, "embedding_norm"),
        ({"output_layer": "mixture"}, "output_layer"),
        ({"token_embedding": {"kind": "adaptive", "cutoffs": [5]}}, "token_embedding"),
        ({"activation": "selu"}, "activation"),
        ({"encoder": {"layers": [[{"score_mods": ["window"]}, {"kind": "mlp"}]]}}, "encoder.layers"),
        ({"encoder": {"layers": [[{"kind": "mlp"}, {"kind": "attention"}]]}}, "encoder.layers"),
        ({"decoder": {"layers": [[{}, {"attend_to": "memory", "heads": 2}, {"kind": "mlp"}]]}}, "decoder.layers"),
    ],
)
def test_unsupported_settings_are_named(settings: dict[str, Any], key: str, tmp_path: Path) -> None:
    config = TransformerConfig.model_validate({**SMALL, **settings})
    assert find_unsupported(config).startswith(f"{key}:")
    with pytest.raises(UserError, match=key):
        export_ctranslate2(config.build(10), config, None, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_folder_with_files_is_never_replaced(reverser: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="exists already"):
        export_ctranslate2(reverser.model, reverser.config, reverser.tokenisers, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_random_draws_are_left_to_the_native_engine(folder: Path) -> None:
    with pytest.raises(UserError, match="native"):
        CTranslate2Engine(folder).decode([[4]], DecodeConfig(temperature=1.0))


def test_sources_beyond_learned_positions_raise_a_user_error(tmp_path: Path) -> None:
    config = TransformerConfig.model_validate({**SMALL, "positions": {"kind": "learned", "max_length": 6}})
    export_ctranslate2(config.build(10), config, None, tmp_path / "out")
    with pytest.raises(UserError, match="position"):
        CTranslate2Engine(tmp_path / "out").decode([[4] * 10])


def test_a_damaged_folder_raises_a_user_error(reverser: Any, folder: Path, tmp_path: Path) -> None:
    export_ctranslate2(reverser.model, reverser.config, reverser.tokenisers, tmp_path / "out")
    with (tmp_path / "out" / "model.bin").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(UserError, match="export the run again"):
        CTranslate2Engine(tmp_path / "out")
