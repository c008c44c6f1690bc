"""Real chains as data of folding tasks (`[data]` with `kind = "structures"`): PDB and mmCIF files, and alignments where
there are some.

The parts are of different files, and no sequence is in the training part and in another one. Sequences that are merely
alike are not found: who holds out proteins to claim something about new ones must separate their families first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from headwise.data.compression import NAMES as COMPRESSIONS
from headwise.data.compression import strip_suffix
from headwise.data.files import find_files
from headwise.errors import UserError, nearest
from headwise.proteins.alignments import AlignedChain, make_single_row
from headwise.proteins.chain_sets import ChainDataConfig, Chains, ChainSplit
from headwise.proteins.readers import alignments, structures
from headwise.proteins.readers.structures import check_complete, check_gaps, select_chains

FOLDERS = {"proteins": "proteins/structures"}  # named sets: folders below the data root
PARTS = ("train", "valid", "test")


class StructuresConfig(ChainDataConfig):
    """Chains of PDB and mmCIF files, plain or compressed: files, folders and patterns such as `structures/*.cif.gz`;
    with `name`, of a folder below `root` or HEADWISE_DATA. Without `valid`, some of the files of `train` are held out.
    """

    kind: Literal["structures"] = "structures"
    chain: str = ""  # of every file: the name of a chain, or * for all; empty: the first
    alignments: str = (
        ""  # folder, seen from that of a structure, of alignments with its name; empty: its sequence alone
    )
    incomplete: Literal["refuse", "mask"] = "refuse"  # chains with residues of unknown type or without coordinates
    by_heart: bool = False  # validate and test on the training chains, which shows capacity alone

    @model_validator(mode="after")
    def _check_consistency(self) -> StructuresConfig:
        if not self.train:
            raise ValueError('there is nothing to learn from; set `train`, such as "structures/*.pdb"')
        if self.by_heart and (self.valid or self.test):
            raise ValueError("`by_heart` validates and tests on the chains of `train`; leave out `valid` and `test`")
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError("valid_fraction and test_fraction leave nothing to train on; make them smaller")
        return self

    def load(self) -> ChainSplit:
        """Read all files; what is wrong with one is told before anything is trained."""
        root = self.find_root()
        paths = [[root / Path(name).expanduser() for name in getattr(self, part)] for part in PARTS]
        files = [find_files(part, tuple(structures.READERS)) for part in paths]
        if not self.by_heart:
            files = hold_out_files(files, self)
        read: list[Path] = []
        train, valid, test = (
            FileChains(tuple(chain for path in part for chain in self.read_chains(path, read))) for part in files
        )
        if self.by_heart:
            valid = test = train
        else:
            check_separate(train, {"valid": valid, "test": test})
        return ChainSplit(train, valid, test, tuple(dict.fromkeys(read)))

    def find_root(self) -> Path:
        """The folder that file names start from."""
        if not self.name:
            return Path(self.root).expanduser()
        if self.name not in FOLDERS:
            raise UserError(f"data.name: no set of structures is called '{self.name}'; {nearest(self.name, FOLDERS)}")
        root = self.root or os.environ.get("HEADWISE_DATA", "")
        if not root:
            raise UserError(
                f"data.name: the folder of '{self.name}' is not known; "
                "set data.root or the environment variable HEADWISE_DATA"
            )
        return Path(root).expanduser() / FOLDERS[self.name]

    def read_chains(self, path: Path, read: list[Path]) -> Iterator[FileChain]:
        """The chosen chains of a file with their alignments; files that were read are added to `read`."""
        read.append(path)
        check = check_complete if self.incomplete == "refuse" else check_gaps
        for structure in select_chains(path, self.chain):
            check(structure, path)
            alignment = make_single_row(structure.sequence)
            if self.alignments:
                file = find_alignment(path, self.alignments, structure.chain)
                read.append(file)
                alignment = alignments.read_alignment(file)
                alignment.check_query(structure.sequence, file, f"chain {structure.chain} of {path}")
            yield FileChain(structure, alignment, "", path)


@dataclass(frozen=True, eq=False)
class FileChain(AlignedChain):
    """A chain of a file."""

    path: Path


@dataclass(frozen=True)
class FileChains(Chains):
    """Chains that were read from files."""

    chains: tuple[FileChain, ...]

    def __len__(self) -> int:
        return len(self.chains)

    def __getitem__(self, index: int) -> FileChain:
        return self.chains[index]

    def take(self, indices: Iterable[int]) -> FileChains:
        return FileChains(tuple(self.chains[index] for index in indices))


def hold_out_files(files: list[tuple[Path, ...]], config: StructuresConfig) -> list[tuple[Path, ...]]:
    """Training, validation and test files; where `valid` is empty, and `test` with a `test_fraction`, files of the
    training part are held out, always the same ones."""
    train = sorted(files[0], key=lambda path: hashlib.sha256(path.name.encode()).hexdigest())
    parts = [files[0], *files[1:]]
    fractions = (0.0, config.valid_fraction, config.test_fraction)
    for number in (1, 2):
        if not parts[number] and fractions[number]:
            count = max(1, round(fractions[number] * len(files[0])))
            parts[number], train = tuple(train[:count]), train[count:]
    if not train:
        raise UserError(
            f"{files[0][0]}: no file is left to train on when some are held out; name files for data.valid, or set "
            "data.by_heart = true to validate and test on what is trained on"
        )
    kept = set(train)
    return [tuple(path for path in files[0] if path in kept), *parts[1:]]


def check_separate(train: FileChains, parts: Mapping[str, FileChains]) -> None:
    """Refuse a sequence that is in the training part and in another one."""
    trained = {chain.structure.sequence: chain.path for chain in train.chains}
    for name, part in parts.items():
        for chain in part.chains:
            if path := trained.get(chain.structure.sequence):
                raise UserError(
                    f"{chain.path}: data.{name} has a sequence that is trained on, that of {path}; leave one of them "
                    "out, or set data.by_heart = true to validate and test on what is trained on"
                )


def find_alignment(path: Path, folder: str, chain: str) -> Path:
    """The alignment of a structure: a file with its name, or its name and chain (1abc_A.a3m)."""
    stem, place = Path(strip_suffix(path.name)).stem, path.parent / Path(folder).expanduser()
    names = (
        f"{name}{suffix}{packed}"
        for name in (f"{stem}_{chain}", stem)
        for suffix in alignments.READERS
        for packed in ("", *COMPRESSIONS)
    )
    found = next((place / name for name in names if (place / name).is_file()), None)
    if found is None:
        raise UserError(
            f"{path}: {place} has no alignment of it; add {stem}.a3m or {stem}.sto, or leave out data.alignments"
        )
    return found
