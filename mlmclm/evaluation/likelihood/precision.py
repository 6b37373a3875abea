"""The precision that a likelihood is measured in, and the refusal of what is no number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mlmclm.errors import UserError
from mlmclm.evaluation.base import Subject


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute inside the block in the weights' own precision (float32), without gradients.

    Autocast is switched off: bfloat16 is faster on many machines, but its rounding moves losses.
    """
    with torch.inference_mode(), torch.autocast(device.type, enabled=False):
        yield


def checked_nats(nats: float, subject: Subject) -> float:
    """Return ``nats`` as they are.

    Raises:
        UserError: if they are not a number, since then the weights are not either.
    """
    if math.isnan(nats):
        raise UserError(
            f"the loss of {subject.folder} is not a number: its training diverged; train it again "
            "with a lower training.learning_rate"
        )
    return nats
