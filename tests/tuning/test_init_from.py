"""`init_from`: which tensors are loaded, which tokenisers are used, and that the run is self-contained."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

import headwise
from headwise import UserError
from headwise.data.config import TextDataConfig
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.runs import Run
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Words
from headwise.train.observers import Observer
from headwise.tuning.init_from import init_from, measure_unknown


def weights(run: Run, step: int) -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint_path(step) / "model.safetensors")


ROUTES = [  # where from, what for, which part begins with which, what is new, what is left
    ("gpt", "classify", {"encoder": "decoder"}, "head", "nothing"),
    ("lm", "tag", {"encoder": "decoder"}, "head", "nothing"),
    ("lm", "language-model", {"decoder": "decoder"}, "nothing", "nothing"),
    (
        "bert",
        "classify",
        {"encoder": "encoder", "pool": "next_sentence_head"},
        "head",
        "head.bias, head.transform, next_sentence_head.2",
    ),
    ("bert", "tag", {"encoder": "encoder"}, "head", "head.bias, head.transform, next_sentence_head"),
]


@pytest.mark.parametrize(("source", "task", "ways", "new", "left"), ROUTES)
def test_tensors_loaded_new_and_unused(place, learn, source, task, ways, new, left):
    run, said = learn(task, source)
    old, tuned = headwise.load(place / "runs" / source), headwise.load(run.path)
    theirs, begun = old.model.state_dict(), weights(run, 0)
    for name, tensor in begun.items():
        part, _, rest = name.partition(".")
        if part in ways:
            assert torch.equal(tensor, theirs[f"{ways[part]}.{rest}"][: len(tensor)]), name  # without the mask's row
    count = sum(name.partition(".")[0] in ways for name in tuned.model.state_dict())
    folder = place / "runs" / source
    assert said[0] == f"{count} tensors loaded from {folder}; newly initialised: {new}; unused: {left}"
    assert tuned.tokenisers.source.vocabulary == old.tokenisers.source.vocabulary
    assert tuned.evaluate().scores
    after = weights(run, 10)
    assert all(not torch.equal(after[name], begun[name]) for name in begun if name.endswith("table.weight"))


@pytest.mark.parametrize("task", ["tag", "language-model"])
def test_a_folder_with_our_own_config_is_a_pretrained_model(place, learn, tmp_path, task):
    pretrained = headwise.load(place / "runs" / "lm")
    assert "transformers has no 'transformer'" in headwise.to_hf(pretrained, tmp_path / "native")
    (run, said), (from_run, said_of_run) = (learn(task, str(source)) for source in (tmp_path / "native", "lm"))
    assert [text.replace(str(tmp_path / "native"), str(place / "runs" / "lm")) for text in said] == said_of_run
    one, other = weights(run, 10), weights(from_run, 10)
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_fine_tuned_language_model_starts_with_a_lower_loss(place, learn):
    def first_loss(run):
        return next(row["nll"] for row in run.metrics.rows() if "nll" in row)

    train = {"steps": 2, "log_every": 2}
    tuned, _ = learn("language-model", train=train)
    own = Run.open(place / "runs" / "gpt").config
    fresh, _ = train_experiment(
        parse_experiment({**own, "train": {**own["train"], **train}}), tuned.path.parent / "fresh"
    )
    assert first_loss(tuned) < 0.8 * first_loss(fresh)


def test_a_head_is_kept_for_the_same_labels_alone(learn, place, tmp_path):
    first, _ = learn("classify")
    again, said = learn("classify", init_from=str(first.path))
    assert "newly initialised: nothing" in said[0]
    assert torch.equal(weights(again, 0)["head.bias"], weights(first, 10)["head.bias"])
    other = tmp_path / "other.tsv"
    other.write_text((place / "labels.tsv").read_text().replace("\tpos", "\tfine").replace("\tneg", "\tpoor"))
    data = {"train": str(other), "valid": str(other), "cache": str(tmp_path / "cache")}
    run, said = learn("classify", init_from=str(first.path), data=data)
    assert "newly initialised: head; unused: head" in said[0]
    assert set(headwise.load(run.path).classify(["a good"])[0]) == {"fine", "poor"}


def test_a_hugging_face_folder_gives_architecture_and_tokeniser(place, learn, tmp_path):
    old = headwise.load(place / "runs" / "gpt")
    headwise.to_hf(old, tmp_path / "hf")
    run, said = learn("classify", str(tmp_path / "hf"), model={"dropout": 0.0})
    name = "stack.layers.1.parts.0.qkv.project.weight"
    assert torch.equal(weights(run, 0)[f"encoder.{name}"], old.model.state_dict()[f"decoder.{name}"])
    assert "newly initialised: head;" in said[0]
    shutil.rmtree(tmp_path / "hf")
    tuned = headwise.load(run.path)
    assert tuned.tokenisers.source.encode("a not good") == old.tokenisers.source.encode("a not good")
    assert set(tuned.classify(["a not good"])[0]) == {"neg", "pos"}


def test_tables_without_a_kind_are_merged_into_those_of_the_other_run(tables, place):
    theirs = Run.open(place / "runs" / "gpt").config
    found = parse_experiment(tables("classify", "gpt@step-40", model={"dropout": 0.3})).model_dump(mode="json")
    assert found["model"] == {**theirs["model"], "dropout": 0.3} and found["tokeniser"] == theirs["tokeniser"]
    alone = parse_experiment(tables("classify", model={"kind": "gpt", "depth": 3}))
    assert (alone.model.width, alone.model.depth) == (768, 3)


def test_resuming_does_not_need_the_pretrained_model(tables, place, tmp_path):
    class Stopped(BaseException):
        pass

    class Stop(Observer):
        def on_metrics(self, row):
            raise Stopped

    shutil.copytree(place / "runs" / "gpt", tmp_path / "gpt")
    settings = tables("classify", str(tmp_path / "gpt"), train={"log_every": 5}, tuning={"lora": {"rank": 2}})
    whole, _ = train_experiment(parse_experiment(settings), tmp_path / "whole")
    with pytest.raises(Stopped):
        train_experiment(parse_experiment(settings), tmp_path / "broken", observers=[Stop()])
    shutil.rmtree(tmp_path / "gpt")
    broken = Run.open(tmp_path / "broken" / "tuned")
    assert broken.steps() == [0]
    headwise.resume(broken.path)
    one, other = weights(whole, 10), weights(broken, 10)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    shutil.rmtree(broken.checkpoints / "step-0")
    shutil.rmtree(broken.checkpoints / "step-10")
    with pytest.raises(UserError, match="ended before training began"):
        headwise.resume(broken.path)


def test_checkpoint_averaging_leaves_out_the_initial_weights(learn):
    run, _ = learn("classify")
    averaged, last = (headwise.load(run.path, which=which).model.state_dict() for which in ("average", "last"))
    assert all(torch.equal(averaged[name], last[name]) for name in last)


def test_new_parameters_must_not_be_frozen(learn):
    tuning = {"lora": {"rank": 2}}
    with pytest.raises(UserError, match=r"tuning: encoder\.stack\.layers\.2 cannot be loaded .* tuning\.unfreeze"):
        learn("classify", model={"depth": 3}, tuning=tuning)
    _, said = learn("classify", model={"depth": 3}, tuning={**tuning, "unfreeze": ["encoder.stack.layers.2"]})
    assert "newly initialised: encoder.stack.layers.2, head;" in said[0]


def test_a_vocabulary_larger_than_the_embedding_is_an_error(place):
    loaded = headwise.load(place / "runs" / "gpt")
    words = type(loaded.tokenisers.target)([*loaded.tokenisers.target.vocabulary[4:], "more", "still"])
    model = loaded.experiment.model.build(words.size, 0, "language-model")
    size = words.size - 2
    with pytest.raises(UserError, match=f"init_from: x has {size} token embeddings and its tokeniser {words.size} "):
        init_from(model, loaded.experiment.replace(init_from="x"), loaded, Tokenisers(words, words))


def test_a_language_model_is_initialised_from_the_decoder_of_a_translator(tmp_path):
    """Its units are those of the target side, which are others than those of the source."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a{n} b{n}\tx{n} y{n}\n" for n in range(20)))
    (tmp_path / "lines.txt").write_text("".join(f"x{n} y{n}\n" for n in range(20)))
    train = {"steps": 1, "batch_size": 8, "threads": 1}
    cache = str(tmp_path / "cache")
    pairs = {"train": str(tmp_path / "pairs.tsv"), "cache": cache}
    model = {"kind": "transformer-tiny"}
    tables = {"name": "pairs", "data": pairs, "tokeniser": "words", "model": model, "train": train}
    old, _ = train_experiment(parse_experiment(tables), tmp_path / "runs")
    lines = {"train": str(tmp_path / "lines.txt"), "format": "lines", "cache": cache}
    tables = {"name": "lm", "task": "language-model", "data": lines, "init_from": str(old.path), "train": train}
    new, _ = train_experiment(parse_experiment(tables), tmp_path / "runs")
    source, target = (Tokenisers.load(run.tokenizer) for run in (old, new))
    assert target.target.vocabulary == source.target.vocabulary != source.source.vocabulary


