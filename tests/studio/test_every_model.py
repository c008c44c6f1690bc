"""Every architecture of the catalogue can be looked at, or says in a sentence why not."""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from headwise.catalog import CATALOG
from headwise.errors import UserError
from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.page import render_page
from headwise.studio.ablation import AblationCase, logit_lens
from headwise.studio.decoding import decode_step, search_beams
from headwise.studio.map_cache import collect_maps, pack_overview
from headwise.studio.neurons import record_inputs
from headwise.studio.pictures import inspect_image
from headwise.tasks.tables import task_config
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters, Labels
from headwise.vision.pixels import Pixels

LETTERS = Characters("abcdefgh ")
TEXT = "abcd abc"
ATTENTION_FREE = {
    "ngram",
    "hmm",
    "mlp",
    "rnn",
    "lstm",
    "gru",
    "skipgram",
    "cbow",
    "bytenet",
    "sutskever",
    "cho",
    "cnn",
    "show-and-tell",
    "resnet",
    "mixer",
    "gmlp",
    "gmlp-image",
    "s4d",
}
PAIRS = [(entry, task) for entry in CATALOG.values() for task in entry.configure("tiny").tasks]
SEEING = {"classify-images", "detect", "caption", "encode-images"}
# what a task reads instead of texts -> what is said: chains have the page Fold, episodes and environments the page Play
TEXTLESS = {
    "chains": "this run folds chains",
    "episodes": "this run acts in",
    "environment": "this run acts in",
    "graphs": "this run places operators",
}
SIDE = 32


def made(model: str, task: str, data: dict, tokenisers: Tokenisers) -> TrainedModel:
    torch.manual_seed(0)
    given = {"task": task, "model": f"{model}-tiny", "data": data, "train": {"steps": 1}}
    experiment = Experiment.model_validate(given)
    return TrainedModel(experiment.create_task(tokenisers).build(experiment.model).eval(), tokenisers, experiment)


@pytest.mark.parametrize(("name", "task"), [(entry.name, task) for entry, task in PAIRS if task not in SEEING])
def test_every_text_model_has_attention_maps_or_an_error(name: str, task: str) -> None:
    outputs = Labels(["x", "y"]) if task == "classify" else LETTERS
    reads = task_config(task).reads
    data = {"graphs": {"name": "rnnlm-2"}, "texts": {"train": "none.tsv"}}.get(reads, {})
    loaded = made(name, task, data, Tokenisers(LETTERS, outputs))
    if name in ATTENTION_FREE or reads in TEXTLESS:
        with pytest.raises(UserError, match=TEXTLESS.get(reads, "this run's model has no attention to look at")):
            collect_maps(loaded, TEXT, "")
    else:
        maps = collect_maps(loaded, TEXT, "")
        assert pack_overview("look", maps, {}) and render_page(maps, TEXT)
        assert {each["name"] for each in record_inputs(loaded, TEXT, "").to_dict()["kinds"]} == set(maps.weights)
    if task_config(task)(kind=task).writes and name != "ngram":
        assert decode_step(loaded, TEXT, [5, 6])[1]["next"]
        assert search_beams(loaded, TEXT, 2, 4)["nodes"]
        if name not in ATTENTION_FREE:
            assert logit_lens(AblationCase(loaded, TEXT))["layers"]


def test_queries_and_keys_of_pooled_tokens_are_refused() -> None:
    view = record_inputs(made("funnel", "masked", {"train": "none.tsv"}, Tokenisers(LETTERS, LETTERS)), TEXT, "")
    assert view.pack_row("encoder", 0, 0, 1, 1) and view.pack_row("encoder", 3, 0, 1, 1)
    for layer in (1, 2):
        with pytest.raises(UserError, match="the queries or keys of this layer are pooled tokens; choose another"):
            view.pack_row("encoder", layer, 0, 1, 1)


@pytest.mark.parametrize(("name", "task"), [(entry.name, task) for entry, task in PAIRS if task in SEEING])
def test_every_image_model_has_attention_maps_or_an_error(name: str, task: str) -> None:
    image = BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(image, "PNG")
    pixels = Pixels(SIDE, SIDE, 3, (0.5,) * 3, (0.2,) * 3)
    outputs = LETTERS if task == "caption" else Labels(["one", "two"])
    loaded = made(name, task, {"name": "scene-captions"}, Tokenisers(pixels, outputs))
    picture, told, _ = inspect_image(loaded, image.getvalue())
    assert told["image"]
    assert bool(picture.describe_layers()) == (name not in ATTENTION_FREE)
