"""What RoBERTa has beside BERT: positions after the padding's id, two separators between texts, types of 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_folders import STACK, build_hf_model, logits, save_folder
from transformers.utils import logging
from word_folders import build_noisy_model, save, vocabulary

from headwise import UserError
from headwise.experiment.convert import from_hf, to_hf
from headwise.interop.hf.read import read_folder
from headwise.interop.hf.roberta import ROBERTA
from headwise.interop.hf.write import write_folder
from headwise.models.bert import BertConfig
from headwise.testing import assert_parity
from headwise.text.paired import Paired

logging.disable_progress_bar()
logging.set_verbosity_error()
SPECIAL_IDS = {"pad": 3, "unk": 7, "cls": 8, "sep": 11, "mask": 15}
WORDS = vocabulary(SPECIAL_IDS)
SHAPE: dict[str, Any] = {
    **STACK, "vocab_size": len(WORDS), "pad_token_id": 3, "bos_token_id": 8, "eos_token_id": 11,
}  # fmt: skip


def write_roberta(name: str, folder: Path) -> Any:
    """A folder whose tokeniser puts special tokens around texts as RoBERTa's does."""
    model = build_noisy_model(name, transformers.RobertaConfig(**SHAPE))
    path = save(model, folder, SPECIAL_IDS) / "tokenizer.json"
    processor = {"type": "RobertaProcessing", "sep": ["[SEP]", 11], "cls": ["[CLS]", 8], "trim_offsets": True,
                 "add_prefix_space": False}  # fmt: skip
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": processor}))
    return model


@torch.inference_mode()
def test_answers_are_those_of_two_separators_and_types_of_zero(tmp_path: Path) -> None:
    model = write_roberta("RobertaForQuestionAnswering", tmp_path / "in")
    loaded = from_hf(tmp_path / "in")
    tokeniser = loaded.task.tokenisers.accept_pairs().source
    assert isinstance(tokeniser, Paired) and tokeniser.pair_separators == 2
    ids = tokeniser.encode("w1 w2\tw5 w6 w9")
    assert tokeniser.decode([*ids, 2]) == "w1 w2\tw5 w6 w9"
    batch = transformers.AutoTokenizer.from_pretrained(tmp_path / "in")("w1 w2", "w5 w6 w9", return_tensors="pt")
    assert batch["input_ids"].tolist() == [[8, 1, 2, 11, 11, 5, 6, 9, 11]]
    expected = model(input_ids=batch["input_ids"])
    actual = loaded.model(torch.tensor([[*ids, 2]]))
    text = slice(4, 7)  # without the prefix token, which is not in our logits
    assert_parity(actual[0, text, 0], expected.start_logits[0, 1:][text])
    assert_parity(actual[0, text, 1], expected.end_logits[0, 1:][text])
    assert actual[0, :4].max() < -1e30 and actual[0, 7:].max() < -1e30
    to_hf(loaded, tmp_path / "out")
    again = transformers.RobertaForQuestionAnswering.from_pretrained(tmp_path / "out").eval()
    assert_parity(again(**batch).start_logits, expected.start_logits)


@torch.inference_mode()
def test_padding_has_no_position(tmp_path: Path) -> None:
    """A text alone and beside a longer one has equal outputs in both."""
    model = write_roberta("RobertaForSequenceClassification", tmp_path)
    tokenizer, texts = transformers.AutoTokenizer.from_pretrained(tmp_path), ["w1 w2 w20 w9 w10", "w4"]
    expected = model(**tokenizer(texts, return_tensors="pt", padding=True)).logits.softmax(-1)
    for actual in (from_hf(tmp_path).classify(texts), [from_hf(tmp_path).classify([text])[0] for text in texts]):
        assert_parity(torch.tensor([list(scores.values()) for scores in actual]), expected)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"pad_token_id": None}, "pad_token_id: "),
        ({"pad_token_id": 23}, "max_position_embeddings is 24, but positions begin after pad_token_id"),
        ({"pad_token_id": 11}, "pad_token_id is that of another special token"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type: "),
    ],
    ids=str,
)
def test_positions_that_cannot_be_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=f"^here: .*{complaint}"):
        ROBERTA.hf_config.read({**SHAPE, **change}, "here")


def test_a_model_whose_positions_do_not_begin_after_its_padding_is_refused(tmp_path: Path) -> None:
    """Special tokens of models trained here begin with the padding, so positions would have to begin at 1."""
    ids = torch.tensor([[5, 6, 2]])
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "token_types": 0, "task_types": 1}
    for offset in (1, 2):
        config = BertConfig(**sizes, positions={"kind": "learned", "max_length": 16, "offset": offset})
        model = config.build(12, 0, "masked").eval()
        if offset == 1:
            write_folder(model, config, "masked", None, tmp_path / "out")
            assert_parity(read_folder(tmp_path / "out").model(ids), model(ids))
        else:
            with pytest.raises(UserError, match=r"^positions: config.json of roberta has .* with these special tokens"):
                write_folder(model, config, "masked", None, tmp_path / "refused")
            assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("model_type", "name", "written"),
    [("xlm-roberta", "XLMRobertaForMaskedLM", "RobertaForMaskedLM"),
     ("mt5", "MT5ForConditionalGeneration", "T5ForConditionalGeneration")],
)  # fmt: skip
@torch.inference_mode()
def test_a_model_type_can_be_asked_for(model_type: str, name: str, written: str, tmp_path: Path) -> None:
    """Without it, the first of the architectures that compute the same is written."""
    model = build_hf_model(model_type, name)
    imported = read_folder(save_folder(model, tmp_path / "in"))
    arguments = (imported.model, imported.config, imported.task, None)
    source = imported.vocabularies.source
    for asked, class_name in ((model_type, name), ("", written)):
        folder = tmp_path / f"out {asked}"
        write_folder(*arguments, folder, source, model_type=asked)
        data = json.loads((folder / "config.json").read_text())
        assert data["architectures"] == [class_name] and data["model_type"] == (asked or data["model_type"])
        again = getattr(transformers, class_name).from_pretrained(folder).eval()
        assert_parity(*logits(imported, again))
    refused = {"xlm-robertta": "--as: model_type 'xlm-robertta' is not known", "gpt2": "--as: gpt2 has no class"}
    for asked, complaint in refused.items():
        with pytest.raises(UserError, match=complaint):
            write_folder(*arguments, tmp_path / "none", source, model_type=asked)
        assert not (tmp_path / "none").exists()


@torch.inference_mode()
def test_token_types_of_pairs_are_refused_as_only_the_first_is_read(tmp_path: Path) -> None:
    special_ids = {"pad": 0, "unk": 3, "cls": 1, "sep": 2, "mask": 4}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 24}
    model = build_hf_model("roberta", "RobertaForSequenceClassification", num_labels=3, type_vocab_size=2, **ids)
    folder = save(model, tmp_path, special_ids)
    with pytest.raises(UserError, match=r"roberta reads the first alone here; set \"model_input_names"):
        read_folder(folder)
    path = folder / "tokenizer_config.json"
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **names}))
    expected = model(**transformers.AutoTokenizer.from_pretrained(folder)("w5", "w6 w7", return_tensors="pt")).logits
    (answer,) = from_hf(folder).classify(["w5\tw6 w7"])
    assert_parity(torch.tensor(list(answer.values())), expected.softmax(-1)[0])
    one_type = build_hf_model("roberta", "RobertaForSequenceClassification", num_labels=3, type_vocab_size=1, **ids)
    read_folder(save(one_type, tmp_path / "one", special_ids))
