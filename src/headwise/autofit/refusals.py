"""Files that `headwise fit` cannot learn from: refused in a sentence that says what they are and what to do."""

from __future__ import annotations

import re
import shlex
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headwise.autofit.columns import LANGUAGES, find_header, has_digit, is_known_name
from headwise.autofit.layout import SEPARATORS, has_matching_quotes, has_quoted_cells, parse_rows, split_rows
from headwise.data.compression import strip_suffix
from headwise.data.files import open_file, open_text
from headwise.data.formats import SUFFIXES
from headwise.data.readers.base import ReadOptions
from headwise.data.readers.csv import read_rows
from headwise.errors import UserError

AN_IMAGE = "is one image; name a folder with a folder of images for each class"
KINDS = {  # the first bytes of files -> what they are, and what to do
    b"\x89PNG": AN_IMAGE,
    b"\xff\xd8\xff": AN_IMAGE,
    b"GIF8": AN_IMAGE,
    b"RIFF": AN_IMAGE,
    b"%PDF": "is a PDF; write its text into a file, such as with pdftotext",
    b"SQLite format 3": "is an SQLite database; write the rows of a query as CSV, or pass a frame to headwise.fit",
    b"\xd0\xcf\x11\xe0": "is an old Office document; save the sheet as CSV",
    b"\x93NUMPY": "is an array of NumPy; write a table or texts",
    b"\x89HDF": "is HDF5; write the table as Parquet or CSV",
    b"\x80\x04": "is a pickle, which could run code and is not read; write the table as Parquet or CSV",
    b"\x80\x05": "is a pickle, which could run code and is not read; write the table as Parquet or CSV",
}
MIN_ROWS, MOST_ROWS = 10, 0.9  # of a table whose quotes do not match, to be one: rows, and share of as many cells
READ_BINARY = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"PK\x03\x04")  # other readers take them
OFFICE = {  # names in archives, or of folders there -> what these are, and what to do
    "xl/": "is an Excel workbook; save the sheet as CSV",
    "word/": "is a Word document; save its text as .txt",
    "ppt/": "is a presentation; save its text as .txt",
    "META-INF/container.xml": "is an e-book (EPUB); save its text as .txt, such as with pandoc",
    "content.xml": "is an OpenDocument file; save a sheet as CSV, or a text as .txt",
}


@dataclass(frozen=True)
class LineFormat:
    """A format of lines that is not read, and the command that writes what is read."""

    pattern: str  # of all lines
    problem: str
    command: str
    suffix: str


LINE_FORMATS = (
    LineFormat(
        r"(__label__.*\n)+",
        "has labels before the texts, as fastText writes them; write text, tab, label",
        r"sed -E 's/^__label__([^ ]+) +(.*)/\2\t\1/'",
        ".tsv",
    ),
    LineFormat(
        r"([^|\n]+ \|\|\| [^|\n]+\n)+",
        "has pairs with ||| between them; write source, tab, target",
        r"sed -E 's/ *[|]{3} */\t/'",
        ".tsv",
    ),
    LineFormat(
        r".*\n\|? *:?-+:? *(\| *:?-+:? *)+\|? *\n(.*\n)*",
        "is a Markdown table; write columns with tabs between them",
        r"sed -E '2d; s/^ *[|] *//; s/ *[|] *$//; s/ *[|] */\t/g'",
        ".tsv",
    ),
    LineFormat(
        r"(\S+ {2,}\S.*\n){3,}",
        "has two columns with spaces between them; write a tab",
        r"sed -E 's/ {2,}/\t/'",
        ".tsv",
    ),
    LineFormat(
        r"(?=.*/\S+ \S)(\S+/[^\s/]+( \S+/[^\s/]+)* ?\n)+",
        "has word/TAG; write a word, a tab and its tag a line, and an empty line after a sentence",
        r"sed -E 's#/([^ /]+)( |$)#\t\1\n#g'",
        ".conll",
    ),
    LineFormat(
        r"(<\?xml[^>]*>\s*)?(<!DOCTYPE[^>]*>\s*)?<tmx\b(.*\n)*",
        "is a translation memory (TMX); write source, tab, target",
        r"""perl -0777 -ne 'print "$1\t$2\n" while m#<seg>(.*?)</seg>.*?<seg>(.*?)</seg>#gs'""",
        ".tsv",
    ),
    LineFormat(
        r"(WEBVTT.*\n)?(\d+\n)?[\d:]+[,.]\d+ --> [\d:]+[,.]\d+.*\n(.*\n)*",
        "has subtitles; write their lines without numbers and times",
        r"sed -E '/^WEBVTT/d; /-->/d; /^[0-9]+\r?$/d; s/<[^>]*>//g'",
        ".txt",
    ),
    LineFormat(
        r"(>.*\n([A-Za-z*.-]+\n)+)+(>.*\n)?",
        "is FASTA; write one sequence a line",
        """awk '/^>/ {if (s) print s; s = ""; next} {s = s $0} END {print s}'""",
        ".txt",
    ),
)


def refuse_binary(path: Path, start: bytes) -> None:
    """Refuse files that are no text, nor a table or archive that is read."""
    for magic, problem in KINDS.items():
        if start.startswith(magic):
            raise UserError(f"{path}: {problem}")
    if start.startswith(READ_BINARY):
        return
    with open_text(path) as file:
        text = file.read(2**12)  # UTF-16 is UTF-8 here
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in text)
    if controls > len(text) / 50:
        raise UserError(
            f"{path}: is no text, and no table, image or archive of a known kind; name a text file, a table or a folder"
        )


