"""Pseudo-perplexity of a masked model (Salazar et al. 2020, arXiv:1910.14659).

Hide one token at a time, score it from all the others, add up, divide, exponentiate. This is the
``original`` variant: a hidden piece of a word is predicted from the word's other pieces too, which
flatters words of many pieces (Kauf & Ivanova 2023, arXiv:2305.10588).

The product of these conditionals is no probability of the text: nothing makes them add up to one
over all texts (Torroba Hennigen & Kim 2023, arXiv:2305.15501). So it ranks masked models among each
other on the same passages, and is never to be set beside the perplexity of a causal model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mlmclm import seeds
from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Batch, Count, Measurement, Passage, Vocabulary, perplexity
from mlmclm.corpora import lines_of, words_in
from mlmclm.errors import UserError
from mlmclm.evaluation.base import EVALUATORS, Evaluator, Subject
from mlmclm.evaluation.likelihood.counting import counts_of, nats_of
from mlmclm.evaluation.likelihood.precision import checked_nats, full_precision
from mlmclm.models.token_model import TokenModel

SHORTEST = 8
"""Tokens of the shortest line that is scored."""
HEADING = re.compile(r"\s*= .* =\s*")


def one_mask_each(tokens: Tensor, vocabulary: Vocabulary) -> Batch:
    """Return a copy (tokens, tokens + 2) of a line for each of its tokens, with that one hidden.

    Each copy stands between two end-of-document tokens, as it would if it were a document.

    Args:
        tokens: (tokens,).
        vocabulary: of the tokens.
    """
    each = torch.arange(len(tokens))
    inputs = pad(tokens, (1, 1), value=vocabulary.end).repeat(len(tokens), 1)
    targets = torch.full_like(inputs, IGNORED)
    targets[each, each + 1] = tokens
    inputs[each, each + 1] = vocabulary.mask
    return Batch({"input_ids": inputs}, targets)


@EVALUATORS.register("pseudo_perplexity")
@dataclass(frozen=True, kw_only=True)
class PseudoPerplexity(Evaluator):
    """Pseudo-perplexity of a masked model on sampled lines, one hidden token at a time.

    Lines are drawn by seed from those of the split that are no heading and have at least 8 tokens
    and, with an end token on both sides, fit a training block. Their end of line is scored.
    """

    group: ClassVar[str] = "likelihood"

    passages: Count = 32
    """Lines to draw; all that fit where there are fewer."""
    split: Literal["train", "validation", "test"] = "test"
    seed: int = 0
    """Of the draw of lines, not of the run."""
    rows: Count = 64
    """Masked copies per forward pass. Changes speed and memory, never the value."""

    def refusal(self, subject: Subject) -> str | None:
        """Refuse models that do not see to the right of a hidden token."""
        if subject.model.visibility is not Visibility.CAUSAL:
            return None
        return (
            f"{subject.folder.name} is causal: it predicts no token from both sides, so it has no "
            "pseudo-perplexity; causal measures its true perplexity"
        )

    def check(self, subject: Subject) -> None:
        """See that there are lines to draw."""
        self.sample(subject)

    def measure(self, subject: Subject) -> list[Measurement]:
        """Score the model, and uniform, unigram and bigram predictors on the same lines."""
        lines = self.sample(subject)
        with full_precision(subject.model.device):
            nats = sum(self._nats(subject.model, line.tokens) for line in lines)
        checked_nats(nats, subject)

        same = {
            "method": (
                f"original, one mask at a time, {len(lines)} passages of {SHORTEST} to "
                f"{subject.block - 2} tokens, seed {self.seed}"
            ),
            "data": f"{subject.corpus.name}/{self.split}",
        }
        rows = _measurements(nats, lines, **same)
        for name, floor in _floors(subject, lines).items():
            rows += _measurements(floor, lines, **same, role="baseline", baseline=name)
        return rows

    def sample(self, subject: Subject) -> list[Passage]:
        """Return the lines that are scored, in the order of the text.

        Raises:
            UserError: if no line fits.
        """
        fitting = [
            line
            for line in _lines(subject, self.split)
            if SHORTEST <= len(line.tokens) <= subject.block - 2
        ]
        if not fitting:
            raise UserError(
                f"{subject.corpus.name}/{self.split} has no line of {SHORTEST} to "
                f"{subject.block - 2} tokens to draw for evaluation.pseudo_perplexity; leave this "
                "metric out, or train with a longer corpus.block"
            )
        order = torch.randperm(len(fitting), generator=seeds.generator(self.seed, "passages"))
        return [fitting[number] for number in sorted(order[: self.passages].tolist())]

    def _nats(self, model: TokenModel, tokens: Tensor) -> float:
        copies = one_mask_each(tokens, model.vocabulary)
        batches = zip(
            copies.inputs["input_ids"].split(self.rows),
            copies.targets.split(self.rows),
            strict=True,
        )
        return sum(
            float(model.nats(shown.to(model.device), asked.to(model.device)))
            for shown, asked in batches
        )


def _lines(subject: Subject, split: str) -> Iterator[Passage]:
    """Yield each line of running text with its end of line, as tokens."""
    texts = [
        line
        for document in subject.corpus.documents(split)
        for line in lines_of(document)
        if line.strip() and not HEADING.fullmatch(line)
    ]
    for text, ids in zip(texts, subject.tokenizer.encode_many(texts), strict=True):
        yield Passage(torch.tensor(ids), words_in(text), len(text.encode()))


def _floors(subject: Subject, lines: list[Passage]) -> dict[str, float]:
    """Return the nats of counting; the bigram sees the left neighbour, which is never hidden."""
    counts = counts_of(subject.corpus, subject.tokenizer)
    end = subject.model.vocabulary.end
    tokens = np.concatenate([line.tokens.numpy() for line in lines])
    before = np.concatenate([pad(line.tokens[:-1], (1, 0), value=end).numpy() for line in lines])
    return {
        "uniform": nats_of(counts.uniform(tokens)),
        "unigram": nats_of(counts.unigram(tokens)),
        "bigram": nats_of(counts.bigram(before, tokens)),
    }


def _measurements(nats: float, lines: list[Passage], **same: Any) -> list[Measurement]:
    tokens = sum(len(line.tokens) for line in lines)
    words = sum(line.words for line in lines)
    number = partial(Measurement, metric="pseudo-perplexity", better="lower", **same)
    return [
        number(unit="1/word", value=perplexity(nats / words), count=words),
        number(unit="1/token", value=perplexity(nats / tokens), count=tokens),
    ]
