"""GLUE and SuperGLUE (Wang et al. 2019a, 2019b): the folder, columns and validation file of each task.

The label is the last column. Labels of the test files are secret, so the validation part is scored.
"""

from __future__ import annotations

from headwise.data.readers.base import Columns

# Tables with tabs between columns, named or numbered from 1.
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

# JSON lines. A task with more than two texts has all of them in one source: the word of WiC before its sentences, the
# mention of WSC before the pronoun. Spans of WSC and WiC are given by their texts, not by their places.
SUPERGLUE: dict[str, tuple[str, Columns]] = {
    "boolq": ("BoolQ", ("question", "passage", "label")),
    "cb": ("CB", ("premise", "hypothesis", "label")),
    "copa": ("COPA", ("premise", "question", "choice1", "choice2", "label")),
    "rte": ("RTE", ("premise", "hypothesis", "label")),
    "wic": ("WiC", ("word", "sentence1", "sentence2", "label")),
    "wsc": ("WSC", ("text", "target.span1_text", "target.span2_text", "label")),
}
