"""StructBERT's objectives in a run: three classes of pairs, words of shuffled trigrams in the loss."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from headwise.blocks.stream import Context
from headwise.catalog import find
from headwise.data.examples import Examples
from headwise.errors import UserError
from headwise.tasks.masked import Masked, MaskedConfig
from headwise.text import PAD
from headwise.text.config import WordsConfig
from headwise.text.normalise import Normaliser
from headwise.text.tokenisers import Tokenisers
from headwise.train.config import TrainConfig
from headwise.train.state import LossState

WORDS = [f"w{number}" for number in range(40)]


def make_task(**settings):
    tokenisers = Tokenisers.train([("", " ".join(WORDS))], WordsConfig(shared=True), Normaliser())
    return Masked(MaskedConfig(context=24, next_sentence=True, **settings), tokenisers)


def configure(name):
    entry, size = find(name)
    return entry.configure(size, {"dropout": 0.0})


def test_the_loss_is_the_mean_over_masked_and_shuffled_words_plus_that_of_three_classes():
    task = make_task(sentence_structure=True, shuffle_rate=0.2)
    torch.manual_seed(0)
    model = task.build(configure("bert-tiny")).double()
    assert model.next_sentence_head[-1].out_features == 3
    examples = Examples.from_rows([([], list(range(4, 40))) for _ in range(20)])
    data = task.build_batches(examples, 1, TrainConfig(steps=1, batch_size=20))
    batch = data.batch(data.plan(0)[0])
    loss = task.loss(model, batch, LossState())
    stream = model.encoder(batch.ids, Context())
    words = F.cross_entropy(model(batch.ids)[batch.labels != PAD], batch.labels[batch.labels != PAD])
    pairs = F.cross_entropy(model.next_sentence_head(stream), batch.next_sentence_labels)
    assert_close(loss.total / loss.count, words + pairs)
    scores = task.validate(model.float(), examples, [])
    assert set(scores) == {"nll", "accuracy", "next_sentence"}


def test_a_model_without_pairs_is_refused():
    with pytest.raises(UserError, match="next_sentence"):
        make_task(sentence_structure=True).build(configure("transformer-tiny"))
    with pytest.raises(ValueError, match="sentence_structure needs pairs"):
        MaskedConfig(sentence_structure=True, next_sentence=False)
