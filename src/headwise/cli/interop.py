"""`headwise import` and `headwise export`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, log_to_stderr, say

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

Check = Annotated[
    bool,
    Parameter(
        negative="", help="Compare outputs and answers with those of transformers or timm; status 1 if they differ."
    ),
]


def import_model(
    source: Path,
    run: Path | None = None,
    *,
    revision: Annotated[str, Parameter(help="Branch, tag or commit of a repository; main by default.")] = "",
    check: Check = False,
) -> None:
    """Import a Hugging Face folder of transformers or timm (config.json and safetensors), a repository of the Hugging
    Face Hub, a GGUF file or an ARPA file of n-grams as a run.

    No code of the folder is executed, and no pickle is downloaded. The client huggingface_hub reads HF_HOME (its
    cache), HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE; info.json of the run keeps the commit. The run can be used,
    evaluated, fine-tuned and exported like any other.

    For example:

        headwise import gpt2 runs/gpt2
        headwise import timm/mixer_b16_224.goog_in21k_ft_in1k runs/mixer
        headwise import HuggingFaceTB/SmolLM2-135M runs/smollm2
        headwise import google-bert/bert-base-uncased --revision main
        headwise import smollm2.gguf runs/smollm2
        headwise import trigrams.arpa runs/trigrams
        headwise import gpt2 --check

    Parameters
    ----------
    source
        A folder as `save_pretrained` or timm's `save_for_hf` writes it, a file whose name ends in .gguf or .arpa, or
        org/name, a repository.
    run
        The new run folder, for a repository runs/NAME by default; with --check it may be left out, and nothing is
        written.
    """
    log_to_stderr(logging.INFO)  # unused tensors are logged
    from headwise.errors import UserError
    from headwise.experiment.convert import from_arpa, from_gguf, from_hf
    from headwise.interop.hf.hub import find_folder, is_repository

    if revision and source.suffix in (".arpa", ".gguf"):
        raise UserError("--revision: is for repositories of the Hugging Face Hub; leave it out")
    if check and source.suffix in (".arpa", ".gguf"):
        raise UserError("--check: is for Hugging Face folders; leave it out")
    if check:
        check_outputs(find_folder(source, revision).path)
    if run is None and is_repository(source, revision) and not check:
        run = Path("runs") / source.name
    if run is None:
        if not check:
            raise UserError("name the run folder to write, as in headwise import gpt2 runs/gpt2")
        return
    if source.suffix in (".arpa", ".gguf"):
        loaded = (from_arpa if source.suffix == ".arpa" else from_gguf)(source)
    else:
        loaded = from_hf(source, revision)
    loaded.save(run)
    say(f"to use it: headwise {loaded.experiment.task.command} {run}")
    print(run)


def check_outputs(folder: Path, exported: TrainedModel | None = None) -> None:
    """Print how far Headwise and transformers, or timm, are apart, for given ids and for texts; exit with status 1 if
    they differ."""
    from headwise.experiment.convert import to_trained_model
    from headwise.interop.hf.check import check_folder

    if exported is None:
        comparison = check_folder(folder, None, to_trained_model)
    else:
        comparison = check_folder(folder, exported.model, lambda *_: exported)
    print(comparison)
    if not comparison.equal:
        raise SystemExit(1)


def export(
    run: Path,
    folder: Path,
    *,
    to: Annotated[
        Literal["hf", "timm", "ctranslate2", "onnx", "torch-export", "arpa"], Parameter(help="Output format.")
    ],
    model_type: Annotated[
        str, Parameter(name="--as", help="For hf: the model_type to write, such as xlm-roberta instead of roberta.")
    ] = "",
    int8: Annotated[bool, Parameter(negative="", help="For CTranslate2 and ONNX: store 8-bit weights.")] = False,
    check: Annotated[
        bool,
        Parameter(
            negative="",
            help="Compare outputs with those of transformers, timm or onnxruntime; status 1 if they differ.",
        ),
    ] = False,
    checkpoint: Checkpoint = "best",
) -> None:
    """Export a run for other programs.

    --to hf writes a folder that transformers loads; MLP-Mixer, CaiT and VOLO, which it does not have, and models that
    were imported from timm are written in timm's layout. --to timm writes that layout only.

    --to onnx writes a folder of ONNX models, which onnxruntime runs without the run, and the commands of Headwise, too
    (headwise classify FOLDER ...). Its outputs are compared with those of torch before it appears. --to torch-export
    writes the same graphs as programs of torch.export, for other programs.

    For example:

        headwise export runs/mine mine-hf --to hf
        headwise export runs/xlmr xlmr-hf --to hf --as xlm-roberta
        headwise export runs/levit levit-timm --to timm
        headwise export runs/mine mine-ct2 --to ctranslate2 --int8
        headwise export runs/polarity polarity-onnx --to onnx --check
        headwise export runs/mine mine-programs --to torch-export
        headwise export runs/shakespeare-ngram shakespeare.arpa --to arpa

    Parameters
    ----------
    run
        A run folder.
    folder
        The folder (or .arpa file) to write; it must not exist yet.
    """
    log_to_stderr()
    from headwise.errors import UserError
    from headwise.experiment.load import load
    from headwise.inference.backends import explain_unsupported_model

    loaded = load(run, which=checkpoint)
    if int8 and to not in ("ctranslate2", "onnx"):
        raise UserError("--int8: is for --to ctranslate2 and --to onnx; leave it out")
    if model_type and to != "hf":
        raise UserError("--as: is for --to hf; leave it out")
    if check and to not in ("hf", "timm", "onnx"):
        raise UserError("--check: is for --to hf, --to timm and --to onnx; leave it out")
    if to in ("hf", "timm"):
        export_folder(loaded, folder, "timm" if to == "timm" else "auto", model_type, check)
    elif to in ("onnx", "torch-export"):
        export_graphs(loaded, folder, to, int8, check)
    elif to == "arpa":
        from headwise.interop.arpa import export_arpa

        export_arpa(loaded, folder)
    else:
        if reason := explain_unsupported_model(loaded):
            raise UserError(f"--to ctranslate2: {reason}")
        from headwise.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(loaded.model, loaded.experiment.model, loaded.tokenisers, folder, int8)
    print(folder)


def export_graphs(
    loaded: TrainedModel, folder: Path, to: Literal["onnx", "torch-export"], int8: bool, check: bool
) -> None:
    """Write a folder of graphs, and say how far their outputs are from those of the model."""
    from headwise.experiment.graph_folder import write_graph_folder

    difference = write_graph_folder(loaded, folder, to, int8)
    if to == "onnx":
        say(f"outputs of onnxruntime on random inputs: largest relative difference {difference:.1e}")
    if int8 or check:
        from headwise.experiment.graph_check import compare_answers, compare_scores

        if int8 and (scores := compare_scores(loaded, folder)):
            print(scores)
        if check:
            comparison = compare_answers(loaded, folder)
            print(comparison)
            if not comparison.equal and not int8:
                raise SystemExit(1)


def export_folder(loaded: Any, folder: Path, layout: Literal["auto", "timm"], model_type: str, check: bool) -> None:
    """Write a folder of transformers or timm, and say which; with `check`, compare its outputs."""
    from headwise.errors import UserError
    from headwise.experiment.convert import to_hf
    from headwise.interop.folders import read_json
    from headwise.interop.timm import is_timm_config

    if reason := to_hf(loaded, folder, layout, model_type):
        say(f"written with Headwise's own config, which Headwise reads and transformers cannot load: {reason}")
        if check:
            raise UserError(f"--check: {folder} cannot be compared, as transformers cannot load it; leave --check out")
        return
    if is_timm_config(read_json(folder / "config.json")):
        say(f"written in timm's layout: timm.create_model('local-dir:{folder}', pretrained=True) loads it")
    else:
        (name,) = read_json(folder / "config.json")["architectures"]
        say(f"written as {name} of transformers")
    if check:
        check_outputs(folder, loaded)
