"""Write graphs as ONNX models or `torch.export` programs, and compare ONNX models with the model of torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from headwise.errors import UserError
from headwise.interop.graphs.engine import Session
from headwise.interop.graphs.forms import Form
from headwise.interop.graphs.graph import Graph, be_quiet
from headwise.utils.extras import needed_for

Target = Literal["onnx", "torch-export"]
OPSET = 22
WEIGHTS = "weights.bin"  # of all ONNX models of a folder; what two of them share is there once
SMALL = 1024  # bytes of a tensor that stays in the file of its model
TOLERANCE = 1e-4  # relative to the largest output


def write_graphs(form: Form, folder: Path, target: Target, int8: bool = False) -> None:
    """Write a file for each graph."""
    if target == "torch-export":
        for graph in form.graphs:
            torch.export.save(graph.trace(target), folder / f"{graph.name}.pt2")
        return
    with needed_for("ONNX"):
        import onnx  # noqa: F401  (missing packages are reported before anything is traced)
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    models = {graph.name: to_onnx(graph) for graph in form.graphs}
    save_models({name: quantize(model) for name, model in models.items()} if int8 else models, folder)


def save_models(models: Mapping[str, Any], folder: Path) -> None:
    """Write ONNX models by name, with one file for their weights."""
    import onnx_ir

    with (folder / WEIGHTS).open("wb") as file:
        store = WeightStore(file, folder)
        for model in models.values():
            store.move_weights(model)
    for name, model in models.items():
        onnx_ir.save(model, folder / f"{name}.onnx")


def to_onnx(graph: Graph) -> Any:
    """The ONNX model of a graph, an `onnx_ir.Model`, without inputs that nothing reads."""
    program = graph.trace("onnx")
    program._guards_code = []  # assertions on sizes, which torch 2.13 mixes up where one argument has several tensors
    with be_quiet():
        try:
            exported = torch.onnx.export(
                program,
                (),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(graph.examples[0]),
                output_names=list(graph.outputs),
            )
        except Exception as error:
            text = " ".join(str(error.__cause__ or error).split())[:200]
            raise UserError(
                f"--to onnx: this model has an operator that ONNX does not have ({text}); use --to torch-export"
            ) from error
    assert exported is not None
    remove_details(exported.model)
    return exported.model


def remove_details(model: Any) -> None:
    """Remove inputs that nothing reads, stack traces, which name files of this machine, and the shapes of intermediate
    values, which runtimes infer."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    inputs, outputs = model.graph.inputs, set(model.graph.outputs)
    for value in [value for value in inputs if not value.uses()]:
        inputs.remove(value)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            value.metadata_props.clear()
            if value not in outputs:
                value.shape = None
    ClearMetadataAndDocStringPass()(model)


class WeightStore:
    """A file that has the weights of several ONNX models, equal ones once."""

    def __init__(self, file: Any, folder: Path):
        self.file, self.folder = file, folder
        self.offsets: dict[bytes, int] = {}

    def move_weights(self, model: Any) -> None:
        """Move the weights of a model to the file, but for small ones."""
        import onnx_ir

        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor.nbytes < SMALL:
                continue
            data = tensor.tobytes()
            key = hashlib.sha256(data).digest()
            if key not in self.offsets:
                self.offsets[key] = self.file.tell()
                self.file.write(data + bytes(-len(data) % 64))  # aligned, so that a runtime can map it
            value.const_value = onnx_ir.ExternalTensor(
                WEIGHTS,
                self.offsets[key],
                len(data),
                tensor.dtype,
                shape=tensor.shape,
                name=tensor.name,
                base_dir=self.folder,
            )


def quantize(model: Any) -> Any:
    """The ONNX model with 8-bit weights, by dynamic quantisation of onnxruntime."""
    import onnx_ir
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx_ir.to_proto(model)
    del model.graph.value_info[:]  # shapes of weights, which quantisation transposes
    with TemporaryDirectory() as folder, be_quiet():
        file = Path(folder, "int8.onnx")
        # per channel, as one range for a whole matrix loses precision; 7 bits, as sums of 8-bit products overflow on
        # CPUs without VNNI
        # matrices alone: where a table is also transposed for the head, quantised look-ups give invalid models
        quantize_dynamic(
            model,
            file,
            op_types_to_quantize=["MatMul"],
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
        )
        return onnx_ir.external_data.load_to_model(onnx_ir.load(file))


def compare(form: Form, folder: Path) -> Iterator[tuple[str, float]]:
    """The name of each output of each example, and its difference relative to the largest output."""
    for graph in form.graphs:
        session = Session(folder / f"{graph.name}.onnx")
        for example in graph.examples:
            expected, given = graph.run(example), session.run(example)
            for name, value in expected.items():
                scale = max(1.0, float(value.float().abs().max()))
                yield f"{graph.name}.{name}", float((given[name].float() - value.float()).abs().max()) / scale


def measure_difference(form: Form, folder: Path) -> tuple[str, float]:
    """The output with the largest relative difference between torch and onnxruntime, and that difference."""
    return max(compare(form, folder), key=lambda item: item[1])


def check_outputs(form: Form, folder: Path, exact: bool = True) -> float:
    """The largest relative difference between torch and onnxruntime; if `exact`, more than rounding is refused."""
    try:
        name, difference = measure_difference(form, folder)
    except UserError as error:
        if exact:
            raise
        raise UserError(
            f"--int8: onnxruntime cannot run what its quantisation makes of this model ({error}); leave it out"
        ) from None
    if exact and not difference <= TOLERANCE:
        raise UserError(
            f"--to onnx: onnxruntime computes {name} with a relative difference of {difference:.1e} from torch, more "
            f"than {TOLERANCE:.0e}; use --to torch-export"
        )
    return difference
