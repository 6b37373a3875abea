"""Masked language modelling (Devlin et al. 2019, arXiv:1810.04805, section 3.1 and A.1).

Some tokens are chosen, most of the chosen are shown as ``[MASK]``, some as a random token, some as
they are; each must be predicted from both sides. Masks are drawn anew each time (RoBERTa, Liu et
al. 2019, arXiv:1907.11692, section 4.1). Its loss is not a likelihood of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mlmclm.attention import Visibility
from mlmclm.contracts import IGNORED, Batch, Share, Vocabulary
from mlmclm.objectives.base import OBJECTIVES, Objective


@OBJECTIVES.register("mlm")
@dataclass(frozen=True, kw_only=True)
class MaskedLM(Objective):
    """Predict hidden tokens from both sides (BERT)."""

    visibility: ClassVar[Visibility] = Visibility.FULL
    loss_name: ClassVar[str] = "masked-token loss"

    mask_rate: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Share of ordinary tokens that are chosen for prediction."""
    mask_share: Share = 0.8
    """Share of the chosen that are shown as [MASK]."""
    random_share: Share = 0.1
    """Share of the chosen that are shown as a random token; the rest is shown as it is."""

    def __post_init__(self) -> None:
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise ValueError(
                "mask_share and random_share must add up to at most 1, "
                f"not {self.mask_share + self.random_share:g}"
            )

    def corrupt(self, tokens: Tensor, vocabulary: Vocabulary, rng: torch.Generator) -> Batch:
        """Choose, hide and swap tokens; a row with ordinary tokens always gets a target."""
        ordinary = torch.ones_like(tokens, dtype=torch.bool)
        for special in vocabulary.special:
            ordinary &= tokens != special
        draw = torch.rand(tokens.shape, generator=rng).masked_fill(~ordinary, 2.0)
        lowest = draw == draw.min(dim=1, keepdim=True).values
        chosen = ordinary & ((draw < self.mask_rate) | (lowest & ordinary.any(1, keepdim=True)))

        fate = torch.rand(tokens.shape, generator=rng)
        masked = chosen & (fate < self.mask_share)
        swapped = chosen & ~masked & (fate < self.mask_share + self.random_share)
        anything = torch.randint(vocabulary.size, tokens.shape, generator=rng)

        shown = torch.where(swapped, anything, tokens).masked_fill(masked, vocabulary.mask)
        return Batch({"input_ids": shown}, targets=tokens.masked_fill(~chosen, IGNORED))

    def target_share(self, block: int) -> float:
        """Return the mask rate."""
        return self.mask_rate