def test_clusters_of_adaptive_embeddings_are_loaded_without_the_row_of_the_mask(tmp_path):
    (tmp_path / "lines.txt").write_text("".join(f"x{n} y{n}\n" for n in range(20)))
    (tmp_path / "tags.tsv").write_text("".join(f"x{n} y{n}\tA B\n" for n in range(20)))
    train = {"steps": 1, "batch_size": 8, "threads": 1}
    clusters = {"kind": "adaptive", "cutoffs": [10, 20], "widths": [32, 8, 4]}
    model = {"kind": "bert-tiny", "token_embedding": clusters, "output_layer": clusters}
    lines = {"train": str(tmp_path / "lines.txt"), "format": "lines", "cache": str(tmp_path / "cache")}
    tables = {"name": "old", "task": "masked", "data": lines, "tokeniser": "words", "model": model, "train": train}
    old, _ = train_experiment(parse_experiment(tables), tmp_path / "runs")
    tags = {"train": str(tmp_path / "tags.tsv"), "cache": str(tmp_path / "cache")}
    tables = {"name": "new", "task": "tag", "data": tags, "init_from": str(old.path), "train": train}
    new, _ = train_experiment(parse_experiment(tables), tmp_path / "runs")
    pretrained, begun = weights(old, 1), weights(new, 0)
    for number in range(3):
        name = f"encoder.embed.table.tables.{number}.weight"
        assert torch.equal(begun[name], pretrained[name][: len(begun[name])])
    assert len(pretrained[name]) == len(begun[name]) + 1


@pytest.mark.parametrize(("text", "share"), [("a b good", 0.0), ("a b qwertz", 1 / 3), ("Иван Ильич", 1.0)])
def test_unknown_tokens_are_counted_before_training(text, share, tmp_path):
    (tmp_path / "texts.txt").write_text(f"{text}\n" * 20)
    tokeniser = Words(["a", "b", "good"])
    data = TextDataConfig(train=(str(tmp_path / "texts.txt"),), format="lines")
    assert measure_unknown(data, tokeniser) == pytest.approx(share)
