import math

import numpy as np
import pytest
import torch

from headwise.errors import UserError
from headwise.models.ngram import NgramConfig
from headwise.ngram import from_arpa, to_arpa
from headwise.text import BOS, SPECIALS

VOCABULARY = [*SPECIALS, "a", "b", " ", "\n", "\\", "\\data\\", "never"]
SMOOTHINGS = ("kneser-ney", "jelinek-mercer", "add-k", "none")


@pytest.fixture
def model(request):
    random = np.random.default_rng(0)
    lines = [random.integers(4, 10, size=random.integers(0, 12)) for _ in range(20)]
    smoothing = getattr(request, "param", "kneser-ney")
    return NgramConfig(order=3, smoothing=smoothing).build(len(VOCABULARY)).fit(lines)


def looked_up(path, words):
    """log10 p of the last word after the others, as a plain reader of ARPA files finds it."""
    known = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        fields = line.split("\t")
        if len(fields) > 1:
            known[fields[1]] = float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0

    def log_p(words):
        if " ".join(words) in known:
            return known[" ".join(words)][0]
        return known.get(" ".join(words[:-1]), (0.0, 0.0))[1] + log_p(words[1:])

    return log_p(words[-3:])


@pytest.mark.parametrize("model", SMOOTHINGS, indirect=True)
def test_a_file_gives_the_same_model_back(model, tmp_path):
    path = to_arpa(model, tmp_path / "model.arpa", VOCABULARY)
    back, vocabulary = from_arpa(path)
    assert vocabulary == VOCABULARY
    ids = torch.cat((torch.full((30, 1), BOS), torch.randint(3, len(VOCABULARY), (30, 6))), dim=1)
    torch.testing.assert_close(back(ids), model(ids), rtol=0, atol=1e-5)


def test_a_plain_reader_gets_the_interpolated_probabilities(model, tmp_path):
    path = to_arpa(model, tmp_path / "model.arpa", VOCABULARY)
    names = ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "\\u0020", "\\u000a", "\\u005c"]
    for ids in ([BOS, 4, 5], [BOS, 4], [BOS, 6, 7, 8], [5, 5, 5], [3, 4], [BOS, 3, 8]):
        log_p = model(torch.tensor([ids[:-1]]))[0, -1, ids[-1]]
        assert looked_up(path, [names[i] for i in ids]) == pytest.approx(float(log_p) / math.log(10), abs=2e-6)


def test_a_small_file_is_read_by_hand(tmp_path):
    path = tmp_path / "small.arpa"
    path.write_text(GOOD)
    model, vocabulary = from_arpa(path)
    assert vocabulary == [*SPECIALS, "the", "cat"]
    p = model(torch.tensor([[BOS, 4, 5]])).exp()[0]
    assert p[0, 4] == pytest.approx(0.5)  # <s> the
    assert p[1, 5] == pytest.approx(0.8)  # the cat
    assert p[1, 2] == pytest.approx(0.4 * 0.25)  # the, backed off to </s>
    assert p[2, 2] == pytest.approx(0.25)  # cat leaves all
    assert p[0, 3] == 0  # no <unk> in the file


GOOD = """A comment.

\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99 <s> -0.30103
-0.60206 </s>
-0.60206\tthe\t-0.39794
-0.30103 cat

\\2-grams:
-0.30103 <s> the
-0.09691 the cat

\\end\\
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("\\data\\", "data", "line 18: found no .data"),
        ("ngram 2=2", "ngram 3=2", "line 5: expected the number of 2-grams"),
        ("ngram 2=2", "ngram 2=3", "line 17: expected log10 p, 2 words"),
        ("ngram 2=2", "ngram 2=1", "line 15: expected .end"),
        ("ngram 1=4", "ngram 1=3", "line 11: expected .2-grams: after the 1-grams"),
        ("-0.30103 cat", "minus cat", "line 11: expected log10 p, 1 words"),
        ("-0.30103 cat", "0.5 cat", "line 11: expected log10 p, 1 words"),
        ("-0.30103 cat", "nan cat", "line 11: expected log10 p, 1 words"),
        ("-0.30103 cat", "-1 cat 0 0", "line 11: expected log10 p, 1 words"),
        ("<s> the", "<s> dog", "line 14: 'dog' is not among the 1-grams"),
        ("<s> the", "dog the", "line 14: 'dog the' needs 'dog' one order down"),
        ("<s> the", "the cat", "line 15: 'the cat' occurs for the second time"),
        ("\\end\\", "", "expected .end"),
    ],
)
def test_a_malformed_file_is_refused_by_line(tmp_path, old, new, sentence):
    path = tmp_path / "bad.arpa"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError, match=f"bad.arpa, {sentence}" if sentence.startswith("line") else sentence):
        from_arpa(path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*none.arpa"):
        from_arpa(tmp_path / "none.arpa")
    (tmp_path / "bytes.arpa").write_bytes(b"\\data\\\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        from_arpa(tmp_path / "bytes.arpa")


def test_a_vocabulary_of_another_size_is_refused(model, tmp_path):
    with pytest.raises(UserError, match="the model has 11 tokens, the vocabulary 10"):
        to_arpa(model, tmp_path / "model.arpa", VOCABULARY[:-1])


@pytest.mark.parametrize("counts", ["ngram 1=" + "9" * 5000, "ngram " + "9" * 5000 + "=1", "ngram 1=" + "9" * 18])
def test_absurd_counts_are_refused(tmp_path, counts):
    path = tmp_path / "model.arpa"
    path.write_text(f"\\data\\\n{counts}\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n\n\\end\\\n")
    with pytest.raises(UserError, match=r"model.arpa, line \d"):
        from_arpa(path)
