"""Texts to vectors: padded batches of similar length, and pooling over the tokens that are real.

Every text begins with the end-of-document token, as documents do in pretraining.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlmclm import seeds
from mlmclm.corpora.labelled import LabelledSplit
from mlmclm.errors import UserError
from mlmclm.evaluation.base import Subject
from mlmclm.models.token_model import TokenModel
from mlmclm.registry import Registry
from mlmclm.tokenization import TextTokenizer

Pooling = Callable[[Tensor, Tensor], Tensor]
POOLINGS: Registry[Pooling] = Registry("pooling")


@POOLINGS.register("first")
def first(hidden: Tensor, real: Tensor) -> Tensor:
    """Return the state of the first token (BERT's [CLS] place).

    Args:
        hidden: (batch, time, width).
        real: (batch, time), False on padding.
    """
    return hidden[:, 0]


@POOLINGS.register("last")
def last(hidden: Tensor, real: Tensor) -> Tensor:
    """Return the state of the last token that is no padding (GPT)."""
    return hidden[torch.arange(len(hidden), device=hidden.device), real.sum(1) - 1]


@POOLINGS.register("mean")
def mean(hidden: Tensor, real: Tensor) -> Tensor:
    """Return the mean over all tokens that are no padding."""
    weights = real.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1)


@dataclass(frozen=True)
class Encoded:
    """Token ids of texts."""

    ids: tuple[tuple[int, ...], ...]
    truncated: int
    """How many texts were cut to the longest length allowed."""

    def batch(self, places: Sequence[int], pad: int) -> tuple[Tensor, Tensor]:
        """Return (batch, time) ids padded on the right, and which of them are real."""
        chosen = [self.ids[place] for place in places]
        longest = max(map(len, chosen))
        tokens = torch.tensor([[*ids, *[pad] * (longest - len(ids))] for ids in chosen])
        lengths = torch.tensor([len(ids) for ids in chosen])
        return tokens, torch.arange(longest)[None] < lengths[:, None]


def encode(tokenizer: TextTokenizer, texts: Sequence[str], longest: int) -> Encoded:
    """Tokenize texts and cut what is longer than ``longest`` tokens."""
    end = tokenizer.vocabulary.end
    ids = [(end, *each) for each in tokenizer.encode_many(texts)]
    return Encoded(tuple(each[:longest] for each in ids), sum(len(each) > longest for each in ids))


def by_length(encoded: Encoded, size: int) -> list[list[int]]:
    """Return the places of texts in batches of similar length, the short ones first."""
    order = sorted(range(len(encoded.ids)), key=lambda place: len(encoded.ids[place]))
    return [order[start : start + size] for start in range(0, len(order), size)]


@torch.inference_mode()
def pooled(model: TokenModel, encoded: Encoded, pooling: Pooling, size: int = 64) -> Tensor:
    """Return (texts, width) features in float32, in the order of the texts."""
    found = torch.empty(len(encoded.ids), model.width)
    for places in by_length(encoded, size):
        tokens, real = encoded.batch(places, model.vocabulary.pad)
        tokens, real = tokens.to(model.device), real.to(model.device)
        found[places] = pooling(model.hidden(tokens, real), real).float().cpu()
    return found


def part_of(split: LabelledSplit, limit: int | None, task: str) -> LabelledSplit:
    """Return at most ``limit`` rows, drawn once and for all: the same for every run and arm.

    Raises:
        UserError: if they all have the same label, so that there is nothing to tell apart.
    """
    rng = seeds.generator(0, "classification", task)
    order = torch.randperm(len(split), generator=rng).tolist()[:limit]
    if len({split.labels[place] for place in order}) < 2:
        raise UserError(
            f"task {task}: the {len(order)} training sentences that training_limit leaves have one "
            f"label only; there are {len(split)}, so take more"
        )
    return LabelledSplit(
        tuple(split.texts[place] for place in order), tuple(split.labels[place] for place in order)
    )


def longest_of(subject: Subject, wanted: int | None) -> int:
    """Return the number of tokens that texts are cut to: never more than there are positions."""
    return min(wanted or subject.block, subject.model.positions)


def batches_of(encoded: Encoded, size: int, rng: torch.Generator) -> Iterator[list[int]]:
    """Yield batches of similar length in random order; which texts meet is random too."""
    order = torch.randperm(len(encoded.ids), generator=rng).tolist()
    stretch = 8 * size
    batches = []
    for start in range(0, len(order), stretch):
        near = sorted(order[start : start + stretch], key=lambda place: len(encoded.ids[place]))
        batches += [near[cut : cut + size] for cut in range(0, len(near), size)]
    for place in torch.randperm(len(batches), generator=rng).tolist():
        yield batches[place]