def refuse_archives(path: Path) -> None:
    """Refuse zip archives that have tables, texts or documents in them, instead of a file for each label."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (zipfile.BadZipFile, OSError, EOFError, ValueError):
        return  # its reader says what is wrong
    for folder, problem in OFFICE.items():
        if any(name.startswith(folder) for name in names):
            raise UserError(f"{path}: {problem}")
    languages = {name.rpartition(".")[2] for name in names if LANGUAGES.fullmatch(name.rpartition(".")[2])}
    known = {suffix for suffixes in SUFFIXES.values() for suffix in suffixes} | {".txt", ".png", ".jpg", ".jpeg"}
    tables = [name for name in names if PurePosixPath(strip_suffix(name)).suffix.lower() in known]
    if len(languages) == 2:
        tables = [name for name in names if name.endswith(tuple(f".{language}" for language in languages))]
    if tables and (len(tables) > len(names) / 2 or len(languages) == 2):
        target = shlex.quote(path.stem)
        raise UserError(
            f"{path}: is a zip archive ({tables[0]} in it); unpack it: unzip {shlex.quote(str(path))} -d {target} && "
            f"headwise fit {target}"
        )


def refuse_lines(path: Path, lines: Sequence[str]) -> None:
    """Refuse texts in a format that one command turns into one that is read."""
    filled = "".join(f"{line}\n" for line in [line for line in lines if line.strip()][:100])
    for format in LINE_FORMATS:
        if re.fullmatch(format.pattern, filled):
            target = shlex.quote(path.stem + format.suffix)
            raise UserError(f"{path}: {format.problem}: {format.command} {shlex.quote(str(path))} > {target}")


def refuse_ragged(path: Path, lines: Sequence[str]) -> None:
    """Refuse a table whose first line has the names of columns and whose rows have other numbers of cells."""
    filled = [line for line in lines if line.strip()]
    for separator in SEPARATORS:
        names = [cell.strip().strip('"') for cell in filled[0].split(separator)] if filled else []
        if len(names) < 2 or not all(map(is_known_name, names)):
            continue
        if len(filled) == 1:
            raise UserError(f"{path}: has the names of columns ({filled[0]}) and no rows; add rows to learn from")
        rows = split_rows(filled, separator)
        for number, row in enumerate(rows or [line.split(separator) for line in filled], 1):
            if len(row) != len(names):
                raise UserError(
                    f"{path}, row {number}: has {len(row)} cells, and the header {len(names)}; quote the cells that "
                    f"have a {separator!r} in them, or close the quotes of this row"
                )


def refuse_quotes(path: Path, lines: Sequence[str]) -> None:
    """Refuse a table of which some quotes are not doubled inside quoted cells: as one text, nothing could be learnt."""
    for separator in SEPARATORS:
        if has_matching_quotes(lines, separator):
            continue
        rows = parse_rows(lines, separator, strict=False)
        (width, count), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
        if width < 2 or len(rows) < MIN_ROWS or count < MOST_ROWS * len(rows) or len(rows[0]) != width:
            continue
        header = find_header([row for row in rows if len(row) == width])  # dialogue has quotes and commas, too
        if (header.present and header.sure) or has_quoted_cells([line for line in lines if line.strip()]):
            for _ in read_rows(path, ReadOptions(separator=separator)):  # its error names the line
                pass


def refuse_line_ends(path: Path, start: bytes) -> None:
    """Refuse files whose lines end with a carriage return alone, as on old Macs."""
    if b"\n" not in start and start.count(b"\r") > 2 and b"\0" not in start:
        target = shlex.quote(f"{path.stem}.unix{path.suffix}")
        raise UserError(
            f"{path}: its lines end with carriage returns alone; convert them: tr '\\r' '\\n' "
            f"< {shlex.quote(str(path))} > {target}"
        )


def warn_of_texts(path: Path, lines: Sequence[str]) -> tuple[str, ...]:
    """Warnings of markup, and of labels before the texts, in what is taken for plain text."""
    filled = [line for line in lines if line.strip()]
    if filled and re.match(r"\s*<(\?xml|!doctype|html|tmx|tei)\b", filled[0], re.I):
        return ("it has markup, which is learnt like the words; extract the texts to learn these alone",)
    if filled and re.match(r"(From \S+@|(From|Return-Path|Received|Delivered-To|Message-ID):)", filled[0]):
        return ("it has the headers of e-mails, which are learnt like the words; remove them to learn the texts alone",)
    words = Counter(line.split()[0] for line in filled)
    dated = all(map(has_digit, words))  # as the lines of a log are
    if (
        not dated
        and len(filled) >= 50
        and 2 <= len(words) <= min(50, len(filled) / 20)
        and all(" " in line for line in filled)
    ):
        target = shlex.quote(f"{path.stem}.tsv")
        shown = ", ".join(f"'{word[:20]}'" for word, _ in words.most_common(3))
        return (
            f"each line begins with one of {len(words)} words ({shown}); if these are labels: "
            f"sed -E 's/^([^ ]+) +(.*)/\\2\\t\\1/' {shlex.quote(str(path))} > {target}",
        )
    return ()
