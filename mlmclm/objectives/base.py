"""What an objective is: a frozen dataclass that hides or shifts tokens. It never sees a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mlmclm.attention import Visibility
from mlmclm.contracts import Batch, Vocabulary
from mlmclm.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A pretraining task. Its fields are its options, its TOML table and its record."""

    visibility: ClassVar[Visibility]
    """What a position may be predicted from."""
    loss_name: ClassVar[str]
    """What its mean loss is called; losses of two names are never compared."""

    @abstractmethod
    def corrupt(self, tokens: Tensor, vocabulary: Vocabulary, rng: torch.Generator) -> Batch:
        """Turn (batch, time) tokens into inputs and aligned targets, all chance from ``rng``.

        ``tokens`` is not changed. Logit ``t`` predicts ``targets[:, t]``.
        """

    @abstractmethod
    def target_share(self, block: int) -> float:
        """Return the expected number of targets per input token in blocks of ``block`` tokens."""

    @property
    def options(self) -> dict[str, Any]:
        """The fields by name, as an experiment file would give them."""
        return asdict(self)


OBJECTIVES: Registry[type[Objective]] = Registry("objective")
