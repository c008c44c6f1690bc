"""ONNX models in the place of a model of torch, run by onnxruntime on the CPU. Extra: `onnx`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.blocks.stream import Context, Stream
from headwise.errors import UserError
from headwise.interop.graphs.graph import Tensors
from headwise.interop.graphs.steps import NEW
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
        inputs = {name: tensors[name].contiguous().numpy() for name in self.inputs}
        try:
            arrays = self.session.run(None, inputs)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            shapes = ", ".join(f"{name} {array.shape}" for name, array in list(inputs.items())[:2])
            raise UserError(
                f"onnxruntime fails on {shapes}, which may be longer than the model reads: {text}; shorten the text"
            ) from None
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


@dataclass(slots=True)
class StepState:
    """The state of step-by-step decoding: memory and KV cache, and how many tokens each row has read."""

    rows: int
    prompt: Tensor  # (R, P) of the first step, before its last token
    tensors: dict[str, Tensor]  # rows are in the first dimension
    length: int = 0

    def select(self, rows: Tensor) -> StepState:
        """The state of `rows`, in that order."""
        tensors = {name: value.index_select(0, rows) for name, value in self.tensors.items()}
        return StepState(len(rows), self.prompt.index_select(0, rows), tensors, self.length)

    def join(self, other: StepState) -> StepState:
        raise UserError("join: rows of ONNX models have one length; decode them in separate states")


class StepModel(OnnxModel):
    """A model that generates token by token: a `Generator`."""

    graphs = ("first", "step")
    joins = False

    @property
    def ragged(self) -> bool:
        """Prompts of a batch have one length; the padding of an encoder's sources is masked."""
        return "encoder" in self.sessions

    def start(self, source: Tensor, beams: int = 1) -> StepState:
        """Run the encoder, or keep the prompts for the first step."""
        rows = source.shape[0] * beams
        if "encoder" not in self.sessions:
            return StepState(rows, source.repeat_interleave(beams, 0), {})  # (B, P) -> (R, P)
        memory = self.sessions["encoder"].run({"source": source})
        tensors = {name: value.repeat_interleave(beams, 0) for name, value in memory.items()}
        return StepState(rows, torch.empty(rows, 0, dtype=torch.long), tensors)

    def step(self, tokens: Tensor, state: StepState) -> tuple[Tensor, StepState]:
        """One token for each row, (R,) -> logits of the next, (R, V)."""
        ids = torch.cat((state.prompt, tokens.unsqueeze(1)), dim=1)  # (R, P + 1)
        session = self.sessions["step" if state.length else "first"]
        position = torch.tensor([state.length])
        outputs = session.run({"ids": ids, "position": position, **state.tensors})
        logits = outputs.pop("logits")
        cache = {name.removeprefix(NEW): value for name, value in outputs.items()}
        prefix = 0 if state.length else self.attributes["prefix"]
        length = state.length + ids.shape[1] + prefix
        return logits, StepState(state.rows, ids[:, :0], {**state.tensors, **cache}, length)


MODELS: dict[str, type[OnnxModel]] = {"forward": ForwardModel, "states": StatesModel, "steps": StepModel}


def open_model(folder: Path, table: Mapping[str, Any], threads: int = 1) -> OnnxModel:
    """The model of a folder that `write_graphs` wrote; `table` has its form and its attributes."""
    kind, attributes = table.get("kind"), table.get("attributes")
    if kind not in MODELS or not isinstance(attributes, dict):
        raise UserError(f"{folder / 'config.json'}: graphs: is not that of an ONNX folder; export the run again")
    sessions = {file.stem: Session(file, threads) for file in sorted(folder.glob("*.onnx"))}
    if not set(MODELS[kind].graphs) <= set(sessions):
        needed = ", ".join(f"{name}.onnx" for name in MODELS[kind].graphs)
        raise UserError(f"{folder}: must have {needed}; export the run again")
    return MODELS[kind](sessions, attributes)
