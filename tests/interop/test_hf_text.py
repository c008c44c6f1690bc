"""`tokenizer.json` with our ids, on tokenisers that are trained here: those of GPT-2, LLaMA and BERT in small."""

import json
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from headwise.errors import UserError
from headwise.interop.hf.text import TokeniserFiles
from headwise.interop.hf.tokenizer_config import ResolvedTokenizer
from headwise.interop.hf.tokenizer_json import add_post_processor, to_tokenizer_json
from headwise.text import BOS, EOS, PAD, SPECIALS
from headwise.text.hf import HfTokeniser, VocabularyMap
from headwise.text.normalise import PLAIN, Normaliser
from headwise.text.subword import Bpe, Unigram
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Bytes, Characters, Words

TEXT = ["the cat sat on the mat", "a dog and a cat", "the dog ran to the mat 1234 times"] * 8
SAMPLES = ["the cat sat", " a  dog ran\nto 12 mats", "Zürich ☂ 東京", "", "catsanddogs, and the naïve"]


ROWS: dict[str, dict[str, int]] = {
    "gpt2": {"bos": 280, "eos": 280},
    "llama": {"unk": 0, "bos": 1, "eos": 2},
    "bert": {"pad": 0, "unk": 1, "bos": 2, "eos": 3, "mask": 4},
}


Engines = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=ROWS)
def pair(request: pytest.FixtureRequest, engines: Engines) -> tuple[Tokenizer, HfTokeniser]:
    engine = Tokenizer.from_str(json.dumps(engines[request.param]))
    rows = VocabularyMap(engine.get_vocab_size() + 3, **ROWS[request.param])  # tables are often a little longer
    return engine, HfTokeniser(engines[request.param], rows)


def test_ids_are_those_of_transformers(pair: tuple[Tokenizer, HfTokeniser]) -> None:
    engine, ours = pair
    hf_tokeniser = PreTrainedTokenizerFast(tokenizer_object=engine)
    for text in SAMPLES:
        ids = ours.encode(text)
        assert [ours.vocabulary_map.hf_ids[i] for i in ids] == hf_tokeniser(text, add_special_tokens=False).input_ids
        assert ours.decode([BOS, *ids, EOS, PAD]) == hf_tokeniser.decode(
            hf_tokeniser(text, add_special_tokens=False).input_ids
        )


def test_the_vocabulary_has_one_name_for_each_row(pair: tuple[Tokenizer, HfTokeniser]) -> None:
    _, ours = pair
    assert ours.size == len(ours.vocabulary_map.hf_ids) == len(set(ours.vocabulary))
    assert ours.vocabulary[:4] == list(SPECIALS)
    assert sorted(ours.vocabulary_map.headwise_ids) == [
        i for i in range(ours.size) if i not in ours.vocabulary_map.suppressed_ids
    ]
    assert [ours.vocabulary_map.hf_ids[i] for i in ours.vocabulary_map.headwise_ids] == list(
        range(ours.vocabulary_map.vocab)
    )


def test_text_is_never_a_special_token(pair: tuple[Tokenizer, HfTokeniser]) -> None:
    _, ours = pair
    for mark in ("<|endoftext|>", "<s>", "</s>", "[SEP]", "[PAD]", "[MASK]"):
        ids = ours.encode(f"the {mark} cat")
        assert not {PAD, BOS, EOS} & set(ids) and ours.vocabulary_map.mask not in [
            ours.vocabulary_map.hf_ids[i] for i in ids
        ]


def test_a_run_keeps_the_tokeniser(pair: tuple[Tokenizer, HfTokeniser], tmp_path: Any) -> None:
    _, ours = pair
    Tokenisers(ours, ours).save(tmp_path / "tokenizer.json")
    again = Tokenisers.load(tmp_path / "tokenizer.json").source
    assert [again.encode(text) for text in SAMPLES] == [ours.encode(text) for text in SAMPLES]
    assert again.vocabulary == ours.vocabulary


def test_whether_texts_begin_with_bos_is_read_from_the_file(engines: Engines) -> None:
    actual = {
        name: HfTokeniser(engine, VocabularyMap(400, **ROWS[name])).prepends_bos for name, engine in engines.items()
    }
    assert actual == {"gpt2": False, "llama": True, "bert": False}


def test_pieces_can_be_read_by_people(engines: Engines) -> None:
    ours = HfTokeniser(engines["gpt2"], VocabularyMap(281, **ROWS["gpt2"]))
    assert ours.tokens([BOS, *ours.encode("a cat")]) == ["<s>", "a", "▁cat"]


def test_special_tokens_are_found_by_id_or_by_name(engines: Engines) -> None:
    texts = TokeniserFiles("", ResolvedTokenizer(engines["bert"], {"cls_token": "[CLS]", "sep_token": "[SEP]"}))
    assert [texts.find_special_id(role, {}) for role in ("pad", "unk", "cls", "sep", "mask")] == [None, 1, 2, 3, None]
    assert (
        texts.find_special_id("eos", {"eos_token_id": [7, 8]}) == 7
        and texts.find_special_id("pad", {"pad_token_id": -1}) is None
    )
    with pytest.raises(UserError, match="eos_token_id"):
        texts.find_special_id("eos", {"eos_token_id": "last"})


def test_a_vocabulary_beyond_the_table_is_refused(engines: Engines) -> None:
    with pytest.raises(UserError, match="281 tokens, the model's table only 280"):
        HfTokeniser(engines["gpt2"], VocabularyMap(280))


def test_special_ids_must_be_in_the_table() -> None:
    with pytest.raises(UserError, match=r"eos 9: .* from 0 to 5"):
        VocabularyMap(6, eos=9)


TOKENISERS = [
    lambda: Bpe.train(TEXT, _config("bpe"), Normaliser("NFKC", lower=True)),
    lambda: Unigram.train(TEXT, _config("unigram"), PLAIN),
    lambda: Bytes(),
    lambda: Characters("abcdeghimnorst ü"),
    lambda: Words(["the", "cat", "sat"]),
]


def _config(kind: str) -> Any:
    from headwise.text.config import TOKENISERS

    return TOKENISERS.parse({"kind": kind, "size": 300})


@pytest.mark.parametrize("build", TOKENISERS, ids=["bpe", "unigram", "bytes", "characters", "words"])
def test_headwise_tokenisers_are_written_as_tokenizer_json(build: Any) -> None:
    ours = build()
    engine = to_tokenizer_json(ours)
    assert engine is not None
    hf_tokeniser = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(add_post_processor(engine, True, False)))
    )
    for text in SAMPLES:
        assert hf_tokeniser(text).input_ids == [BOS, *ours.encode(text)]
    for text in ("the cat sat", "cat"):
        assert hf_tokeniser.decode(ours.encode(text)) == ours.decode(ours.encode(text))


def test_classes_of_words_are_not_written() -> None:
    assert to_tokenizer_json(Words(["cat", "<unk:C:>"])) is None
