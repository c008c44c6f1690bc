"""Protein structures and alignments, word vectors."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

from hostile_corpus import Commands, Sandbox

ATOM = "ATOM  {0:>5}  CA  ALA A{1:>4}    {2:>8}{3:>8}{4:>8}  1.00  0.00           C\n"
GOOD = "".join(ATOM.format(n, n, f"{3.8 * n:.3f}", "0.000", "0.000") for n in range(1, 12))
LOOP = "data_x\nloop_\n"
FIELDS = ("group_PDB", "id", "label_atom_id", "label_alt_id", "label_comp_id", "label_asym_id", "label_seq_id")
COLUMNS = "".join(f"_atom_site.{name}\n" for name in (*FIELDS, "Cartn_x", "Cartn_y", "Cartn_z"))
STRUCTURES: dict[str, tuple[str, str | bytes]] = {
    "empty": ("a.pdb", ""),
    "bytes": ("a.pdb", b"\xff\xfe\0" * 100),
    "NaN": ("a.pdb", ATOM.format(1, 1, "nan", "inf", "-inf")),
    "stars": ("a.pdb", ATOM.format("*****", "****", "********", "********", "********")),
    "huge coordinates": ("a.pdb", ATOM.format(1, 1, "9999e300", "0.000", "0.000")),
    "one residue a million times": ("a.pdb", ATOM.format(1, 1, "0.000", "0.000", "0.000") * 200_000),
    "long line": ("a.pdb", "ATOM" + "x" * 2**26),
    "models without end": ("a.pdb", "MODEL\n" * 100_000 + GOOD),
    "mmCIF empty loop": ("a.cif", LOOP + COLUMNS),
    "mmCIF ragged": ("a.cif", LOOP + COLUMNS + "ATOM 1 CA\n"),
    "mmCIF open text": ("a.cif", "data_x\n_a.b\n;" + "x\n" * 100_000),
    "mmCIF open quote": ("a.cif", "data_x\n_a.b 'xxx\n"),
    "mmCIF numbers": ("a.cif", LOOP + COLUMNS + "ATOM 1 CA . ALA A " + "9" * 5000 + " 0 0 0\n"),
    "mmCIF a million columns": ("a.cif", LOOP + "".join(f"_a.b{n}\n" for n in range(200_000)) + "1\n"),
    "gzip bomb": ("a.pdb.gz", b""),
}
ALIGNMENTS: dict[str, str | bytes] = {
    "empty": "",
    "no query": "ACDE\n",
    "unequal": ">a\nACDEF\n>b\nAC\n",
    "numbers": ">a\n12345\n>b\n67890\n",
    "long line": ">a\n" + "A" * 2**26 + "\n",
    "bytes": b">a\n\xff\xfe\n",
    "NUL": ">a\nAC\0DE\n",
    "200,000 rows": ">a\nACDEF\n" * 200_000,
}
VECTORS: dict[str, str | bytes] = {
    "count": "9" * 5000 + " 2\na 1 2\n",
    "sizes": f"{2**60} {2**60}\na 1 2\n",
    "NaN": "1 2\na nan inf\n",
    "ragged": "2 2\na 1 2\nb 1\n",
    "bytes": b"1 2\n\xff 1 2\n",
    "empty": "",
}
EXPERIMENT = """
task = "fold"
[data]
kind = "structures"
train = ["a.pdb", "b.pdb"]
alignments = "."
[model]
kind = "alphafold2-tiny"
[train]
steps = 1
threads = 1
"""


def put_structure(name: str, content: str | bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write(name, content or gzip.compress(bytes(3 * 10**8), 6) if name.endswith(".gz") else content)
        sandbox.write("good.pdb", GOOD)
        sandbox.write("experiment.toml", EXPERIMENT.replace("a.pdb", name).replace("b.pdb", "good.pdb"))
        return [["compare-structures", name, "good.pdb"], ["train", "experiment.toml"]]

    return make


def put_alignment(content: str | bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write("a.a3m", content)
        for name in ("a", "b"):
            sandbox.write(f"{name}.pdb", GOOD)
        sandbox.write("experiment.toml", EXPERIMENT)
        return [["train", "experiment.toml"]]

    return make


def put_vectors(content: str | bytes) -> Callable[[Sandbox], Commands]:
    def make(sandbox: Sandbox) -> Commands:
        sandbox.write("vectors.txt", content)
        return [["embed", "vectors.txt", "a"]]

    return make


def list_cases() -> Iterator[tuple[str, Callable[[Sandbox], Commands], bool]]:
    for name, (file, content) in STRUCTURES.items():
        yield f"structure {name}", put_structure(file, content), name != "models without end"
    for name, text in ALIGNMENTS.items():
        yield f"alignment {name}", put_alignment(text), True
    for name, text in VECTORS.items():
        yield f"vectors {name}", put_vectors(text), True
