"""GLUE (Wang et al. 2019): the folder, columns and validation file of each task."""

from __future__ import annotations

from headwise.data.readers.base import Columns

# The label is the last column. Labels of the test files are secret, so the validation part is scored.
GLUE: dict[str, tuple[str, Columns, str]] = {
    "cola": ("CoLA", (4, 2), "dev"),
    "sst-2": ("SST-2", ("sentence", "label"), "dev"),
    "mrpc": ("MRPC", ("#1 String", "#2 String", "Quality"), "dev"),
    "sts-b": ("STS-B", ("sentence1", "sentence2", "score"), "dev"),
    "qqp": ("QQP", ("question1", "question2", "is_duplicate"), "dev"),
    "mnli": ("MNLI", ("sentence1", "sentence2", "gold_label"), "dev_matched"),
    "qnli": ("QNLI", ("question", "sentence", "label"), "dev"),
    "rte": ("RTE", ("sentence1", "sentence2", "label"), "dev"),
    "wnli": ("WNLI", ("sentence1", "sentence2", "label"), "dev"),
}
