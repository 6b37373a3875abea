"""Who sees whom, and the mask that a model gets for it. The only mask code.

Seen with transformers 5.24: a 4-D additive float mask is obeyed exactly under ``sdpa`` and
``eager``; a 4-D boolean mask under ``eager`` hides nothing, silently. So masks made here are
float, and where a model's own rule is already the right one it gets no mask at all (fast kernels).
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor


class Visibility(Enum):
    """Which positions a position is computed from."""

    FULL = "full"
    """Every position sees every other (BERT)."""
    CAUSAL = "causal"
    """Every position sees itself and what is left of it (GPT)."""

    def allowed(self, time: int) -> Tensor:
        """Return (time, time) booleans: may the row's position see the column's?"""
        everything = torch.ones(time, time, dtype=torch.bool)
        return everything if self is Visibility.FULL else everything.tril()


def additive_mask(
    visibility: Visibility, time: int, real: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return the (batch or 1, 1, time, time) mask to add to attention scores.

    A padding position still sees itself, so that no softmax runs over nothing.

    Args:
        visibility: who may see whom.
        time: number of positions.
        real: (batch, time) booleans, False on padding, or None where there is none.
        dtype: of the scores.
    """
    allowed = visibility.allowed(time)[None, None]
    if real is not None:
        itself = torch.eye(time, dtype=torch.bool, device=real.device)
        allowed = (allowed.to(real.device) & real[:, None, None, :]) | itself
    hidden = torch.finfo(dtype).min
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(
        ~allowed, hidden
    )


def attention_mask(
    wanted: Visibility,
    native: Visibility,
    input_ids: Tensor,
    real: Tensor | None,
    dtype: torch.dtype,
) -> Tensor | None:
    """Return what to pass as ``attention_mask``: nothing, the padding, or an additive mask.

    Args:
        wanted: the visibility that the objective was trained with.
        native: what the network does when it gets no mask.
        input_ids: (batch, time).
        real: (batch, time) booleans, False on padding, or None where there is none.
        dtype: of the attention scores.
    """
    if wanted is native:
        return None if real is None else real.to(torch.long)
    return additive_mask(wanted, input_ids.shape[1], real, dtype).to(input_ids.device)
