import json

import pytest
import torch

from headwise.autofit.fit import prepare_fit
from headwise.autofit.plan_texts import plan_pairs
from headwise.autofit.statistics import compute_statistics
from headwise.data.config import TextDataConfig
from headwise.tasks.answer import Answer, find_spans
from headwise.text import UNK

ENGLISH = "A man in a blue shirt is standing on a ladder cleaning a window number {}."
GERMAN = "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt Fenster {}."
RUSSIAN = "Мужчина в синей рубашке стоит на лестнице и моет окно номер {}."


@pytest.fixture
def plan_for(tmp_path):
    def plan_for(source, target, count=300):
        path = tmp_path / "pairs.tsv"
        path.write_text("".join(f"{source(i)}\t{target(i)}\n" for i in range(count)))
        return plan_pairs(compute_statistics(TextDataConfig(train=str(path))), minutes=1)

    return plan_for


def test_a_dictionary_has_letters_and_symbols():
    statistics = compute_statistics(TextDataConfig(name="cmudict"))
    assert statistics.rows > 130_000
    assert statistics.target.symbols
    assert statistics.target.distinct_words == 39
    settings, reasons = plan_pairs(statistics, minutes=1)
    assert settings["tokeniser"] == {"kind": "characters", "target": {"kind": "words"}}
    assert "characters" in reasons[0]
    assert "39 different symbols" in reasons[0]


def test_sentences_in_one_alphabet_share_word_pieces(plan_for):
    settings, reasons = plan_for(ENGLISH.format, GERMAN.format)
    assert settings["tokeniser"] == {"kind": "bpe", "size": 1000, "shared": True}
    assert "same letters" in reasons[0]


def test_sentences_in_two_alphabets_do_not(plan_for):
    assert plan_for(ENGLISH.format, RUSSIAN.format)[0]["tokeniser"] == {"kind": "bpe", "size": 1000}


def test_short_phrases_are_split_into_characters(plan_for):
    settings, _ = plan_for(lambda i: f"{i % 28 + 1} March {1900 + i}", lambda i: f"{1900 + i}-03-{i % 28 + 1:02}")
    assert settings["tokeniser"] == {"kind": "characters"}


def test_sentences_and_symbols_have_tokenisers_of_their_own(plan_for):
    settings, _ = plan_for(ENGLISH.format, lambda i: " ".join(["DET", "NOUN", "VERB", "ADP"][: i % 3 + 2]))
    assert settings["tokeniser"] == {"kind": "bpe", "size": 1000, "target": {"kind": "words"}}


def test_few_pairs_get_a_small_model(plan_for):
    settings, _ = plan_for(ENGLISH.format, GERMAN.format, count=3)
    assert settings["model"]["width"] == 64


def test_rows_sources_and_labels_are_counted(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("good film\tpos\nbad film\tneg\ngood film\tpos\n")
    statistics = compute_statistics(TextDataConfig(train=str(path)))
    assert (statistics.rows, statistics.distinct_sources) == (3, 2)
    assert statistics.labels == {"pos": 2, "neg": 1}
    assert statistics.examples == (("good film", "pos"), ("bad film", "neg"))


def test_answers_are_parts_of_texts_whose_words_may_be_rare(tmp_path):
    rows = [{"question": f"Who is {n}?", "context": f"{n} is x{n}. So it is.", "answer": f"x{n}"} for n in range(60)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, plan = prepare_fit([tmp_path / "rows.jsonl"], minutes=1)
    assert plan.experiment.train.patience == 0
    encode = Answer.prepare(plan.experiment.data, plan.experiment.tokeniser).tokenisers.source.encode
    for row in rows:  # each answer is found as tokens of its text, and none of them is unknown
        source, answer = encode(f"{row['question']}\t{row['context']}"), encode(row["answer"])
        ((first, last),) = find_spans(torch.tensor([source]), torch.tensor([answer])).tolist()
        assert source[first : last + 1] == answer and UNK not in answer
