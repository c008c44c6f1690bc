"""Odd added tokens, drawn at random over all tokenizer files: ids and texts are those of `AutoTokenizer`, or the folder
is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from test_tokenizer_config import compare_unless_refused
from tiny_tokenizers import FAMILIES, MAIN, SAMPLES, Family, train, write_folder

from headwise.interop.hf.added_tokens import FLAGS, ROLES

Files = dict[str, Any]
TEXTS = [*SAMPLES, "Cat  <new>sat<new> dog Dog<new>", "the cat<extra>  dog", "<NEW> sat"]
CONTENTS = ("cat", "dog", "Sat", " sat", "<new>", "<NEW>", "<extra>", "at")


def draw_flags(rng: random.Random) -> dict[str, bool]:
    return {flag: rng.random() < 0.4 for flag in FLAGS}


def draw_content(rng: random.Random, family: Family) -> str:
    return rng.choice((*CONTENTS, *family.specials))


def draw_token(rng: random.Random, family: Family) -> Any:
    """The text of a token, or its text and flags."""
    content = draw_content(rng, family)
    if rng.random() < 0.5:
        return content
    flags = draw_flags(rng)
    return {"content": content, **{flag: flags[flag] for flag in FLAGS if rng.random() < 0.8}, "__type": "AddedToken"}


def draw_files(rng: random.Random, family: Family) -> Files:
    """One to four changes of the added tokens of a folder."""
    data = train(family.kind, tuple(family.specials))
    listed = [dict(token) for token in data["added_tokens"]]
    size = len(data["model"]["vocab"]) + len(listed)
    config: Files = {"tokenizer_class": family.name}
    files: Files = {"tokenizer_config": config}
    for _ in range(rng.randint(1, 4)):
        number = rng.choice((rng.randrange(size), size, size + 1, size + 7))
        change = rng.randrange(7)
        if change == 0 and listed:
            rng.choice(listed).update(draw_flags(rng))
        elif change == 1:
            listed.append({"id": number, "content": draw_content(rng, family), **draw_flags(rng)})
        elif change == 2:
            entry = {"content": draw_content(rng, family), **draw_flags(rng)}
            config.setdefault("added_tokens_decoder", {})[str(number)] = entry
        elif change == 3:
            config[f"{rng.choice(ROLES)}_token"] = draw_token(rng, family)
        elif change == 4:
            key = rng.choice(("extra_special_tokens", "additional_special_tokens"))
            config[key] = [draw_token(rng, family) for _ in range(rng.randint(1, 3))]
        elif change == 5:
            files.setdefault("special_tokens_map", {})[f"{rng.choice(ROLES)}_token"] = draw_token(rng, family)
        else:
            files.setdefault("added_tokens", {})[draw_content(rng, family)] = number
    return {**files, "tokenizer": {**data, "added_tokens": listed}}


def find_differences(family: Family, seeds: range, folder: Path) -> dict[int, str]:
    found = {}
    for seed in seeds:
        files = draw_files(random.Random(seed), family)
        found[seed] = compare_unless_refused(write_folder(folder / str(seed), family, **files), TEXTS)
    return {seed: difference for seed, difference in found.items() if difference}


@pytest.mark.parametrize("name", MAIN)
def test_odd_added_tokens(name: str, tmp_path: Path) -> None:
    assert find_differences(FAMILIES[name], range(20), tmp_path) == {}


@pytest.mark.weights
@pytest.mark.parametrize("name", FAMILIES)
def test_many_odd_added_tokens(name: str, tmp_path: Path) -> None:
    assert find_differences(FAMILIES[name], range(1000, 1300), tmp_path) == {}
