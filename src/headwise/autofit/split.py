"""What is held out of a user's data, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.autofit.plan import Plan
from headwise.data.config import TextDataConfig
from headwise.data.corpora import MAX_VALID, load_corpus
from headwise.data.parts import find_part_folders
from headwise.data.splits import fingerprint
from headwise.vision.config import ImagesConfig
from headwise.vision.corpora import load_images

MAX_COMPARED = 200_000  # rows of a training part with which those of a given test part are compared


def describe_split(chosen: Plan) -> Iterator[str]:
    """What is held out for validation and test."""
    data, statistics = chosen.experiment.data, chosen.statistics
    if isinstance(data, ImagesConfig):
        images = load_images(data)
        total = sum(len(part) for part in (images.train, images.valid, images.test))
        share = ", and each class has its share" if chosen.experiment.task.fits == "images" else ""
        parts = f"{len(images.test):,} to test and {len(images.valid):,} to validate"
        has_parts = bool(data.valid and data.test) or find_part_folders(Path(data.root) / data.train[0]).keys() >= {
            "valid",
            "test",
        }
        kept = (
            f"parts of their own: {parts}" if has_parts else f"held out: {parts}; identical ones stay together{share}"
        )
        yield f"{total:,} images; {kept}"
        return
    if not isinstance(data, TextDataConfig) or statistics is None:
        return
    if statistics.rows == 1:
        yield _describe_ends(data, statistics.characters)
        return
    corpus = load_corpus(chosen.experiment.task.task_class.adapt_data(data))
    test = len(corpus.test)
    listed = ((data.test, corpus.test, "to test"), (data.valid, corpus.valid, "to validate"))
    unpaired = chosen.experiment.task.unpaired
    same = "identical texts" if unpaired else "rows with the same source"
    apart = f"; {same} stay together"
    if chosen.experiment.task.fits == "labelled":
        apart += ", and each label has its share"
    rows = f"{statistics.rows:,} {'texts' if unpaired else 'rows'}"
    own = [f"{len(texts):,} {use}" for given, texts, use in listed if given and texts]
    held_out = [f"{len(texts):,} {use}" for given, texts, use in listed if not given and texts]
    line = f"{rows} to train on; parts of their own: {' and '.join(own)}" if own else rows
    yield f"{line}; held out: {' and '.join(held_out)}{apart}" if held_out else line
    if not test:
        yield f"no test part, as {statistics.rows} texts are few: scores are those of the validation part"
    if data.test and statistics.rows <= MAX_COMPARED:
        known = {fingerprint(source or target) for source, target in corpus.train}
        if repeated := sum(fingerprint(source or target) in known for source, target in corpus.test):
            yield f"warning: {repeated:,} of {test:,} test texts are in the training part, too: scores are too good"


def _describe_ends(data: TextDataConfig, characters: int) -> str:
    """What is held out of one text: its end, and what comes before that."""
    test = 0 if data.test else int(data.test_fraction * characters)
    valid = 0 if data.valid else min(int(data.valid_fraction * characters), MAX_VALID)
    parts = [f"{count:,} {part}" for count, part in ((valid, "to validate"), (test, "to test")) if count]
    if not parts:
        return f"{characters:,} characters to train on; validation and test have files of their own"
    held_out = f"held out: of {characters:,} characters, {' and then '.join(parts)}, at the end of the text"
    if test or data.test:
        return held_out
    return f"{held_out}; no test part, as the text is short: scores are those of the validation part"
