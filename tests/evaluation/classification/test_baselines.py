from collections import Counter

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mlmclm.corpora.labelled import load_task
from mlmclm.evaluation.classification.baselines import accuracy, best_linear, majority, tf_idf
from mlmclm.evaluation.classification.features import part_of

LABELS = {"train": (0, 0, 0, 1), "validation": (0, 1), "test": (0, 1)}
POINTS = {
    "train": np.array([[-1.0], [-1], [-1], [1]]),
    "validation": np.array([[-1.0], [1]]),
    "test": np.array([[-1.0], [1]]),
}


def parts(spec, limit):
    task = load_task(spec)
    return {**task.splits, "train": part_of(task.splits["train"], limit, task.name)}


def test_accuracy_is_the_share_of_equal_labels():
    assert accuracy(np.array([0, 1, 2, 2]), (0, 1, 1, 2)) == 0.75


@pytest.mark.parametrize("limit", [40, None])
def test_the_majority_is_that_of_scikit_learn(limit, toy):
    spec = toy(truth=0.0)
    splits = parts(spec, limit)
    reference = DummyClassifier(strategy="most_frequent")
    reference.fit(splits["train"].texts, splits["train"].labels)
    expected = reference.score(splits["test"].texts, splits["test"].labels)
    assert majority(spec, limit) == pytest.approx(expected)


def test_the_majority_is_that_of_training_even_where_the_test_has_another(toy):
    train = [(f"text {n}", "no" if n % 4 else "yes") for n in range(40)]
    test = [(f"more {n}", "yes" if n % 5 else "no") for n in range(40)]
    assert majority(toy(train=train, test=test, validation=test), None) == 0.2


@pytest.mark.parametrize("limit", [40, None])
def test_tf_idf_is_that_of_scikit_learn(limit, toy):
    spec, grid = toy(truth=0.4), (0.01, 1.0, 100.0)
    splits = parts(spec, limit)
    fitted = []
    for penalty in grid:
        pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(C=penalty, max_iter=200, tol=1e-3),
        ).fit(splits["train"].texts, splits["train"].labels)
        scores = {
            name: pipeline.score(splits[name].texts, splits[name].labels)
            for name in ("validation", "test")
        }
        fitted.append((scores["validation"], penalty, scores["test"]))
    validation, chosen, test = max(fitted, key=lambda each: each[0])
    found = tf_idf(spec, limit, grid)
    assert found.accuracy == pytest.approx(test)
    assert (found.validation, found.chosen) == (pytest.approx(validation), chosen)
    assert not found.constant


def test_words_alone_decide_a_task_that_a_word_decides(toy):
    spec = toy()
    assert Counter(load_task(spec).splits["train"].labels).keys() == {0, 1}
    assert tf_idf(spec, None, (100.0,)).accuracy > 0.95


@pytest.mark.parametrize("test", [(0, 1), (1, 0)])
def test_the_penalty_is_chosen_on_validation_whatever_the_test_says(test):
    found = best_linear(POINTS, {**LABELS, "test": test}, (1e-6, 1.0, 2.0))
    assert found.chosen == 1.0  # 1e-6 leaves the commonest class; of equals, the first
    assert found.validation == 1.0
    assert found.accuracy == (1.0 if test == (0, 1) else 0.0)


def test_giving_every_text_the_same_class_is_told():
    assert best_linear(POINTS, LABELS, (1e-6,)).constant
    assert not best_linear(POINTS, LABELS, (1.0,)).constant
