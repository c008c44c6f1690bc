"""What is held out of a user's data, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.autofit.plan import Plan
from headwise.data.config import TextDataConfig
from headwise.data.corpora import MAX_VALID, load_corpus
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
        held_out = f"{len(images.test):,} to test and {len(images.valid):,} to validate"
        share = ", and each class has its share" if chosen.experiment.task.labelled else ""
        yield f"{total:,} images; held out: {held_out}; identical ones stay together{share}"
        return
    if not isinstance(data, TextDataConfig) or statistics is None:
        return
    if statistics.rows == 1:
        yield _describe_ends(data, statistics.characters)
        return
    corpus = load_corpus(chosen.experiment.task.task_class.adapt_data(data))
    valid, test = len(corpus.valid), len(corpus.test)
    parts = [f"{count:,} {part}" for count, part in ((test, "to test"), (valid, "to validate")) if count]
    unpaired = chosen.experiment.task.unpaired
    same = "identical texts" if unpaired else "rows with the same source"
    apart = f"; {same} stay together"
    if chosen.experiment.task.fits == "labelled":
        apart += ", and each label has its share"
    rows = f"{statistics.rows:,} {'texts' if unpaired else 'rows'}"
    if data.valid and data.test:
        yield f"{rows} to train on; parts of their own: {' and '.join(parts)}"
    else:
        yield f"{rows}; held out: {' and '.join(parts)}{apart}"
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
    held_out = f"held out: of {characters:,} characters, {' and then '.join(parts)}, at the end of the text"
    if test or data.test:
        return held_out
    return f"{held_out}; no test part, as the text is short: scores are those of the validation part"
