import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.text.normalise import Normaliser

ANY_TEXT = st.text(st.characters(categories=None), max_size=60)  # lone surrogates included


@pytest.mark.parametrize("form", ["", "NFC", "NFD", "NFKC", "NFKD"])
@settings(deadline=None)
@given(text=ANY_TEXT)
def test_result_has_the_form_and_can_be_encoded(form, text):
    result = Normaliser(form)(text)
    result.encode("utf-8")
    assert not form or unicodedata.is_normalized(form, result)


@settings(deadline=None)
@given(text=ANY_TEXT)
def test_normalisation_is_idempotent(text):
    normalise = Normaliser("NFKC", lower=True)
    assert normalise(normalise(text)) == normalise(text)


def test_plain_keeps_the_text():
    assert Normaliser()("Ein Süßes  ①") == "Ein Süßes  ①"


def test_compatibility_capitals_are_lowered_too():
    assert Normaliser("NFKC", lower=True)("ℌ Ⅳ") == "h iv"
