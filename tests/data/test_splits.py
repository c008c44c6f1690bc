"""Held-out parts: no source on both sides, groups together, labels in proportion, whatever the order of the rows."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
from headwise.data.splits import MIN_GROUPS, Sizes, apportion, has_groups, hold_out
from headwise.errors import UserError

SOURCES = st.sampled_from([f"text {number}" for number in range(40)])
LABELS = st.sampled_from(["a", "b", "c"])
ROWS = st.lists(st.tuples(st.just(""), st.tuples(SOURCES, LABELS)), min_size=20, max_size=120)
GROUPED = st.lists(
    st.tuples(st.sampled_from([f"group {number}" for number in range(12)]), st.tuples(SOURCES, LABELS)),
    min_size=30,
    max_size=120,
)
SIZES = Sizes(valid_fraction=0.2, test_fraction=0.1)


def split(rows, stratify, sizes=SIZES):
    """The three parts, or None if there are too few sources."""
    try:
        train, valid, test = hold_out(rows, sizes, stratify, "x")
    except UserError:
        return None
    return list(train), valid, test


@pytest.mark.parametrize("stratify", [True, False])
def test_one_source_cannot_be_held_out(stratify):
    with pytest.raises(
        UserError, match="x: too few different sources to hold some out; add pairs, or name other files"
    ):
        hold_out([("", ("text", "a"))] * 9, SIZES, stratify, "x")


@settings(max_examples=100, deadline=None)
@given(ROWS, st.booleans(), st.randoms(use_true_random=False))
def test_every_row_is_in_one_part_and_no_source_in_two(rows, stratify, random):
    if (parts := split(rows, stratify)) is None:
        return
    assert Counter(pair for part in parts for pair in part) == Counter(pair for _, pair in rows)
    sources = [{source for source, _ in part} for part in parts]
    assert not sources[0] & sources[1] and not sources[0] & sources[2] and not sources[1] & sources[2]
    assert parts[0] and parts[1]
    shuffled = random.sample(rows, len(rows))
    assert [sorted(part) for part in split(shuffled, stratify)] == [sorted(part) for part in parts]


@settings(max_examples=100, deadline=None)
@given(GROUPED, st.booleans())
def test_groups_stay_together_and_their_sources_leave_the_training_part(rows, stratify):
    if (parts := split(rows, stratify)) is None:
        return
    train, *held_out = parts
    held = {source for part in held_out for source, _ in part}
    assert not held & {source for source, _ in train}
    for part in held_out:
        sizes = Counter(group for group, _ in rows)
        assert len(part) in {0, *_subset_sums(list(sizes.values()))}
    # A row that is missing has a source that is held out.
    missing = Counter(pair for _, pair in rows) - Counter(pair for part in parts for pair in part)
    assert {source for source, _ in missing} <= held


def _subset_sums(counts):
    sums = {0}
    for count in counts:
        sums |= {total + count for total in sums}
    return sums


def test_whole_groups_are_held_out():
    rows = [(f"document {number // 10}", (f"text {number}", "x")) for number in range(400)]
    train, valid, test = split(rows, stratify=False)
    for part in (train, valid, test):
        assert all(count == 10 for count in Counter(int(source.split()[1]) // 10 for source, _ in part).values())
    assert (len(train), len(valid), len(test)) == (280, 80, 40)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(40, 400), min_size=2, max_size=5))
def test_labels_have_the_same_share_in_all_parts(counts):
    rows = [
        ("", (f"{label} {number}", f"label {label}")) for label, count in enumerate(counts) for number in range(count)
    ]
    _, valid, test = split(rows, stratify=True)
    for part, share in ((valid, 0.2), (test, 0.1)):
        labels = Counter(target for _, target in part)
        for label, count in enumerate(counts):
            assert abs(labels[f"label {label}"] - share * count) <= 2


def test_a_rare_label_stays_in_the_training_part():
    rows = [("", (f"text {number}", "often")) for number in range(100)] + [("", ("one", "once"))]
    train, valid, test = split(rows, stratify=True, sizes=Sizes(0.5, 0.4))
    assert ("one", "once") in train and len(valid) >= 50 and len(test) >= 40


def test_the_validation_part_has_at_most_its_size():
    rows = [("", (f"text {number}", "ab"[number % 2])) for number in range(1000)]
    for stratify in (True, False):
        assert len(split(rows, stratify, Sizes(0.5, 0.0, valid_size=30))[1]) == 30


@given(st.integers(0, 1000), st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_apportioned_integers_have_the_sum_and_are_near_their_shares(total, weights):
    quotas = apportion(total, weights)
    assert sum(quotas) == total
    assert all(abs(quota - total * weight / sum(weights)) < 1 for quota, weight in zip(quotas, weights, strict=True))


def test_few_documents_are_no_groups():
    assert has_groups([(f"document {number}", ("a", "b")) for number in range(MIN_GROUPS)])
    assert not has_groups([(f"document {number % 3}", ("a", "b")) for number in range(100)])


def test_documents_of_conll_are_held_out_whole(tmp_path):
    documents = [
        "-DOCSTART- O\n\n" + "".join(f"doc{number} D\nword{line} N\n\n" for line in range(10)) for number in range(40)
    ]
    (tmp_path / "a.conll").write_text("".join(documents))
    data = TextDataConfig(train=str(tmp_path / "a.conll"), format="conll", valid_fraction=0.1)
    corpus = load_corpus(data)
    held = Counter(source.split()[0] for source, _ in corpus.valid)
    assert len(held) == 4 and set(held.values()) == {10}
    assert not set(held) & {source.split()[0] for source, _ in corpus.train}
    (tmp_path / "a.conll").write_text("".join(documents[:3]))  # too few: sentences are held out
    assert len(load_corpus(data).valid) == 3


def test_a_group_column_holds_rows_together(tmp_path):
    rows = "".join(f"text {number},{'ab'[number % 2]},user {number % 20}\n" for number in range(400))
    (tmp_path / "a.csv").write_text("text,label,user\n" + rows)
    data = TextDataConfig(
        train=str(tmp_path / "a.csv"), format="csv", columns=("text", "label"), group="user", test_fraction=0.1
    )
    corpus = load_corpus(data)
    users = [{int(text.split()[1]) % 20 for text, _ in part} for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in users] == [17, 1, 2] and len(set().union(*users)) == 20


@pytest.mark.parametrize("in_memory", [True, False])
def test_stratified_parts_are_the_same_from_memory_and_from_the_file(tmp_path, monkeypatch, in_memory):
    rows = "".join(f"text {number}\t{'aaab'[number % 4]}\n" for number in range(400))
    (tmp_path / "a.tsv").write_text(rows)
    if not in_memory:
        monkeypatch.setattr("headwise.data.corpora.MAX_IN_MEMORY", 0)
    corpus = load_corpus(TextDataConfig(train=str(tmp_path / "a.tsv"), stratify=True, valid_fraction=0.1))
    assert Counter(label for _, label in corpus.valid) == {"a": 30, "b": 10}
    assert len(list(corpus.train)) == 360
