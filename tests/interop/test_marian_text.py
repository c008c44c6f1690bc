"""The tokeniser of Marian folders, on a SentencePiece model trained here."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.interop.hf.marian import order_pieces, read_ids
from headwise.text import EOS, SPECIALS, UNK
from headwise.text.hf import VocabularyMap
from headwise.text.marian import MarianTokeniser
from headwise.text.normalise import PLAIN


@pytest.fixture(scope="module")
def tokeniser(pieces: Any) -> MarianTokeniser:
    last = len(pieces.ids) - 1
    rows = VocabularyMap(len(pieces.ids), pad=last, bos=last, eos=0, unk=1)
    return MarianTokeniser(pieces.model, order_pieces(pieces.ids, rows.hf_ids))


def test_texts_come_back(tokeniser: MarianTokeniser) -> None:
    ids = tokeniser.encode("the dog sat on a cat")
    assert min(ids) > UNK and max(ids) < tokeniser.size
    assert tokeniser.decode([*ids, EOS]) == "the dog sat on a cat"
    assert tokeniser.tokens(ids)[0].startswith("▁")


def test_ids_follow_our_convention(tokeniser: MarianTokeniser) -> None:
    assert tokeniser.vocabulary[:4] == list(SPECIALS)
    assert len(set(tokeniser.vocabulary)) == tokeniser.size
    assert UNK in tokeniser.encode("Ω")


def test_a_language_is_one_token_and_only_in_front(tokeniser: MarianTokeniser) -> None:
    code = tokeniser.vocabulary.index(">>deu<<")
    assert tokeniser.encode(">>deu<< the cat") == [code, *tokeniser.encode("the cat")]
    assert code not in tokeniser.encode("the >>deu<< cat")


def test_special_tokens_in_a_text_are_text(tokeniser: MarianTokeniser) -> None:
    assert EOS not in tokeniser.encode("</s>") and 0 not in tokeniser.encode("<pad>")


def test_json_holds_all(tokeniser: MarianTokeniser) -> None:
    data = json.loads(json.dumps(tokeniser.to_json()))
    again = MarianTokeniser.from_json(data, PLAIN)
    assert again.encode("the cat sat") == tokeniser.encode("the cat sat") and again.vocabulary == tokeniser.vocabulary


def test_damaged_files_raise_user_errors(tokeniser: MarianTokeniser, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="damaged"):
        MarianTokeniser(b"not a model", tokeniser.vocabulary).encode("a")
    for content, word in (("[1]", "object"), ('{"</s>": "x"}', "map pieces"), ('{"</s>": 0}', "<unk>")):
        (tmp_path / "vocab.json").write_text(content)
        with pytest.raises(UserError, match=word):
            read_ids(tmp_path / "vocab.json")
