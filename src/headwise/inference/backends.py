"""Backends: the model of torch, its int8 form, CTranslate2 or onnxruntime."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch
from torch import nn

from headwise.blocks.evaluation import get_device
from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.ensemble import Ensemble
from headwise.errors import UserError
from headwise.inference.trained_model import WITHOUT_TEXT, TrainedModel
from headwise.interop.graphs.engine import OnnxModel, open_model
from headwise.interop.graphs.forms import Form, list_graphs
from headwise.interop.graphs.write import write_graphs
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.utils.extras import describe_missing

Engine = Literal["auto", "native", "ctranslate2", "onnx"]
log = logging.getLogger(__name__)


def choose_backend(
    loaded: TrainedModel,
    engine: Engine = "auto",
    int8: bool = False,
    threads: int = 1,
    config: DecodeConfig = GREEDY,
    states: bool = False,
) -> TrainedModel:
    """The model on another backend; `auto` takes CTranslate2 if it is installed and supports model and settings, and
    onnxruntime for an exported folder. `states` asks for hidden states of texts instead of the model's outputs."""
    if engine == "onnx" or isinstance(loaded.model, OnnxModel):
        return put_on_onnx(loaded, engine, int8, threads, config, states)
    reason = explain_unsupported_settings(config) or explain_unsupported_model(loaded)
    if engine == "ctranslate2" and reason:
        raise UserError(f"--engine ctranslate2: {reason}; use --engine native")
    inexact = int8 and engine != "native" and overflows()
    if engine == "ctranslate2" or (engine == "auto" and not reason and not inexact):
        from headwise.interop.ctranslate2 import CTranslate2Engine

        if inexact:
            log.warning(
                "the int8 products of CTranslate2 may overflow on this CPU and give wrong outputs; "
                "use --engine native, or leave out --int8"
            )
        return replace(loaded, model=CTranslate2Engine.from_trained(loaded, int8=int8, threads=threads))
    if int8:
        from headwise.decode.int8 import quantize

        return replace(loaded, model=quantize(loaded.model))
    if isinstance(loaded.model, nn.Module) and get_device(loaded.model).type == "cpu":
        from headwise.decode.int8_screen import prepare_for_cpu

        return replace(loaded, model=prepare_for_cpu(loaded.model, config))
    return loaded


def put_on_onnx(
    loaded: TrainedModel, engine: Engine, int8: bool, threads: int, config: DecodeConfig, states: bool
) -> TrainedModel:
    """The model on onnxruntime: that of an exported folder, or one that is exported to a temporary folder."""
    if config.coverage_penalty or config.replace_unknown:
        raise UserError(
            "--engine onnx: it does not return attention, which coverage_penalty and replace_unknown read; "
            "use --engine native"
        )
    if isinstance(loaded.model, OnnxModel):
        if engine not in ("auto", "onnx"):
            raise UserError(f"--engine {engine}: this folder has ONNX models alone; use --engine onnx, or name the run")
        if int8:
            raise UserError("--int8: this folder has its weights as they were exported; export the run with --int8")
        return loaded
    if get_device(loaded.model).type != "cpu":
        raise UserError("--engine onnx: it runs on the CPU; use --device cpu")
    form = list_graphs_of(loaded, "--engine onnx", states)
    with TemporaryDirectory() as folder:
        write_graphs(form, Path(folder), "onnx", int8)
        return replace(loaded, model=open_model(Path(folder), form.table, threads).eval())


def list_graphs_of(loaded: TrainedModel, option: str, states: bool = False) -> Form:
    """The graphs of a trained model; `option` is named where it has none."""
    task = loaded.experiment.task
    if reason := WITHOUT_TEXT.get(task.reads):
        raise UserError(f"{option}: this run {reason}; only models of texts and images become graphs")
    states = states or task.command == "embed"
    if not isinstance(loaded.model, nn.Module) or isinstance(loaded.model, Ensemble | OnnxModel):
        raise UserError(f"{option}: takes a single neural model; name one run")
    if states and not hasattr(loaded.model, "encoder"):
        raise UserError(f"{option}: this run has no encoder whose hidden states could be read; name another run")
    return list_graphs(loaded.model, states, loaded.task.image, loaded.tokenisers.source.size, option)


def overflows() -> bool:
    """Whether this CPU adds int8 products in 16 bits. CTranslate2 on oneDNN does not guard against the overflow: 80 of
    1,500 words of a small trained model differed, 21 with exact sums, and all of a large random one."""
    from headwise.decode import int8

    return torch.backends.quantized.engine != "none" and int8.overflows()


def explain_unsupported_settings(config: DecodeConfig) -> str:
    """Which decoding setting CTranslate2 does not support; empty if it supports all."""
    if config.search == "sample":
        return "its samples differ from those of the native engine"
    if config.processes_logits:
        return "it has no stop strings, other logits processors, early stopping or convention 'generate'"
    if config.coverage_penalty:
        return "it has no coverage penalty"
    return "it does not return the attention that replaces unknown words" if config.replace_unknown else ""


def explain_unsupported_model(loaded: TrainedModel) -> str:
    """Why CTranslate2 cannot run this model; empty if it can."""
    from headwise.interop.ctranslate2 import find_unsupported

    if not isinstance(loaded.model, EncoderDecoder):
        return "it runs single encoder-decoder models only"
    if get_device(loaded.model).type != "cpu":
        return "the model is not on the CPU"
    if reason := find_unsupported(loaded.experiment.model):
        return reason
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        return describe_missing("ctranslate2")
    return ""
