"""The module that Trainer trains: ``forward`` returns the loss, so that autocast reaches it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mlmclm.contracts import IGNORED, LossSum
from mlmclm.models.token_model import TokenModel


class Pretrainer(nn.Module):
    """A token model with its loss, and counts of what it has been trained on."""

    accepts_loss_kwargs = True
    """Trainer passes ``num_items_in_batch``: targets over all micro-batches and ranks of a step."""

    targets_seen: Tensor
    nats_seen: Tensor
    seconds_spent: Tensor

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("targets_seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("nats_seen", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seconds_spent", torch.zeros((), dtype=torch.float64))
        self.register_state_dict_post_hook(_drop_tied)
        self.register_load_state_dict_pre_hook(_restore_tied)

    @property
    def seen(self) -> LossSum:
        """Training loss and number of targets since the first step of the run."""
        return LossSum(float(self.nats_seen), int(self.targets_seen))

    def forward(
        self, input_ids: Tensor, labels: Tensor, num_items_in_batch: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return ``loss``: summed nats over the number of targets of the whole step.

        Args:
            input_ids: (batch, time).
            labels: (batch, time) aligned targets, as `Batch.targets`; named as Trainer wants it.
            num_items_in_batch: targets of the step; of this batch where Trainer gives none.
        """
        nats = self.model.nats(input_ids, labels)
        targets = (labels != IGNORED).sum()
        if self.training:
            self.targets_seen += targets
            self.nats_seen += nats.detach()
        return {"loss": nats / (targets if num_items_in_batch is None else num_items_in_batch)}


def _tied_names(module: nn.Module) -> dict[str, str]:
    """Return each name of a shared weight beside the name that it was first seen under."""
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        kept = first.setdefault(id(parameter), name)
        if kept != name:
            tied[name] = kept
    return tied


def _drop_tied(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Keep one name for a shared weight: safetensors refuses two."""
    for name in _tied_names(module):
        state.pop(prefix + name, None)


def _restore_tied(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, kept in _tied_names(module).items():
        if prefix + kept in state:
            state.setdefault(prefix + name, state[prefix + kept])
