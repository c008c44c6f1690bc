"""`headwise import` and `headwise export`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headwise.cli.common import Checkpoint, With, log_to_stderr, say

Check = Annotated[
    bool,
    Parameter(negative="", help="Compare outputs with those of transformers; status 1 if they differ."),
]


def import_model(
    source: Path,
    run: Path | None = None,
    *,
    revision: Annotated[str, Parameter(help="Branch, tag or commit of a repository; main by default.")] = "",
    check: Check = False,
) -> None:
    """Import a Hugging Face folder (config.json and safetensors), a repository of the Hugging Face Hub, a GGUF file or
    an ARPA file of n-grams as a run.

    No code of the folder is executed, and no pickle is downloaded. The client huggingface_hub reads HF_HOME (its
    cache), HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE; info.json of the run keeps the commit. The run can be used,
    evaluated, fine-tuned and exported like any other.

    For example:

        headwise import gpt2 runs/gpt2
        headwise import HuggingFaceTB/SmolLM2-135M runs/smollm2
        headwise import google-bert/bert-base-uncased --revision main
        headwise import smollm2.gguf runs/smollm2
        headwise import trigrams.arpa runs/trigrams
        headwise import gpt2 --check

    Parameters
    ----------
    source
        A folder as `save_pretrained` writes it, a file whose name ends in .gguf or .arpa, or org/name, a repository.
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


def check_outputs(folder: Path, model: Any = None) -> None:
    """Print how far Headwise and transformers are apart; exit with status 1 if they differ."""
    from headwise.interop.hf.check import check_folder

    comparison = check_folder(folder, model)
    print(comparison)
    if not comparison.equal:
        raise SystemExit(1)


def export(
    run: Path,
    folder: Path,
    *,
    to: Annotated[Literal["hf", "ctranslate2", "arpa"], Parameter(help="Output format.")],
    int8: Annotated[bool, Parameter(negative="", help="For CTranslate2: store 8-bit weights.")] = False,
    check: Check = False,
    checkpoint: Checkpoint = "best",
    with_: With = None,
) -> None:
    """Export a run for other programs.

    For example:

        headwise export runs/mine mine-hf --to hf
        headwise export runs/mine mine-ct2 --to ctranslate2 --int8
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
    from headwise.experiment.convert import to_hf
    from headwise.experiment.load import load
    from headwise.inference.backends import explain_unsupported_model
    from headwise.utils.plugins import add_parts

    add_parts(with_ or ())
    loaded = load(run, which=checkpoint)
    if int8 and to != "ctranslate2":
        raise UserError("--int8: is for --to ctranslate2; leave it out")
    if check and to != "hf":
        raise UserError("--check: is for --to hf; leave it out")
    if to == "hf":
        if reason := to_hf(loaded, folder):
            say(f"written with Headwise's own config, which transformers cannot load: {reason}")
        elif check:
            check_outputs(folder, loaded.model)
        if reason and check:
            raise UserError(f"--check: {folder} cannot be compared, as transformers cannot load it; leave --check out")
    elif to == "arpa":
        from headwise.interop.arpa import export_arpa

        export_arpa(loaded, folder)
    else:
        if reason := explain_unsupported_model(loaded):
            raise UserError(f"--to ctranslate2: {reason}")
        from headwise.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(loaded.model, loaded.experiment.model, loaded.tokenisers, folder, int8)
    print(folder)
