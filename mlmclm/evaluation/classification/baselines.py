"""What needs no pretraining: always the commonest class, and words counted (TF-IDF).

Both use scikit-learn. The linear classifier is that of the probe, so that only features differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from mlmclm.corpora.labelled import load_task
from mlmclm.evaluation.classification.features import part_of

Labels = Sequence[int]


@dataclass(frozen=True)
class Outcome:
    """A classifier chosen on validation and measured once on test."""

    accuracy: float
    """Share of test texts, 0 to 1."""
    validation: float
    """Share of validation texts."""
    chosen: float
    """Value of the option that was tuned."""
    constant: bool
    """Whether it gives every test text the same class."""


def accuracy(predicted: NDArray[np.integer], labels: Labels) -> float:
    """Return the share of equal labels."""
    return float(np.mean(predicted == np.asarray(labels)))


def best_linear(
    features: Mapping[str, Any], labels: Mapping[str, Labels], grid: Sequence[float]
) -> Outcome:
    """Fit a logistic regression for each inverse penalty C, choose on validation, test once.

    On one thread: with 2, small fits took 15 times as long on a machine that had other work, since
    threads of BLAS wait for each other in a loop.

    Args:
        features: (texts, features), dense or sparse, of ``train``, ``validation`` and ``test``.
        labels: of the same splits.
        grid: values of C; the first of equals wins.
    """
    fitted = []
    for penalty in grid:
        classifier = LogisticRegression(C=penalty, max_iter=200, tol=1e-3)
        with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
            warnings.simplefilter("ignore", ConvergenceWarning)  # chosen by validation in any case
            classifier.fit(features["train"], labels["train"])
        found = accuracy(classifier.predict(features["validation"]), labels["validation"])
        fitted.append((found, penalty, classifier))
    validation, chosen, classifier = max(fitted, key=lambda each: each[0])
    predicted = classifier.predict(features["test"])
    return Outcome(
        accuracy(predicted, labels["test"]), validation, chosen, len(set(predicted.tolist())) == 1
    )


@lru_cache(maxsize=64)
def majority(task: str, limit: int | None) -> float:
    """Return the test accuracy of the class that is commonest in training."""
    data = load_task(task)
    counts = np.bincount(part_of(data.splits["train"], limit, data.name).labels)
    test = data.splits["test"].labels
    return accuracy(np.full(len(test), counts.argmax()), test)


@lru_cache(maxsize=64)
def tf_idf(task: str, limit: int | None, grid: tuple[float, ...]) -> Outcome:
    """Return a logistic regression on TF-IDF of words and pairs of words."""
    data = load_task(task)
    splits = {**data.splits, "train": part_of(data.splits["train"], limit, data.name)}
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    vectorizer.fit(splits["train"].texts)
    features = {name: vectorizer.transform(split.texts) for name, split in splits.items()}
    labels = {name: split.labels for name, split in splits.items()}
    return best_linear(features, labels, grid)
