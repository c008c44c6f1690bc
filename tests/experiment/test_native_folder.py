"""What the catalogue trains can be exported: as a folder of `transformers`, or with our own config. Either is read back
as the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.catalog import CATALOG
from headwise.cli.main import main
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.convert import from_hf, to_hf
from headwise.inference.trained_model import TrainedModel
from headwise.tasks.tables import task_config
from headwise.testing import assert_parity
from headwise.text import SPECIALS
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels, Words
from headwise.vision.pixels import Pixels

LETTERS = Characters("abcdefghijkl")
NAMES = ["bad", "good"]
TARGETS = {"tag": Words(NAMES), "classify": Labels(NAMES), "classify-images": Labels(NAMES), "detect": Labels(NAMES)}
IMAGES = ("classify-images", "detect", "caption")
DATA = {  # by what tasks read; chains are generated
    "texts": {"train": "texts.txt"}, "images": {"name": "digits"}, "chains": {}, "episodes": {"train": "log"},
    "environment": {"name": "catch"}, "graphs": {"name": "rnnlm-2"},
}  # fmt: skip
TRAINED = [(name, task) for name, entry in sorted(CATALOG.items()) for task in entry.config.tasks if task != "encode"]
EXPRESSIBLE = {  # tiny models that transformers loads
    "albert masked", "albert tag", "bart transduce", "bert answer", "bert classify", "decision-transformer act",
    "deit classify-images", "fnet masked", "gpt language-model", "gpt2 language-model", "llama language-model",
    "resnet classify-images", "swin classify-images", "switch transduce", "t5 transduce", "transformer transduce",
    "vit classify-images",
}  # fmt: skip


def build_random_run(name: str, task: str) -> TrainedModel:
    """A tiny model with random weights, as if it had been trained."""
    torch.manual_seed(0)
    entry = CATALOG[name]
    tokenisers = Tokenisers(LETTERS, TARGETS.get(task, LETTERS))
    if task in IMAGES:
        tokenisers = Tokenisers(Pixels(*entry.configure("tiny").image, 3, (0.5,) * 3, (0.5,) * 3), tokenisers.target)
    elif task == "answer":
        tokenisers = tokenisers.accept_pairs()
    model = {**entry.sizes["tiny"], "kind": entry.config.model_fields["kind"].default}
    data = DATA[task_config(task).reads]
    experiment = parse_experiment({"task": task, "model": model, "data": data, "train": {"steps": 1}}, "here")
    return TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)


@torch.inference_mode()
def run(loaded: TrainedModel) -> Tensor:
    """Outputs for two inputs."""
    if isinstance(loaded.tokenisers.source, Pixels):
        pixels = loaded.tokenisers.source
        shape = (2, pixels.channels, pixels.height, pixels.width)
        inputs: tuple[Tensor, ...] = (torch.rand(shape, generator=torch.Generator().manual_seed(0)),)
    elif loaded.task.kind == "act":
        return loaded.model(*loaded.model.make_blank_inputs(2, 4, device="cpu")).actions
    else:
        inputs = (torch.tensor([[5, 6, 7, 2], [8, 5, 9, 2]]),)
    outputs: Any = loaded.model(*inputs, *inputs[: loaded.task.kind == "transduce"])
    outputs = getattr(outputs, "logits", outputs)
    return outputs[..., len(SPECIALS) :] if loaded.task.kind in ("tag", "classify") else outputs


@pytest.mark.parametrize(("name", "task"), TRAINED)
def test_every_model_of_the_catalogue_is_exported_and_read_back(name: str, task: str, tmp_path: Path) -> None:
    before = build_random_run(name, task)
    reason = to_hf(before, tmp_path / "out")
    after = from_hf(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config.get("model_type") == "headwise") == bool(reason) and config.get("reason", "") == reason
    assert f"{name} {task}" not in EXPRESSIBLE or not reason
    assert after.task.kind == task
    if not reason:
        assert_parity(run(after), run(before))
        return
    assert after.experiment.model == before.experiment.model
    assert after.tokenisers.to_json() == before.tokenisers.to_json()
    state, state_back = before.model.state_dict(), after.model.state_dict()
    assert state.keys() == state_back.keys()
    assert all(torch.equal(tensor, state_back[key]) for key, tensor in state.items())


@pytest.mark.parametrize(
    ("name", "words"), [("gpt2", "written as GPT2LMHeadModel of transformers"), ("lstm", "with Headwise's own config")]
)
def test_the_command_says_which_folder_it_wrote(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_random_run(name, "language-model").save(tmp_path / "run")
    main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "hf"])
    output = capsys.readouterr()
    assert words in output.err and output.out.strip() == str(tmp_path / "out")
    main(["generate", str(tmp_path / "out"), "abc", "--length", "3"])
    assert capsys.readouterr().out.startswith("abc")


def damage(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_damaged_folders_are_refused_in_one_sentence(tmp_path: Path) -> None:
    loaded = build_random_run("lstm", "language-model")
    to_hf(loaded, tmp_path / "out")
    experiment = json.loads((tmp_path / "out" / "config.json").read_text())["experiment"]
    model = experiment["model"]
    for changes, words in (
        ({"experiment": [1]}, "experiment: must be a table of settings; export the run again"),
        ({"experiment": {**experiment, "model": {**model, "width": 10**7}}}, "a larger model than the checkpoint"),
        ({"experiment": {**experiment, "model": {**model, "width": 2 * model["width"]}}}, "another architecture"),
        ({"experiment": {**experiment, "model": {"kind": "unheard-of"}}}, r"model\.kind"),
    ):
        damage(tmp_path / "out", **changes)
        with pytest.raises(UserError, match=words) as refused:
            from_hf(tmp_path / "out")
        assert "\n" not in str(refused.value)
    damage(tmp_path / "out", experiment=experiment)
    (tmp_path / "out" / "headwise-tokenisers.json").unlink()
    with pytest.raises(UserError, match=r"headwise-tokenisers\.json"):
        from_hf(tmp_path / "out")
