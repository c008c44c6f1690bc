"""Tagging: one label for each word."""

import pytest
import torch

import headwise
from headwise.data.config import TextDataConfig
from headwise.errors import UserError
from headwise.experiment.config import parse_experiment
from headwise.experiment.run import train_experiment
from headwise.models.hmm import HmmConfig
from headwise.models.transformer import TransformerConfig
from headwise.tasks.tag import Tag, TagConfig, batch_texts
from headwise.text import EOS, PAD
from headwise.text.config import WordsConfig
from headwise.train.config import TrainConfig
from headwise.train.state import LossState

TINY = {"kind": "transformer-tiny", "wiring": "pre"}
MODELS = [TINY, {"kind": "lstm-tiny", "bidirectional": True}]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["kind"])
def test_it_learns_what_depends_on_the_context(learn, tagged, model):
    run = learn("tag", tagged, "words", model)
    assert run.tag(["they run the walk", "", "the run"]) == [
        [("they", "PRON"), ("run", "VERB"), ("the", "DET"), ("walk", "NOUN")],
        [],
        [("the", "DET"), ("run", "NOUN")],
    ]
    found = run.evaluate([("they run", "PRON VERB"), ("the run they", "DET VERB PRON")])
    assert [score.name for score in found.scores] == ["accuracy", "F1"]
    assert found.scores[0].value == pytest.approx(80) and found.outputs[1] == "DET NOUN PRON"
    row, column = found.labels.index("VERB"), found.labels.index("NOUN")
    assert found.confusion[row, column] == 1 and found.confusion.sum() == 5


@pytest.fixture
def prepared(tagged, tmp_path):
    return Tag.prepare(TextDataConfig(**tagged, cache=str(tmp_path / "cache")), WordsConfig())


def test_a_model_that_counts_learns_by_the_same_task(prepared):
    task = Tag(TagConfig(), prepared.tokenisers)
    model = task.build(HmmConfig(order=2))
    task.fit_model(model, prepared.train)
    assert task.validate(model, prepared.valid, prepared.valid_pairs) == {"accuracy": 100.0}
    assert task.predict_tags(model, ["they walk", "", "the walk"]) == [["PRON", "VERB"], [], ["DET", "NOUN"]]


def test_words_that_were_never_seen_are_scored_apart(prepared):
    task = Tag(TagConfig(), prepared.tokenisers)
    model = task.build(HmmConfig(order=2))
    task.fit_model(model, prepared.train)
    found = task.evaluate(model, [("they jump", "PRON VERB"), ("the jump", "DET VERB"), ("they run", "PRON VERB")])
    scores = {score.name: score for score in found.scores}
    assert scores["accuracy on unknown words"].value == 50 and "2 labels" in scores["accuracy on unknown words"].detail


def test_an_untrained_model_gives_real_tags_and_ignores_batch_mates(prepared):
    task = Tag(TagConfig(), prepared.tokenisers)
    model = task.build(TransformerConfig(width=16, heads=2, encoder={"depth": 1}))
    texts = ["they run", "the walk they run the run", "the"]
    together = task.predict_tags(model, texts)
    assert together == [task.predict_tags(model, [text])[0] for text in texts]
    assert {tag for tags in together for tag in tags} <= {"DET", "NOUN", "PRON", "VERB"}


def test_training_reads_what_prediction_reads(prepared):
    """Texts of all lengths end with EOS in both; training and validation texts are the same file here."""
    task = Tag(TagConfig(), prepared.tokenisers)
    model = task.build(TransformerConfig(width=16, heads=2, encoder={"depth": 1}))
    read: list[set[tuple[int, ...]]] = [set(), set()]

    def read_rows(rows):
        return lambda module, args: rows.update(tuple(row[row != PAD].tolist()) for row in args[0])

    data = task.build_batches(prepared.train, 1, TrainConfig(steps=1, batch_size=8))
    with model.register_forward_pre_hook(read_rows(read[0])):
        for numbers in data.plan(0):
            task.loss(model, data.batch(numbers), LossState())
    with model.register_forward_pre_hook(read_rows(read[1])):
        task.predict_tags(model, [text for text, _ in prepared.valid_pairs])
    assert read[0] == read[1] and len({len(row) for row in read[0]}) > 1 and all(row[-1] == EOS for row in read[0])


def test_batches_hold_every_text_once_within_their_bound():
    rows = [[5] * length for length in (3, 1, 7, 2, 2, 0)]
    seen = []
    for numbers, ids in batch_texts(rows, tokens=8):
        seen += numbers
        assert ids.numel() <= 8 and torch.equal((ids != 0).sum(1), torch.tensor([len(rows[n]) for n in numbers]))
    assert sorted(seen) == list(range(6))


def test_mistakes_are_said_with_their_place(tmp_path):
    (tmp_path / "bad.tsv").write_text("the run\tDET NOUN\nthey run\tPRON\n")
    data = TextDataConfig(train=str(tmp_path / "bad.tsv"), cache=str(tmp_path))
    with pytest.raises(UserError, match=r"bad.tsv, line 2: 2 words but 1 tags"):
        Tag.prepare(data, WordsConfig())


def test_words_in_pieces_have_their_tag_on_the_first_piece(tmp_path):
    (tmp_path / "tags.tsv").write_text("the dog ran\tDET NOUN VERB\na cat sat\tDET NOUN VERB\n" * 8)
    files = {"train": str(tmp_path / "tags.tsv"), "valid": str(tmp_path / "tags.tsv"), "cache": str(tmp_path / "c")}
    experiment = parse_experiment(
        {
            "task": "tag",
            "data": files,
            "tokeniser": "characters",
            "model": {"kind": "bert-tiny", "dropout": 0.0},
            "train": {"steps": 40, "batch_size": 4, "schedule": {"kind": "cosine", "lr": 0.01, "warmup": 5}},
        }
    )
    prepared = Tag.prepare(experiment.data, experiment.tokeniser)
    source, labels = prepared.train[0]
    assert len(source) == len(labels) == len("thedogran") and [i for i, tag in enumerate(labels) if tag] == [0, 3, 6]
    run, _ = train_experiment(experiment, tmp_path)
    loaded = headwise.load(run.path)
    assert loaded.tag(["a dog sat"]) == [[("a", "DET"), ("dog", "NOUN"), ("sat", "VERB")]]
    assert loaded.evaluate().scores[0].value == 100


def test_a_model_of_counts_needs_words(tmp_path):
    (tmp_path / "tags.tsv").write_text("the dog\tDET NOUN\n" * 30)
    with pytest.raises(UserError, match="this model counts words and their tags; use tokeniser = 'words'"):
        train_experiment(
            parse_experiment(
                {
                    "task": "tag",
                    "data": {
                        "train": str(tmp_path / "tags.tsv"),
                        "valid": str(tmp_path / "tags.tsv"),
                        "cache": str(tmp_path),
                    },
                    "tokeniser": "characters",
                    "model": "hmm",
                    "train": {"steps": 1},
                }
            ),
            tmp_path,
        )
