"""What counting achieves on the same tokens: the floors that every likelihood is read beside.

All counts are taken from the token stream of the training split, with absolute discounting (Ney,
Essen & Kneser 1994): `DISCOUNT` is taken off each count and handed to a coarser predictor.

uniform       1 / V
unigram       how often the token occurs; what is taken off is spread over the vocabulary
bigram        how often the token follows the one before; what is taken off goes to the unigram
context-free  for masked models only: the best guess from what is shown in the token's own place

A model that does not beat the last of them has learned word frequencies and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmclm.corpora import Corpus
from mlmclm.corpora.packing import token_stream
from mlmclm.tokenization import TextTokenizer

DISCOUNT = 0.75
"""Taken off each count; the usual value. Leaving one out gives 0.68 for bigrams of WikiText-2."""

Tokens = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Counts:
    """Predictors counted from one stream. Each gives the probabilities (n,) of n tokens."""

    size: int
    """Of the vocabulary."""
    unigrams: Floats
    """(size,), adds up to 1; no token has probability 0."""
    pairs: NDArray[np.int64]
    """Sorted codes ``before * size + after`` of the pairs that occur."""
    pair_counts: NDArray[np.int64]
    """How often each of them occurs."""

    @classmethod
    def of(cls, tokens: Tokens, size: int) -> Counts:
        """Count a stream (time,) of tokens out of ``size``."""
        stream = np.asarray(tokens, np.int64)
        pairs, pair_counts = np.unique(stream[:-1] * size + stream[1:], return_counts=True)
        return cls(size, _unigrams(np.bincount(stream, minlength=size)), pairs, pair_counts)

    @cached_property
    def _running(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.pair_counts)])

    def uniform(self, tokens: Tokens) -> Floats:
        """Return the same for every token."""
        return np.full(len(tokens), 1 / self.size)

    def unigram(self, tokens: Tokens) -> Floats:
        """Return p(token)."""
        return np.asarray(self.unigrams[tokens])

    def bigram(self, before: Tokens, tokens: Tokens) -> Floats:
        """Return p(token | before), element by element."""
        start = np.asarray(before, np.int64) * self.size
        place = np.searchsorted(self.pairs, start + tokens).clip(max=len(self.pairs) - 1)
        count = np.where(self.pairs[place] == start + tokens, self.pair_counts[place], 0)

        first, last = np.searchsorted(self.pairs, np.stack([start, start + self.size]))
        total = self._running[last] - self._running[first]
        freed = np.where(total > 0, DISCOUNT * (last - first), 1)
        backed_off = freed * self.unigrams[tokens]
        return (np.maximum(count - DISCOUNT, 0) + backed_off) / np.maximum(total, 1)  # type: ignore[no-any-return]

    def best_after(self, before: Tokens) -> Tokens:
        """Return the most probable token behind each token by `bigram`."""
        commonest = int(self.unigrams.argmax())  # the best of all that never follow
        distinct, places = np.unique(before, return_inverse=True)
        best = np.empty(len(distinct), np.int64)
        for number, token in enumerate(distinct.astype(np.int64)):
            ends = np.searchsorted(self.pairs, [token * self.size, (token + 1) * self.size])
            candidates = np.append(self.pairs[slice(*ends)] % self.size, commonest)
            chances = self.bigram(np.full(len(candidates), token), candidates)
            best[number] = candidates[chances.argmax()]
        return best[places]


def _unigrams(counts: NDArray[np.int64]) -> Floats:
    kept = np.maximum(counts - DISCOUNT, 0)
    total = counts.sum()
    return np.asarray((kept + (total - kept.sum()) / len(counts)) / total, np.float64)


@dataclass(frozen=True, eq=False)
class ContextFree:
    """The best prediction of a chosen token from what is shown in its own place.

    Bayes' rule on the corruption itself: ``[MASK]`` says nothing, so the unigram remains; a token
    ``x`` is there because it was kept or because it was drawn at random, so p(y | x) is
    proportional to ``p(y) * (keep_share * [y == x] + random_share / V)``.
    """

    unigrams: Floats
    mask: int
    keep_share: float
    """Share of the chosen that are shown as they are."""
    random_share: float
    """Share of the chosen that are shown as a token drawn from the whole vocabulary."""

    def probabilities(self, shown: Tokens, answers: Tokens) -> Floats:
        """Return p(answer | shown), element by element."""
        found = self.unigrams[answers].copy()
        seen = np.asarray(shown != self.mask)
        kept = self.keep_share * self.unigrams[shown[seen]]
        drawn = self.random_share / len(self.unigrams)
        found[seen] *= drawn
        found[seen] += np.where(shown[seen] == answers[seen], kept, 0)
        found[seen] /= kept + drawn
        return found

    def guesses(self, shown: Tokens) -> Tokens:
        """Return the most probable answer for each shown token."""
        best = int(self.unigrams.argmax())
        drawn = self.random_share / len(self.unigrams)
        itself = (self.keep_share + drawn) * self.unigrams[shown] > drawn * self.unigrams[best]
        return np.where(itself & (shown != self.mask), shown, best)


def nats_of(probabilities: Floats) -> float:
    """Return the negative log-likelihood, summed."""
    return float(-np.log(probabilities).sum())


@dataclass(frozen=True)
class _Source:
    """Hashable by content, so that counting is done once in a process."""

    corpus_hash: str
    tokenizer_hash: str
    corpus: Corpus = field(compare=False)
    tokenizer: TextTokenizer = field(compare=False)


@lru_cache(maxsize=4)
def _counts(source: _Source) -> Counts:
    stream = token_stream(source.corpus, "train", source.tokenizer)
    return Counts.of(stream.tokens, source.tokenizer.vocabulary.size)


def counts_of(corpus: Corpus, tokenizer: TextTokenizer) -> Counts:
    """Return the counts of a corpus' training split, counted once in a process."""
    return _counts(_Source(corpus.hash, tokenizer.hash, corpus, tokenizer))
