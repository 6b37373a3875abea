"""Likelihood of a causal model: the chain rule, left to right.

log p(text) is the sum of log p(token | tokens before it), so this is a likelihood of the text. In
nats per word and bits per byte it may be compared with any other left-to-right likelihood of the
same text, whatever the tokenizer; per token, with models of the same tokenizer only. Context and
stride are part of the method, since both move the number (lm-evaluation-harness, issue 369). It
may never be compared with a masked-token loss or a pseudo-perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Count, Measurement, Passage, perplexity
from mlmclm.corpora.packing import passages
from mlmclm.errors import UserError
from mlmclm.evaluation.base import EVALUATORS, Evaluator, Subject
from mlmclm.evaluation.likelihood.counting import counts_of, nats_of
from mlmclm.evaluation.likelihood.precision import checked_nats, full_precision
from mlmclm.models.token_model import TokenModel

FIRST_TOKEN = "predicted from the end-of-document token before it, which is not scored"


@dataclass(frozen=True)
class Window:
    """Input positions ``start`` to ``stop`` of a document whose position 0 is the end token.

    Position ``t`` predicts position ``t + 1``; those from ``fresh`` on are scored here.
    """

    start: int
    stop: int
    fresh: int


def windows(tokens: int, context: int, stride: int) -> Iterator[Window]:
    """Yield windows that score each of a document's tokens exactly once.

    Seven tokens ``a`` to ``g`` after the end token ``|``, context 4, stride 2::

        window     inputs     scored
        (0, 4, 0)  | a b c    a b c d
        (2, 6, 4)  b c d e    e f
        (3, 7, 6)  c d e f    g

    Every token sees at least ``context - stride + 1`` tokens (or all there are since the document
    began) and at most ``context``. The last window reaches back a full context, so only a document
    shorter than the context has a window of another length.
    """
    fresh = 0
    while fresh < tokens:
        stop = min(tokens, fresh + (stride if fresh else context))
        yield Window(max(0, stop - context), stop, fresh)
        fresh = stop


def inputs_and_targets(document: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """Return what a window shows and asks, both (window,).

    Args:
        document: (1 + tokens,), the end token first.
        window: of this document.
    """
    targets = document[window.start + 1 : window.stop + 1].clone()
    targets[: window.fresh - window.start] = IGNORED
    return document[window.start : window.stop], targets


@EVALUATORS.register("causal")
@dataclass(frozen=True, kw_only=True)
class CausalLikelihood(Evaluator):
    """Left-to-right likelihood of a causal model: nats per token and word, bits per byte.

    The end-of-document token opens each document, as in training: the first token is predicted
    from it alone, and it is never scored itself. Documents do not see each other. Softmax is in
    float32; sums are in float64 and divided once.
    """

    group: ClassVar[str] = "likelihood"

    context: Count | None = None
    """Most tokens that a prediction sees; the training block where none is given."""
    stride: Count | None = None
    """Tokens by which windows move on; half the context where none is given."""
    split: Literal["train", "validation", "test"] = "test"
    batch_size: Count = 32
    """Windows per forward pass. Changes speed and memory, never the value."""
    limit: Count | None = None
    """Documents to score, from the first on; all where none is given. Part of the method."""

    def refusal(self, subject: Subject) -> str | None:
        """Refuse models that see ahead: their predictions are no factors of a likelihood."""
        if subject.model.visibility is Visibility.CAUSAL:
            return None
        return (
            f"{subject.folder.name} sees tokens to the right of the one that it predicts, so it "
            "has no left-to-right likelihood; masked_token and pseudo_perplexity measure it"
        )

    def check(self, subject: Subject) -> None:
        """See that context, stride and positions fit together."""
        self._sizes(subject)

    def measure(self, subject: Subject) -> list[Measurement]:
        """Score the model, and uniform, unigram and bigram predictors on the same tokens."""
        context, stride = self._sizes(subject)
        texts = passages(subject.corpus, self.split, subject.tokenizer)[: self.limit]
        end = subject.model.vocabulary.end
        documents = [pad(text.tokens, (1, 0), value=end) for text in texts]
        with full_precision(subject.model.device):
            nats = checked_nats(self._nats(subject.model, documents, context, stride), subject)

        first = "" if self.limit is None else f", first {self.limit} documents"
        same = {
            "method": f"left to right, context {context}, stride {stride}{first}",
            "data": f"{subject.corpus.name}/{self.split}",
        }
        rows = _measurements(nats, texts, **same, details={"first_token": FIRST_TOKEN})
        for name, floor in _floors(subject, documents).items():
            rows += _measurements(floor, texts, **same, role="baseline", baseline=name)
        return rows

    def _sizes(self, subject: Subject) -> tuple[int, int]:
        context = self.context or subject.block
        stride = self.stride or max(1, context // 2)
        if context > subject.model.positions:
            raise UserError(
                f"evaluation.causal.context is {context}, but {subject.folder.name} has only "
                f"{subject.model.positions} positions"
            )
        if stride > context:
            raise UserError(
                f"evaluation.causal.stride must be at most the context, {context}, not {stride}: "
                "tokens between two windows would never be scored"
            )
        return context, stride

    def _nats(self, model: TokenModel, documents: list[Tensor], context: int, stride: int) -> float:
        parts = [
            (document, window)
            for document in documents
            for window in windows(len(document) - 1, context, stride)
        ]
        parts.sort(key=lambda part: part[1].stop - part[1].start)
        nats = 0.0
        for first in range(0, len(parts), self.batch_size):
            batch = [inputs_and_targets(*part) for part in parts[first : first + self.batch_size]]
            nats += _batch_nats(model, batch)
        return nats


def _batch_nats(model: TokenModel, batch: list[tuple[Tensor, Tensor]]) -> float:
    lengths = torch.tensor([len(shown) for shown, _ in batch])
    inputs, targets = (
        pad_sequence(list(part), batch_first=True, padding_value=value).to(model.device)
        for part, value in zip(
            zip(*batch, strict=True), (model.vocabulary.pad, IGNORED), strict=True
        )
    )
    real = None
    if int(lengths.min()) < inputs.shape[1]:
        real = (torch.arange(inputs.shape[1]) < lengths[:, None]).to(model.device)
    return float(model.nats(inputs, targets, real))


def _floors(subject: Subject, documents: list[Tensor]) -> dict[str, float]:
    """Return the nats of counting, summed over all documents."""
    counts = counts_of(subject.corpus, subject.tokenizer)
    before = np.concatenate([document[:-1].numpy() for document in documents])
    tokens = np.concatenate([document[1:].numpy() for document in documents])
    return {
        "uniform": nats_of(counts.uniform(tokens)),
        "unigram": nats_of(counts.unigram(tokens)),
        "bigram": nats_of(counts.bigram(before, tokens)),
    }


def _measurements(nats: float, texts: list[Passage], **same: Any) -> list[Measurement]:
    """Divide nats summed over texts by their tokens, words and bytes."""
    tokens = sum(len(text.tokens) for text in texts)
    words = sum(text.words for text in texts)
    size = sum(text.bytes for text in texts)
    loss = partial(Measurement, metric="negative log-likelihood", better="lower", **same)
    surprise = partial(Measurement, metric="perplexity", better="lower", **same)
    return [
        loss(unit="nats/token", value=nats / tokens, count=tokens),
        loss(unit="nats/word", value=nats / words, count=words),
        loss(unit="bits/byte", value=nats / math.log(2) / size, count=size),
        surprise(unit="1/token", value=perplexity(nats / tokens), count=tokens),
        surprise(unit="1/word", value=perplexity(nats / words), count=words),
    ]
