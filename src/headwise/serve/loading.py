"""Load a model as a worker serves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from headwise.errors import UserError
from headwise.experiment.load import load
from headwise.inference.backends import choose_backend
from headwise.inference.trained_model import TrainedModel
from headwise.serve.chat import ChatTemplate, read_chat_template
from headwise.serve.verbs import list_verbs
from headwise.train.hardware import choose_device, tune_allocator

ServeEngine = Literal["native", "int8", "ctranslate2", "onnx"]


def load_for_serving(spec: dict[str, Any]) -> tuple[TrainedModel, ChatTemplate | None]:
    """The model on its engine, and its chat template."""
    tune_allocator()
    if spec["threads"]:
        torch.set_num_threads(spec["threads"])
    path = Path(spec["path"])
    try:
        trained = load(path, which=spec["checkpoint"], device=choose_device(spec["device"]))
    except UserError:
        raise
    except Exception as error:  # a damaged folder
        raise UserError(f"{path}: cannot be opened ({type(error).__name__}: {error})") from error
    if not list_verbs(trained):
        raise UserError(
            f"{path}: was trained to {trained.experiment.task.kind}, which is not served over HTTP; name another run"
        )
    trained = put_on_engine(trained, spec["engine"], spec["threads"])
    file = Path(spec["chat_template"]) if spec["chat_template"] else None
    chat = None
    if trained.experiment.task.writes == "continuation" and trained.experiment.task.reads == "texts":
        chat = read_chat_template(path if path.is_dir() else path.parent, file, trained.build_decode_config().marked)
    return trained, chat


def put_on_engine(trained: TrainedModel, engine: ServeEngine, threads: int) -> TrainedModel:
    """`native` is the model itself, which may be an exported folder, `int8` its 8-bit weights; the others are libraries
    that compute its outputs."""
    if engine == "native":
        return trained
    int8 = engine == "int8"
    return choose_backend(
        trained, "native" if engine == "int8" else engine, int8, threads or 1, trained.build_decode_config()
    )
