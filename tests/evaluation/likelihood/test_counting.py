"""Counting against dictionaries and enumeration, on vocabularies of a few tokens."""

import collections
import itertools

import numpy as np
import pytest

from mlmclm.evaluation.likelihood.counting import DISCOUNT, ContextFree, Counts, counts_of, nats_of

SIZE = 5
STREAM = np.array([1, 2, 3, 2, 3, 3, 1, 2, 4, 1, 2, 3, 2], np.uint16)


@pytest.fixture
def counts():
    return Counts.of(STREAM, SIZE)


def test_every_distribution_adds_up_to_one(counts):
    everything = np.arange(SIZE)
    assert counts.uniform(everything).sum() == pytest.approx(1)
    assert counts.unigram(everything).sum() == pytest.approx(1)
    for before in everything:  # 0 never occurs
        assert counts.bigram(np.full(SIZE, before), everything).sum() == pytest.approx(1)
        assert (counts.bigram(np.full(SIZE, before), everything) > 0).all()


def test_they_are_what_dictionaries_count(counts):
    single = collections.Counter(STREAM.tolist())
    pairs = collections.Counter(itertools.pairwise(STREAM.tolist()))

    def unigram(token):
        freed = DISCOUNT * len(single)
        return (max(single[token] - DISCOUNT, 0) + freed / SIZE) / len(STREAM)

    def bigram(before, token):
        after = {b: n for (a, b), n in pairs.items() if a == before}
        if not after:
            return unigram(token)
        kept = max(after.get(token, 0) - DISCOUNT, 0)
        return (kept + DISCOUNT * len(after) * unigram(token)) / sum(after.values())

    for before, token in itertools.product(range(SIZE), repeat=2):
        (one,), (two,) = (
            counts.unigram(np.array([token])),
            counts.bigram(np.array([before]), np.array([token])),
        )
        assert (one, two) == pytest.approx((unigram(token), bigram(before, token)))


PRIOR = np.array([0.05, 0.5, 0.3, 0.0, 0.15])
MASK = 3
FLOOR = ContextFree(PRIOR, MASK, keep_share=0.1, random_share=0.1)


def posterior():
    """Enumerate what is asked, what happens to it and what is shown: joint[answer, shown]."""
    size = len(PRIOR)
    joint = np.zeros((size, size))
    for answer in range(size):
        joint[answer, MASK] += PRIOR[answer] * 0.8
        joint[answer, answer] += PRIOR[answer] * 0.1
        for drawn in range(size):
            joint[answer, drawn] += PRIOR[answer] * 0.1 / size
    return joint / joint.sum(0)


def test_the_context_free_floor_is_bayes_rule_on_the_corruption():
    answers, shown = (grid.ravel() for grid in np.indices((5, 5)))
    found = FLOOR.probabilities(shown, answers).reshape(5, 5)
    np.testing.assert_allclose(found, posterior(), atol=1e-12)


def test_its_guess_is_the_most_probable_answer():
    assert FLOOR.guesses(np.arange(5)).tolist() == posterior().argmax(0).tolist()
    rare = ContextFree(np.array([0.01, 0.99]), mask=9, keep_share=0.01, random_share=0.5)
    assert rare.guesses(np.array([0])).tolist() == [1]
    hidden = ContextFree(np.array([0.4, 0.6]), mask=0, keep_share=0.5, random_share=0.1)
    assert hidden.guesses(np.array([0])).tolist() == [1]


def test_nats_are_summed_and_positive():
    assert nats_of(np.array([0.5, 0.25])) == pytest.approx(3 * np.log(2))


def test_a_split_is_counted_once_in_a_process(corpus, tokenizer):
    found = counts_of(corpus, tokenizer)
    assert counts_of(type(corpus)(corpus.name, dict(corpus.splits)), tokenizer) is found
    words = tokenizer.encode(" the")
    assert found.unigrams[words[0]] > found.unigrams.mean()
