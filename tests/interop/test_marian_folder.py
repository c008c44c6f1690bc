"""Whole Marian folders, as a user has them: texts in, texts out, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer
from transformers.utils import logging

from headwise.errors import UserError
from headwise.interop import from_hf, to_hf
from headwise.interop.marian import export_marian, import_marian
from headwise.interop.marian_config import config_to_hf
from headwise.models.transformer import TransformerConfig
from headwise.text import SPECIALS

logging.disable_progress_bar()
TEXTS = ["the cat sat on the mat", "a dog", ">>deu<< cats and dogs"]


@pytest.fixture(scope="module")
def opus(pieces: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like those of OPUS-MT."""
    torch.manual_seed(2)
    folder, last = tmp_path_factory.mktemp("opus") / "opus-mt", len(pieces.ids) - 1
    sizes = {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in SIZES.items()}
    ids = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0}
    config = MarianConfig(vocab_size=last + 1, d_model=32, scale_embedding=True, init_std=0.4, **sizes, **ids)
    MarianMTModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(pieces.ids))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(pieces.model)
    return folder


SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}


@pytest.fixture
def copy(opus: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(opus, tmp_path / "copy"))


def generated(folder: Path) -> list[str]:
    """What `transformers` itself makes of the texts."""
    tokenizer, model = MarianTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()
    outputs = []
    for text in TEXTS:
        batch = tokenizer([text], return_tensors="pt")
        banned = [[tokenizer.pad_token_id]]
        ids = model.generate(**batch, num_beams=1, max_new_tokens=9, bad_words_ids=banned, do_sample=False)
        outputs.append(tokenizer.decode(ids[0], skip_special_tokens=True))
    return outputs


def test_texts_are_translated_as_by_transformers(opus: Path, tmp_path: Path) -> None:
    loaded = from_hf(opus)
    ours = loaded.translate(TEXTS, max_ratio=0, extra=8)
    assert ours == generated(opus) and all(ours)
    to_hf(loaded, tmp_path / "out")
    assert generated(tmp_path / "out") == ours
    assert from_hf(tmp_path / "out").translate(TEXTS, max_ratio=0, extra=8) == ours


def test_the_written_vocabulary_has_our_ids(opus: Path, tmp_path: Path) -> None:
    loaded = from_hf(opus)
    to_hf(loaded, tmp_path / "out")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 3]) == list(SPECIALS)
    for text in TEXTS:
        assert tokenizer(text).input_ids[:-1] == loaded.tokenisers.source.encode(text)


def test_our_own_tokenisers_travel_along(reverser: Any, tmp_path: Path) -> None:
    export_marian(reverser.model, reverser.config, reverser.tokenisers, tmp_path / "out")
    assert from_hf(tmp_path / "out").translate(["abcd", "hgf"]) == ["dcba", "fgh"]


def test_pickles_are_refused_with_the_way_out(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(UserError, match=r"pickle.*save_pretrained"):
        import_marian(copy)


def test_a_bare_model_is_imported_but_cannot_read_texts(copy: Path) -> None:
    (copy / "source.spm").unlink()
    assert import_marian(copy).tokenisers is None
    with pytest.raises(UserError, match=r"source\.spm"):
        from_hf(copy)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "bart"}, "model_type"),
        ({"normalize_before": True}, "normalize_before"),
        ({"activation_function": "mish"}, "activation_function"),
        ({"d_model": "wide"}, "d_model"),
        ({"d_model": 64}, "says"),
        ({"encoder_ffn_dim": 33}, "config.json"),
        ({"encoder_layers": 2}, r"encoder\.layers\.1"),
        ({"vocab_size": 1_000}, "says"),
        ({"decoder_start_token_id": 99999}, "below"),
    ],
)
def test_wrong_configs_are_named(copy: Path, changes: dict[str, Any], word: str) -> None:
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=word):
        import_marian(copy)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.json"])
def test_damaged_files_are_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=name):
        import_marian(copy)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"wiring": "pre"}, "wiring"),
        ({"positions": "learned"}, "positions"),
        ({"norm": "rms"}, "norm"),
        ({"activation": "swiglu"}, "activation"),
        ({"attention_bias": False}, "attention_bias"),
        ({"encoder": {"layers": [[{"heads": 2, "head_width": 5}, {"kind": "mlp"}]]}}, "layers"),
    ],
)
def test_what_marian_is_not_is_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=f"^{key}:"):
        config_to_hf(TransformerConfig.model_validate({"width": 32, "heads": 4, **settings}), 10)
