"""Vocabulary files of older folders without a `tokenizer.json`: `vocab.txt` of WordPiece, `vocab.json` and `merges.txt`
of BPE. They hold what the tokenizer classes of `transformers` take from `tokenizer.json`: vocabulary and merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.errors import UserError

WORD_PIECE, BPE_VOCABULARY, MERGES = "vocab.txt", "vocab.json", "merges.txt"


def has_vocabulary_files(folder: Path) -> bool:
    return bool(list_vocabulary_files(folder))


def list_vocabulary_files(folder: Path) -> list[Path]:
    """The vocabulary files of a folder: one of WordPiece, two of BPE, or none."""
    candidates = ([folder / WORD_PIECE], [folder / BPE_VOCABULARY, folder / MERGES])
    return next((files for files in candidates if all(file.is_file() for file in files)), [])


def read_vocabulary_files(folder: Path) -> dict[str, Any]:
    """The model of a `tokenizer.json` with the vocabulary of these files."""
    from tokenizers import models

    files = list_vocabulary_files(folder)
    try:
        if len(files) == 1:
            model: dict[str, Any] = {"type": "WordPiece", "vocab": models.WordPiece.read_file(str(files[0]))}
        else:
            vocab, merges = models.BPE.read_file(*map(str, files))
            model = {"type": "BPE", "vocab": vocab, "merges": [list(merge) for merge in merges]}
    except Exception as error:  # the tokenizers library raises bare Exception
        raise UserError(f"{' and '.join(map(str, files))}: cannot be read ({error}); fetch again") from None
    return {"model": model, "added_tokens": []}
