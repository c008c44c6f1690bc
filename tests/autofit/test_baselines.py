import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from headwise.autofit.bag_of_words import TfIdf, find_nearest, fit_linear, split_character_trigrams, split_word_bigrams
from headwise.autofit.baselines import (
    BaselineResult,
    answer_by_overlap,
    classify_bags,
    copy_nearest,
    copy_nearest_image,
    predict_majority,
    predict_mean,
    score_mean_boxes,
    tag_most_frequent,
)
from headwise.autofit.model_card import describe_verdict, is_better
from headwise.evaluate.score import Score
from headwise.tasks.base import Evaluation
from headwise.tasks.regress import RegressConfig
from headwise.testing import assert_parity
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Labels, Words
from headwise.vision.boxes import Boxes
from headwise.vision.images import Images

TEXTS = [
    "a good film", "a very good story", "good fun for all", "what a joy", "a dull film", "dull and long",
    "a very long story", "no joy at all", "fun , but dull", "long , yet good",
]  # fmt: skip
LABELS = [1, 1, 1, 1, 0, 0, 0, 0, 0, 2]


@pytest.fixture
def features():
    vectorizer = TfidfVectorizer(analyzer=split_word_bigrams, sublinear_tf=True, smooth_idf=True)
    expected = vectorizer.fit_transform(TEXTS).toarray()
    model = TfIdf(TEXTS)
    order = [model.numbers[term] for term in vectorizer.get_feature_names_out()]
    return model.transform(TEXTS), order, expected


def test_features_are_those_of_scikit_learn(features):
    ours, order, expected = features
    assert_parity(ours.to_dense()[:, order], torch.from_numpy(expected), 1e-12)


def test_logistic_regression_is_that_of_scikit_learn(features):
    ours, _, expected = features
    table, bias = fit_linear(ours, torch.tensor(LABELS))
    other = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(expected, LABELS)
    probabilities = (torch.sparse.mm(ours, table) + bias).softmax(1)
    assert_parity(probabilities, torch.from_numpy(other.predict_proba(expected)), 1e-3)


def test_ridge_regression_is_that_of_scikit_learn(features):
    ours, _, expected = features
    values = np.linspace(-1, 2, len(TEXTS))
    table, bias = fit_linear(ours, torch.from_numpy(values)[:, None])
    other = Ridge(alpha=1.0).fit(expected, values)
    assert_parity((torch.sparse.mm(ours, table) + bias)[:, 0], torch.from_numpy(other.predict(expected)), 1e-3)


def test_a_bag_of_words_learns_words():
    train = [
        (f"the {word} film {number}", label) for number in range(20) for word, label in (("good", "+"), ("bad", "-"))
    ]
    assert classify_bags(train, ["a good day", "a bad day"]) == ["+", "-"]


def test_the_nearest_neighbour_is_the_most_similar_text():
    assert find_nearest(["abcd", "wxyz"], ["xyz", "abc"], split_character_trigrams) == [1, 0]
    assert copy_nearest([("hello", "HELLO"), ("world", "WORLD")], ["wurld"]) == ["WORLD"]


def test_majority_and_mean():
    assert predict_majority([("a", "x"), ("b", "y"), ("c", "x")], ["d", "e"]) == ["x", "x"]
    assert predict_mean([("a", "1"), ("b", "4")], ["d"]) == ["2.5"]


def test_words_get_their_most_frequent_tag():
    train = [("the dog runs", "D N V"), ("the run", "D N"), ("dog dog", "N V"), ("cat", "N")]
    assert tag_most_frequent(train, ["the dog meows"]) == ["D N N"]


def test_the_answer_is_in_the_sentence_with_the_words_of_the_question():
    source = "Who wrote the first program?\tIt was late. Ada wrote the first program. Nobody knew."
    assert answer_by_overlap([], [source]) == ["Ada wrote the first program."]


def test_the_nearest_image_gives_its_label():
    pixels = np.zeros((2, 1, 20, 20), np.uint8)
    pixels[1] = 200
    images = Images(pixels, ["dark", "light"], ["a", "b"])
    assert copy_nearest_image(images, np.full((1, 1, 20, 20), 180, np.uint8)) == ["light"]


def test_mean_boxes_find_what_is_always_at_one_place():
    boxes = [Boxes(np.array([[1, 1, 9, 9]]), ("star",))] * 4
    images = Images(np.zeros((4, 1, 16, 16), np.uint8), boxes, list("abcd"))
    assert score_mean_boxes(images, images, (8.0, 12.0))[0].value == pytest.approx(100)


def make_evaluation(value, name="accuracy"):
    return Evaluation([], [], [], [Score(name, value, value - 3, value + 3, unit="%")])


def test_the_verdict_says_plainly_who_is_better():
    baselines = [
        BaselineResult("majority", [Score("accuracy", 50, 45, 55)]),
        BaselineResult("bags", [Score("accuracy", 70, 65, 75)]),
    ]
    assert "baseline 'bags' is better" in describe_verdict(make_evaluation(60), baselines)
    assert "within the interval" in describe_verdict(make_evaluation(72), baselines)
    assert "better than the best baseline, 'bags'" in describe_verdict(make_evaluation(90), baselines)
    assert describe_verdict(make_evaluation(90), []) == ""


def test_lower_error_rates_are_better():
    low, high = Score("SER", 20, 18, 22), Score("SER", 40, 38, 42)
    assert is_better(low, high) and not is_better(high, low)
    errors = [BaselineResult("nearest", [high])]
    assert "better than the best baseline" in describe_verdict(make_evaluation(20, "SER"), errors)


def test_a_regression_of_large_numbers_begins_at_their_mean_and_learns_at_their_scale():
    labels = ["100000", "300000", "200000,5"]
    tokenisers = Tokenisers(Words(["good", "bad"]), Labels(labels))
    task = RegressConfig().task_class(RegressConfig(), tokenisers)
    mean, deviation = task.label_statistics
    assert mean == pytest.approx(200_000, rel=1e-5) and deviation == pytest.approx(81_650, rel=1e-3)
    assert set(task.lr_scales.values()) == {deviation}
