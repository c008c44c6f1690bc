"""Load trained models: run folders, folders of other programs, ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from headwise.config.plugins import list_own_sources, use_kept_parts
from headwise.decode.ensemble import Ensemble
from headwise.embeddings.tables import find_tables
from headwise.embeddings.vectors import Vectors
from headwise.errors import UserError
from headwise.experiment.config import Experiment, parse_experiment
from headwise.experiment.convert import from_gguf, from_hf
from headwise.inference.trained_model import TrainedModel
from headwise.models.build import check_memory
from headwise.runs import Run
from headwise.runs.checkpoint import load_weights, restore
from headwise.runs.parts import read_parts
from headwise.text import UNK
from headwise.text.tokenisers import Tokenisers
from headwise.tuning.config import TuningConfig
from headwise.tuning.lora import add_lora, merge_lora


def load(
    source: str | Path | Sequence[str | Path],
    *,
    which: str = "best",
    device: str | torch.device = "cpu",
    trust: bool = False,
    data_root: str | Path = "",
) -> TrainedModel:
    """A run folder, a Hugging Face folder, a GGUF file, or several runs as one ensemble.

    `which` names the checkpoint: best, last, average (of the last few) or step-N. A run that was trained with parts of
    its own keeps their code, which is executed only with `trust`, or if `headwise.use_parts` imported the same file.
    `data_root` is the folder that has the data of the run, if they are neither beside it nor where they were;
    `evaluate` needs them, loading does not.
    """
    if not isinstance(source, str | Path):
        members = [load(member, which=which, device=device, trust=trust, data_root=data_root) for member in source]
        first = members[0]
        if len(members) == 1:
            return first
        if any(member.tokenisers.to_json() != first.tokenisers.to_json() for member in members):
            raise UserError("the runs of an ensemble must have the same tokenisers; train them from the same data")
        return replace(first, model=Ensemble([member.model for member in members]))
    path = Path(source)
    if path.suffix == ".gguf":
        return from_gguf(path).to(device)
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder; name a run (see `headwise runs`)")
    if (path / "config.json").is_file() and not (path / "config.toml").is_file():
        return from_hf(path, trust=trust).to(device)
    run = Run.open(path)
    experiment = read_experiment(run, trust)
    tokenisers = Tokenisers.load(run.tokenizer)
    task = experiment.create_task(tokenisers)
    check_memory(
        lambda: task.build(experiment.model), experiment.model.model_dump(), 1, f"{path / 'config.toml'}: model"
    )
    model = task.build(experiment.model)
    add_lora(model, experiment.tuning.lora)
    restore(model, load_weights(run, which), str(path))
    if experiment.tuning.lora.rank:  # fold LoRA into the weights: only training keeps it apart
        merge_lora(model)
        experiment = experiment.replace(tuning=TuningConfig())
    return TrainedModel(model.to(device).eval(), tokenisers, experiment, run, data_root)


def read_experiment(run: Run, trust: bool = False) -> Experiment:
    """The experiment of a run, after its own parts are imported, if they are trusted."""
    run.verify()
    use_kept_parts(read_parts(run.path, list_own_sources()), run.path, trust)
    try:
        return parse_experiment(run.config, str(run.path / "config.toml"))
    except UserError as error:
        if " is called '" not in str(error):
            raise
        raise UserError(f"{error}; if it is your own, name its file with --with") from None


def load_vectors(source: str | Path) -> Vectors:
    """The word vectors of a run (with two sides, those of its source), or of a word2vec text file."""
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"{path}: there is no such run or file; name a run (`headwise runs`) or a word2vec text file")
    if not path.is_dir():
        return Vectors.read(path)
    loaded = load(path)
    table, tokeniser = next(find_tables(loaded.model, loaded.tokenisers), (None, None))
    if table is None or tokeniser is None:
        raise UserError(f"{path}: this run has no word vectors; name one that was trained to embed")
    return Vectors(tuple(tokeniser.vocabulary[UNK + 1 :]), table.detach().cpu().numpy()[UNK + 1 :], str(path))
