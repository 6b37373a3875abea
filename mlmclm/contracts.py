"""Frozen types that all parts share: what goes into a model, what comes out of a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from torch import Tensor

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]

IGNORED = -100
"""Target of a position where nothing is predicted (the value that torch and transformers use)."""


@dataclass(frozen=True)
class Vocabulary:
    """Size of the token set, and the ids that mean something to the machinery."""

    size: int
    pad: int
    end: int
    """Stands between documents, and before the first; begin- and end-of-sequence in one."""
    mask: int
    unknown: int
    """``<unk>``: an ordinary token of WikiText-2, predicted like any other word."""

    @property
    def special(self) -> frozenset[int]:
        """Ids that are never hidden and never generated."""
        return frozenset({self.pad, self.end, self.mask})


@dataclass(frozen=True)
class Batch:
    """Model inputs and what each position must predict."""

    inputs: dict[str, Tensor]
    """Always ``input_ids`` (batch, time)."""
    targets: Tensor
    """(batch, time): logit ``t`` predicts ``targets[:, t]``; `IGNORED` where nothing is asked."""


@dataclass(frozen=True)
class LossSum:
    """Summed negative log-likelihood and its number of targets: added freely, divided once."""

    nats: float = 0.0
    targets: int = 0

    def __add__(self, other: LossSum) -> LossSum:
        return LossSum(self.nats + other.nats, self.targets + other.targets)

    @property
    def mean(self) -> float:
        """Nats per target.

        Raises:
            ValueError: if there was no target, since a mean over nothing is not a number.
        """
        if self.targets == 0:
            raise ValueError("a mean loss over no targets does not exist")
        return self.nats / self.targets


@dataclass(frozen=True)
class Passage:
    """A stretch of text as tokens, with the size of the *original* text beside it."""

    tokens: Tensor
    """(time,) integer ids, no padding."""
    words: int
    """White-space separated words of the original text, and one for each end of line."""
    bytes: int
    """UTF-8 bytes of the original text."""


def perplexity(nats: float) -> float:
    """Return ``exp(nats)``; infinite, not an error, where that is beyond a float."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


Role = Literal["model", "untrained", "baseline"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number, and how it was got. Metric, method, unit and data are its column."""

    metric: str
    method: str
    """Protocol in words. Two methods never share a column."""
    unit: str
    better: Literal["lower", "higher"]
    value: float
    count: int
    """How many things (tokens, words, sentences, repeats) the value is taken over."""
    data: str
    """What it was measured on, such as ``wikitext-2/test`` or ``mr/test``."""
    role: Role = "model"
    """``model``: the run itself. ``untrained``: its architecture without pretraining.
    ``baseline``: needs no run at all, and is the same for all."""
    baseline: str = ""
    """Name of the baseline (``unigram``, ``majority class``, ``from scratch``), else empty."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else belongs to the number: quantiles, chosen learning rate, flags."""


def _refuse_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("a row cannot hold NaN")
    return value


Number = Annotated[float, AfterValidator(_refuse_nan)]


class Strict(BaseModel):
    """Base of typed records: frozen, no unknown keys, no silent conversion, valid JSON for inf."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings")


class Budget(Strict):
    """What a run actually spent on pretraining."""

    steps: int = Field(ge=0)
    tokens: int = Field(ge=0)
    """Input positions read, padding not counted."""
    targets: int = Field(ge=0)
    """Positions that a loss was taken at."""
    flops: float = Field(ge=0)
    """Floating-point operations of forward and backward passes, by formula (2 per multiply-add)."""
    seconds: float = Field(ge=0)
    """Wall-clock time inside training steps, evaluation excluded."""


class Provenance(Strict):
    """All that is needed to tell whether two numbers may be compared, or to get one again."""

    commit: str
    """Of the code; ``unknown`` outside a checkout, ``-dirty`` appended for uncommitted changes."""
    versions: dict[str, str]
    platform: str
    device: str
    threads: int
    dtype: str
    kernel: str
    """Attention implementation."""
    data_hash: str
    tokenizer_hash: str
    config_hash: str
    created: str
    """UTC, ISO 8601."""


class Row(Strict):
    """A measurement with the run that it belongs to: one line of ``rows.jsonl``."""

    experiment: str
    arm: str
    """What is compared; runs of one arm differ by seed only."""
    run: str
    """Folder name of the run."""
    objective: str
    trunk: str
    """Preset or architecture, such as ``tiny`` or ``gpt2-mini``."""
    parameters: int
    seed: int
    metric: str
    method: str
    unit: str
    better: Literal["lower", "higher"]
    value: Number
    count: int
    data: str
    role: Role
    baseline: str
    details: dict[str, Any]
    budget: Budget
    provenance: Provenance

    @property
    def column(self) -> tuple[str, str, str, str]:
        """What a table keeps apart: metric, data, method, unit."""
        return (self.metric, self.data, self.method, self.unit)
