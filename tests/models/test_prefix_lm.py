"""Prefix language model: source and target in one text, whatever the padding."""

import pytest
import torch

import headwise
from headwise.decode.driver import decode
from headwise.errors import UserError
from headwise.models.gpt import Gpt2Config
from headwise.models.language_model import PrefixLM
from headwise.models.ngram import NgramConfig
from headwise.tasks.transduce import Transduce, TransduceConfig
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

SOURCE = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]])
TARGET = torch.tensor([[1, 9, 10], [1, 11, 0]])


def build_model(kind):
    torch.manual_seed(0)
    model = headwise.build(f"{kind}-tiny", vocab=12, task="language-model", dropout=0.0).double().eval()
    return model, PrefixLM(model.decoder)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "transformer", "lstm"])
def test_padding_between_the_texts_changes_nothing(kind):
    model, answers = build_model(kind)
    found = answers(SOURCE, TARGET)
    for row, (size, length) in enumerate([(4, 3), (2, 2)]):
        text = torch.cat([SOURCE[row, :size], TARGET[row, :length]])[None]
        torch.testing.assert_close(found[row, :length], model(text)[0, size:])


def test_the_loss_is_over_the_target_alone():
    _, answers = build_model("gpt2")
    labels = torch.tensor([[9, 10, 2], [11, 2, 0]])
    logits = answers(SOURCE, TARGET).flatten(0, 1)
    loss = answers(SOURCE, TARGET, labels=labels)
    assert loss.count == 5
    torch.testing.assert_close(
        loss.total, torch.nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=0, reduction="sum")
    )


@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_it_is_decoded_like_any_transducer(kind):
    _, answers = build_model(kind)
    together = decode(answers, [[5, 6, 7], [8], [9, 10]])
    assert [found[0].ids for found in together] == [
        decode(answers, [source])[0][0].ids for source in ([5, 6, 7], [8], [9, 10])
    ]
    state, tokens, logits = answers.start(SOURCE), TARGET, []
    for step in tokens.unbind(1):
        out, state = answers.step(step, state)
        logits.append(out)
    torch.testing.assert_close(torch.stack(logits, 1)[:, :2], answers(SOURCE, TARGET)[:, :2])


def test_unsuitable_models_are_refused():
    letters = Characters("ab")
    config = TransduceConfig(prefix_lm=True)
    with pytest.raises(UserError, match=r"tokeniser\.shared"):
        Transduce(config, Tokenisers(letters, Characters("ab"))).build(Gpt2Config())
    with pytest.raises(UserError, match="'ngram' cannot read"):
        Transduce(config, Tokenisers(letters, letters)).build(NgramConfig())
