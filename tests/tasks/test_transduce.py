"""Transduction: which scores fit the outputs, and the likelihood of references."""

from itertools import permutations
from math import exp

import pytest
import torch

from headwise.models.transformer import TransformerConfig
from headwise.tasks.tables import TASKS
from headwise.tasks.transduce import Transduce, TransduceConfig
from headwise.text import BOS, EOS
from headwise.text.config import BpeConfig, CharactersConfig
from headwise.text.normalise import PLAIN
from headwise.text.tokenisers import Tokenisers

PAIRS = [("abc", "C B A"), ("ab", "B A"), ("ab", "B"), ("cab", "B A C")]
SCORES = [
    (CharactersConfig(target="words"), "ser", ["SER", "PER", "perplexity"]),
    (CharactersConfig(), "ser", ["SER", "CER", "perplexity"]),
    (BpeConfig(size=270), "bleu", ["BLEU", "BLEU tokenised", "perplexity"]),
]


def made(tokeniser):
    task = Transduce(TransduceConfig(), Tokenisers.train(PAIRS, tokeniser, PLAIN))
    shape = {"width": 16, "heads": 2, "encoder": {"depth": 1}, "decoder": {"depth": 1}}
    return task, task.build(TransformerConfig(**shape)).eval()


@pytest.mark.parametrize(("tokeniser", "steering", "names"), SCORES, ids=lambda each: getattr(each, "kind", None))
def test_the_units_of_the_target_decide_the_scores(tokeniser, steering, names):
    task, model = made(tokeniser)
    found = task.evaluate(model, PAIRS)
    assert task.checkpoint_metric.name == steering and [score.name for score in found.scores] == names
    assert found.sources == ["abc", "ab", "cab"] and found.references[1] == ["B A", "B"]


@pytest.mark.parametrize("tokeniser", [each[0] for each in SCORES], ids=lambda each: each.kind)
def test_the_word_error_rate_is_reported_and_watched_where_it_is_asked_for(tokeniser):
    task = Transduce(TransduceConfig(score="wer"), Tokenisers.train(PAIRS, tokeniser, PLAIN))
    words, sequences = task.score_outputs(["a b c d", "e f"], [["a b c x"], ["e f"]])
    assert (words.name, words.value) == ("WER", pytest.approx(100 / 6))
    assert (sequences.name, sequences.value) == ("SER", 50)
    assert (task.checkpoint_metric.name, task.checkpoint_metric.lower) == ("wer", True)


def test_perplexity_is_of_the_references_with_their_ends():
    task, model = made(SCORES[0][0])
    total = count = 0
    for source, target in PAIRS:
        read, ids = task.tokenisers.source.encode(source), task.tokenisers.target.encode(target)
        with torch.inference_mode():
            log_p = model(torch.tensor([[*read, EOS]]), torch.tensor([[BOS, *ids]])).log_softmax(-1)[0]
        total -= float(log_p[range(len(ids) + 1), [*ids, EOS]].sum())
        count += len(ids) + 1
    assert task.evaluate(model, PAIRS).scores[-1].value == pytest.approx(exp(total / count), rel=1e-4)


def test_every_task_is_found_by_its_name():
    configs = {name: TASKS[name] for name in TASKS.names}
    assert all(config.model_fields["kind"].default == name for name, config in configs.items())
    assert len({config.task_class for config in configs.values()}) == len(configs)


def test_source_and_target_as_one_text(learn, tmp_path):
    words = ["".join(letters) for letters in permutations("abcd", 2)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words * 8))
    data = {"train": str(tmp_path / "pairs.tsv"), "valid": str(tmp_path / "pairs.tsv")}
    tokeniser = {"kind": "characters", "shared": True}
    task = {"kind": "transduce", "prefix_lm": True, "sample": 0}
    run = learn(task, data, tokeniser, {"kind": "transformer-tiny"}, steps=120, schedule={"lr": 0.01, "warmup": 20})
    assert run.translate(["ab", "dc"], beams=2) == ["ba", "cd"]
    assert [score.name for score in run.evaluate().scores] == ["SER", "CER", "perplexity"]


def test_summaries_are_scored_by_rouge_and_sources_have_their_prefix(learn, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a long text\tshort\nanother text\tbrief\n" * 8)
    data = {"train": str(tmp_path / "pairs.tsv"), "valid": str(tmp_path / "pairs.tsv"), "prefix": "sum: "}
    task = {"kind": "transduce", "score": "rouge"}
    run = learn(
        task, data, {"kind": "words", "shared": True}, {"kind": "transformer-tiny"}, steps=60, validate_every=30
    )
    assert "sum:" in run.tokenisers.source.vocabulary
    found = run.evaluate()
    assert [score.name for score in found.scores] == ["ROUGE-L", "ROUGE-1", "ROUGE-2", "perplexity"]
    assert found.sources == ["sum: a long text", "sum: another text"] and found.scores[0].value == 100
    assert run.translate(["a long text"]) == ["short"]  # with the prefix, as it was learnt
    assert run.evaluate([("another text", "brief")]).outputs == ["brief"]
