"""Floating-point operations of training, by formula: 2 per multiply-add, backward twice forward.

Matrix products only (Kaplan et al. 2020, arXiv:2001.08361, section 2.1, with the attention scores
and the output layer counted apart). The output layer runs at targets only, as training does.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from mlmclm.models.token_model import TokenModel


@dataclass(frozen=True)
class Flops:
    """Cost of one forward and backward pass."""

    per_token: float
    """For each input position: linear layers and attention."""
    per_target: float
    """For each target: the head."""

    def total(self, tokens: float, targets: float) -> float:
        """Return the operations for so many tokens and targets."""
        return self.per_token * tokens + self.per_target * targets


def _matrix_weights(module: nn.Module) -> int:
    return sum(
        part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear | Conv1D)
    )


def _layers(network: PreTrainedModel) -> int:
    return int(network.config.num_hidden_layers)


def training_flops(model: TokenModel, block: int) -> Flops:
    """Return the cost of training in blocks of ``block`` tokens.

    Attention is counted over all pairs of positions, whatever the mask hides.
    """
    network = model.network
    trunk = _matrix_weights(network.base_model)
    attention = 4 * _layers(network) * block * model.width
    head = _matrix_weights(network) - trunk
    return Flops(per_token=3 * (2 * trunk + attention), per_target=6 * head)
