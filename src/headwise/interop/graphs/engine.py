"""ONNX models in the place of a model of torch, run by onnxruntime on the CPU. Extra: `onnx`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError
from headwise.interop.graphs.graph import Tensors
from headwise.models.detector import Detections
from headwise.utils.extras import needed_for


class Session:
    """An ONNX model, opened in onnxruntime."""

    def __init__(self, file: Path, threads: int = 1):
        with needed_for("ONNX"):
            import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        try:
            self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise UserError(f"{file}: onnxruntime cannot load it ({text}); export the run again") from None
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]

    def run(self, tensors: Tensors) -> dict[str, Tensor]:
        """The outputs by name; inputs that the model does not read are left out."""
        arrays = self.session.run(None, {name: tensors[name].contiguous().numpy() for name in self.inputs})
        return {name: torch.from_numpy(array) for name, array in zip(self.outputs, arrays, strict=True)}


class OnnxModel(nn.Module):
    """Base of models that onnxruntime runs, with the attributes of the exported model."""

    graphs: ClassVar[tuple[str, ...]] = ("model",)  # the names of their files

    def __init__(self, sessions: Mapping[str, Session], attributes: Mapping[str, Any]):
        super().__init__()
        self.sessions = dict(sessions)
        self.attributes = dict(attributes)

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__.get("attributes", {})
        return attributes[name] if name in attributes else super().__getattr__(name)


class ForwardModel(OnnxModel):
    """A model that is called with ids or pixels."""

    def forward(self, inputs: Tensor) -> Tensor | Detections:
        session = self.sessions["model"]
        outputs = session.run(dict.fromkeys(session.inputs, inputs))
        return outputs["logits"] if len(outputs) == 1 else Detections(**outputs)

    def predict_masked(self, ids: Tensor, masked: Tensor) -> Tensor:
        """As that of `MaskedLanguageModel`."""
        logits = self(ids)
        assert isinstance(logits, Tensor)
        return logits[masked]


class StatesModel(OnnxModel):
    """A text encoder, without a head."""

    def __init__(self, sessions: Mapping[str, Session], attributes: Mapping[str, Any]):
        super().__init__(sessions, attributes)
        self.encoder = StatesEncoder(self.sessions["model"])


class StatesEncoder(nn.Module):
    """Last hidden states by onnxruntime."""

    def __init__(self, session: Session):
        super().__init__()
        self.session = session

    def forward(self, ids: Tensor, ctx: Context) -> Stream:
        outputs = self.session.run({"ids": ids})
        return replace(Stream.of(outputs["x"]), keep=outputs["keep"])


MODELS: dict[str, type[OnnxModel]] = {"forward": ForwardModel, "states": StatesModel}


def open_model(folder: Path, table: Mapping[str, Any], threads: int = 1) -> OnnxModel:
    """The model of a folder that `write_graphs` wrote; `table` has its form and its attributes."""
    kind, attributes = table.get("kind"), table.get("attributes")
    if kind not in MODELS or not isinstance(attributes, dict):
        raise UserError(f"{folder / 'config.json'}: graphs: is not that of an ONNX folder; export the run again")
    sessions = {file.stem: Session(file, threads) for file in sorted(folder.glob("*.onnx"))}
    if set(sessions) != set(MODELS[kind].graphs):
        needed = ", ".join(f"{name}.onnx" for name in MODELS[kind].graphs)
        raise UserError(f"{folder}: must have {needed}; export the run again")
    return MODELS[kind](sessions, attributes)
