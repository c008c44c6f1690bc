"""The table of readers: one for each `data.format` whose files hold a source and a target.

A new format is a module beside this one with a `Reader`, a line here, and its name in `config.Format`. Formats of texts
without sources (`config.UNPAIRED`) are read in pieces by `readers/text.py`.
"""

from __future__ import annotations

from headwise.data.readers.arrow import read_arrow, read_parquet
from headwise.data.readers.base import Reader
from headwise.data.readers.cmudict import read_cmudict
from headwise.data.readers.codespell import read_codespell
from headwise.data.readers.conll import read_conll
from headwise.data.readers.conllu import read_conllu, read_conllu_brackets, read_conllu_trees
from headwise.data.readers.csv import read_csv
from headwise.data.readers.geonames import read_geonames
from headwise.data.readers.json import read_json
from headwise.data.readers.jsonl import read_jsonl
from headwise.data.readers.labelled_folders import read_labelled_folders
from headwise.data.readers.labelled_zip import read_labelled_zip
from headwise.data.readers.residues import read_residues
from headwise.data.readers.squad import read_squad
from headwise.data.readers.tsv import read_tsv

READERS: dict[str, Reader] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "json": read_json,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "conll": read_conll,
    "squad": read_squad,
    "dictionary": read_cmudict,
    "conllu": read_conllu,
    "conllu-trees": read_conllu_trees,
    "conllu-brackets": read_conllu_brackets,
    "labelled-zip": read_labelled_zip,
    "labelled-folders": read_labelled_folders,
    "codespell": read_codespell,
    "geonames": read_geonames,
    "residues": read_residues,
}
