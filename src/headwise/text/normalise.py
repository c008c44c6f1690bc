"""The clean-up of text before it is tokenised."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Normaliser:
    """Text -> text: lone surrogates replaced, then the Unicode form and lower case if asked for.

    >>> Normaliser("NFKC", lower=True)("ﬁne Ω")
    'fine ω'
    """

    form: Literal["", "NFC", "NFD", "NFKC", "NFKD"] = ""
    lower: bool = False

    def __call__(self, text: str) -> str:
        if text.isascii():
            return text.lower() if self.lower else text
        # A lone surrogate is no character: neither UTF-8 nor the tokenizers library can hold it.
        text = _LONE_SURROGATE.sub("\ufffd", text)
        text = self._formed(text)
        return self._formed(text.lower()) if self.lower else text

    def _formed(self, text: str) -> str:
        return unicodedata.normalize(self.form, text) if self.form else text


PLAIN = Normaliser()
