"""Labels of a `config.json`: their names, and how a classifier's logits are read (`problem_type`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headwise.errors import UserError
from headwise.interop.hf.architecture import HfConfig

MAX_LABELS = 100_000


def read_labels(config: Mapping[str, Any], where: str) -> list[str]:
    """The labels in a `config.json`, in the order of their ids. As in `transformers`, `num_labels` wins over an
    `id2label` of another length."""
    id2label = config.get("id2label") or {}
    count = config.get("num_labels") or len(id2label) or 2
    if not isinstance(id2label, Mapping) or not all(str(key).isdecimal() for key in id2label):
        raise UserError(f"{where}: id2label: must name labels by their numbers, as {{'0': 'bad'}}; correct it")
    if not isinstance(count, int) or not 0 < count <= MAX_LABELS:
        raise UserError(f"{where}: num_labels: is {count!r}; it must be a number from 1 to {MAX_LABELS}")
    if len(id2label) != count:
        return [f"LABEL_{number}" for number in range(count)]
    return [str(id2label[key]) for key in sorted(id2label, key=int)]


def infer_classification_task(
    config: Mapping[str, Any], labels: Sequence[str], where: str
) -> tuple[str, dict[str, Any]]:
    """The task of a text classifier and its settings, as the pipeline of `transformers` reads `problem_type`: a single
    label without `problem_type` has a sigmoid, a regression of several numbers gives each its name."""
    problem_type, single = config.get("problem_type"), len(labels) == 1
    if problem_type == "regression":
        return ("regress", {}) if single else ("classify", {"function": "none"})
    if problem_type == "multi_label_classification" or (problem_type is None and single):
        return "classify", {"function": "sigmoid"}
    if problem_type in (None, "single_label_classification") and not single:
        return "classify", {}
    raise UserError(
        f"{where}: problem_type: {problem_type!r} with {len(labels)} labels is not supported; a "
        "single_label_classification has more than one, others are multi_label_classification and regression"
    )


def build_config_json(hf_config: HfConfig, class_name: str, labels: Sequence[str]) -> dict[str, Any]:
    """`config.json` without special token ids."""
    label_maps = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    data = hf_config.model_dump(mode="json") | {"architectures": [class_name], "dtype": "float32"}
    return data | (label_maps if labels else {})


def choose_problem_type(task: str, function: str, labels: Collection[str]) -> dict[str, str]:
    """`problem_type` of a classifier; empty for a softmax over several labels, the default of `transformers`."""
    if task == "regress" or function == "none":
        return {"problem_type": "regression"}
    if task in ("classify", "classify-images") and function == "softmax" and len(labels) == 1:
        raise UserError("labels: transformers reads a classifier of one label as yes or no; train it with two labels")
    return {"problem_type": "multi_label_classification"} if function == "sigmoid" and len(labels) > 1 else {}
