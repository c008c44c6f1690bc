"""Token types of two texts: `model_input_names`, or the tokenizer class, says whether they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_folders import build_hf_model
from tiny_tokenizers import FAMILIES, train, write_folder
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from headwise import UserError
from headwise.catalog import find
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.folders import read_json
from headwise.interop.hf.check import select_shared
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.tokenizer_classes import CLASSES
from headwise.interop.hf.tokenizer_config import ROLES, build_template
from headwise.interop.hf.write import write_folder as write_model
from headwise.testing import assert_parity
from headwise.text import EOS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels

TYPES, NO_TYPES = {"model_input_names": ["input_ids", "token_type_ids"]}, {"model_input_names": ["input_ids"]}
CLASSIFIER = "{}ForSequenceClassification"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": (CLASSIFIER.format("Bert"), {}),
    "bert without types": (CLASSIFIER.format("Bert"), NO_TYPES),
    "albert": (CLASSIFIER.format("Albert"), {}),
    "albert with types": (CLASSIFIER.format("Albert"), TYPES),
    "big_bird": ("BigBirdForMaskedLM", {}),
    "big_bird with types": ("BigBirdForMaskedLM", TYPES),
    "fnet": (CLASSIFIER.format("FNet"), {}),
    "funnel": (CLASSIFIER.format("Funnel"), {}),
    "funnel with types": (CLASSIFIER.format("Funnel"), TYPES),
    "funnel masked with types": ("FunnelForMaskedLM", TYPES),
    "deberta": (CLASSIFIER.format("Deberta"), {}),
    "deberta-v2": (CLASSIFIER.format("DebertaV2"), {}),
}
TEXTS = "the cat sat", "a dog and a cat"


def save_folder(case: str, folder: Path) -> Path:
    """A small model of two labels and two token types, with the tokenizer of its family."""
    family, (class_name, values) = FAMILIES[case.split()[0]], CASES[case]
    tokenizer = train(family.kind, tuple(family.specials))
    if family.name == "FNetTokenizer":  # which has the post-processor of tokenizer.json
        post_processor = build_template(
            CLASSES["BertTokenizer"], family.roles, Tokenizer.from_str(json.dumps(tokenizer))
        )
        tokenizer = {**tokenizer, "post_processor": post_processor}
    config = {"tokenizer_class": family.name, **values}
    write_folder(folder, family, tokenizer=tokenizer, tokenizer_config=config)
    hf_tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = {f"{role}_token_id": getattr(hf_tokenizer, f"{role}_token_id") for role in ROLES}
    types = 3 if family.model_type == "funnel" else 2
    model = build_hf_model(family.model_type, class_name, vocab_size=len(hf_tokenizer), type_vocab_size=types, **ids)
    model.save_pretrained(folder)
    return folder


def assert_equal_logits_of_a_pair(folder: Path, class_name: str) -> None:
    imported, tokenizer = read_folder(folder), AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, class_name).from_pretrained(folder).eval()
    assert imported.tokenisers is not None
    ids = torch.tensor([[*imported.tokenisers.accept_pairs().source.encode("\t".join(TEXTS)), EOS]])
    inputs = tokenizer(*TEXTS, return_tensors="pt")
    inputs.pop("attention_mask", None)
    expected = model(**inputs).logits
    expected = expected[:, 1:] if imported.task == "masked" else expected
    assert_parity(*select_shared(imported, imported.model(ids), expected))


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_outputs_for_two_texts_are_equal_both_ways(case: str, tmp_path: Path) -> None:
    folder = save_folder(case, tmp_path / "in")
    assert_equal_logits_of_a_pair(folder, CASES[case][0])
    to_hf(from_hf(folder), tmp_path / "out")
    assert_equal_logits_of_a_pair(tmp_path / "out", CASES[case][0])


@pytest.mark.parametrize("name", ["bert-tiny", "funnel-tiny"])
@torch.inference_mode()
def test_a_model_of_our_own_is_written_with_token_types(name: str, tmp_path: Path) -> None:
    """`transformers` would otherwise give both texts one type."""
    tokenisers = Tokenisers(Characters("abcdefghijklmnopqrstuvwxyz "), Labels(["no", "yes"])).accept_pairs()
    torch.manual_seed(0)
    vocab, outputs = len(tokenisers.source.vocabulary), len(tokenisers.target.vocabulary)
    entry, size = find(name)
    padding = {"pool_padding": True} if name.startswith("funnel") else {}  # as in transformers
    config: Any = entry.config(**entry.sizes[size], **padding)
    model = config.build(vocab, outputs, "classify").eval()
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn_like(parameter)
    write_model(model, config, "classify", tokenisers, tmp_path / "out")
    class_name = CLASSIFIER.format(name.split("-")[0].capitalize())
    assert_equal_logits_of_a_pair(tmp_path / "out", class_name)


def test_other_token_types_than_those_of_the_model_are_refused(tmp_path: Path) -> None:
    folder = save_folder("fnet", tmp_path)
    data = read_json(folder / "tokenizer.json")
    data["post_processor"]["pair"][1]["Sequence"]["type_id"] = 1
    data["post_processor"]["pair"][2]["SpecialToken"]["type_id"] = 1
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"post_processor: .* token types \[0, 1, 1\], the model here gives .*0, 0, 1"):
        read_folder(folder)
