"""Unicode normalisation and lower-casing of text before it is tokenised."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Normaliser:
    """Text -> text: replace lone surrogates, then apply the Unicode form and lower case if they are set.

    >>> Normaliser("NFKC", lower=True)("ﬁne Ω")
    'fine ω'
    """

    form: Literal["", "NFC", "NFD", "NFKC", "NFKD"] = ""
    lower: bool = False

    def __call__(self, text: str) -> str:
        if text.isascii():
            return text.lower() if self.lower else text
        # Neither UTF-8 nor the tokenizers library can represent a lone surrogate.
        text = _LONE_SURROGATE.sub("\ufffd", text)
        text = self._apply_form(text)
        return self._apply_form(text.lower()) if self.lower else text

    def _apply_form(self, text: str) -> str:
        return unicodedata.normalize(self.form, text) if self.form else text


PLAIN = Normaliser()
