"""Two texts as one source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwise.text import EOS
from headwise.text.config import BytesConfig
from headwise.text.normalise import Normaliser
from headwise.text.paired import Paired
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Bytes

TEXT = st.text(st.characters(exclude_characters="\t", exclude_categories=["Cs"]), min_size=1)
BYTES = Bytes.train((), BytesConfig(), Normaliser())


@given(TEXT, TEXT)
def test_a_pair_is_encoded_as_its_texts_with_eos_between_them(first: str, second: str) -> None:
    pair = Paired(BYTES)
    ids = pair.encode(f"{first}\t{second}")
    assert ids == [*BYTES.encode(first), EOS, *BYTES.encode(second)]
    assert pair.decode([*ids, EOS]) == f"{first}\t{second}"
    assert pair.encode(first) == BYTES.encode(first)


def test_a_tokeniser_of_pairs_is_saved_and_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    sides = Tokenisers(BYTES, BYTES).accept_pairs()
    sides.save(tmp_path / "tokenizer.json")
    again = Tokenisers.load(tmp_path / "tokenizer.json")
    assert again.source.encode("a\tb") == sides.source.encode("a\tb") and again.accept_pairs() is again
