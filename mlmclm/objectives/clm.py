"""Causal language modelling: predict the next token from all before it (Radford et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Batch, Vocabulary
from mlmclm.objectives.base import OBJECTIVES, Objective


@OBJECTIVES.register("clm")
@dataclass(frozen=True, kw_only=True)
class CausalLM(Objective):
    """Predict the next token from what is left of it (GPT)."""

    visibility: ClassVar[Visibility] = Visibility.CAUSAL
    loss_name: ClassVar[str] = "negative log-likelihood"

    def corrupt(self, tokens: Tensor, vocabulary: Vocabulary, rng: torch.Generator) -> Batch:
        """Show everything; the target of each position is its right neighbour."""
        targets = torch.full_like(tokens, IGNORED)
        targets[:, :-1] = tokens[:, 1:]
        return Batch({"input_ids": tokens}, targets.masked_fill(targets == vocabulary.pad, IGNORED))

    def target_share(self, block: int) -> float:
        """Return the share of positions that have a right neighbour."""
        return (block - 1) / block
