import random

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mlmclm.attention import Visibility
from mlmclm.evaluation.classification import LinearProbe
from mlmclm.evaluation.classification.features import mean, pooled


def shuffled(seed, count):
    """Make a task of the same words, whose labels know nothing of them."""
    rng = random.Random(seed)
    words = ["good", "bad", "the", "cat", "sees", "rain"]
    return [(" ".join(rng.choices(words, k=6)), rng.choice(("good", "bad"))) for _ in range(count)]


@pytest.mark.parametrize("visibility", list(Visibility))
def test_a_task_that_a_word_decides_is_learnt(visibility, toy, lab):
    row = LinearProbe(tasks=(toy(train_size=400),)).measure(lab(visibility))[0]
    assert row.value > 0.9


def test_a_task_with_shuffled_labels_is_not_learnt(toy, lab):
    sizes = {"train": 96, "validation": 60, "test": 200}
    spec = toy(**{name: shuffled(name, size) for name, size in sizes.items()})
    row = LinearProbe(tasks=(spec,), penalties=(100.0,)).measure(lab())[0]  # fits what it sees
    assert row.value == pytest.approx(0.5, abs=0.14)  # 4 standard errors


def test_the_probe_is_the_linear_classifier_of_scikit_learn_on_scaled_features(toy, lab, material):
    found = material(toy(truth=0.6))
    subject = lab()
    outcome, details = LinearProbe(penalties=(0.01,)).outcome(subject.model, found, subject)
    features = {name: pooled(subject.model, each, mean) for name, each in found.encoded.items()}
    reference = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.01, max_iter=200, tol=1e-3)
    ).fit(features["train"].numpy(), found.splits["train"].labels)
    predicted = reference.predict(features["test"].numpy())
    expected = np.mean(predicted == np.array(found.splits["test"].labels))
    assert outcome.accuracy == pytest.approx(float(expected))
    assert details == {"C": 0.01}


def test_the_pooling_asked_for_is_the_one_used(toy, lab):
    subject = lab()
    spec = toy()
    values = {
        pooling: LinearProbe(tasks=(spec,), pooling=pooling)
        .measure(lab(Visibility.CAUSAL, model=subject.model))[1]
        .value
        for pooling in ("first", "mean")
    }
    assert values["first"] < 0.7 < values["mean"]  # what is first sees the end token only
