"""What is held out of a user's data, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwise.autofit.plan import Plan
from headwise.data.config import TextDataConfig
from headwise.data.corpora import load_corpus
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
    corpus = load_corpus(chosen.experiment.task.task_class.adapt_data(data))
    valid, test = len(corpus.valid), len(corpus.test)
    if data.format == "text" and len(data.train) == 1 and not Path(data.root, data.train[0]).expanduser().is_dir():
        yield "held out: the end of the text, for validation"
        return
    parts = [f"{count:,} {part}" for count, part in ((test, "to test"), (valid, "to validate")) if count]
    unpaired = chosen.experiment.task.unpaired
    same = "identical texts" if unpaired else "rows with the same source"
    apart = "" if data.valid and data.test else f"; {same} stay together"
    if apart and chosen.experiment.task.fits == "labelled":
        apart += ", and each label has its share"
    yield f"{statistics.rows:,} {'texts' if unpaired else 'rows'}; held out: {' and '.join(parts)}{apart}"
    if data.test and statistics.rows <= MAX_COMPARED:
        known = {fingerprint(source or target) for source, target in corpus.train}
        if repeated := sum(fingerprint(source or target) in known for source, target in corpus.test):
            yield f"warning: {repeated:,} of {test:,} test texts are in the training part, too: scores are too good"
