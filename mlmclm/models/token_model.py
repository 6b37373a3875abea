"""Any Hugging Face language model, seen as: token ids in, hidden states or logits out.

It knows who may see whom, so that no caller ever builds a mask, and it never passes ``labels``:
``GPT2LMHeadModel`` shifts them and ``BertForMaskedLM`` does not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mlmclm.attention import Visibility, attention_mask
from mlmclm.contracts import IGNORED, Vocabulary
from mlmclm.models.heads import head_transform, linear_cross_entropy


def _position_offset(network: nn.Module) -> int:
    """Return how many positions no token ever has: RoBERTa begins behind the padding's own."""
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


class TokenModel(nn.Module):
    """A trunk, a head and a visibility."""

    def __init__(
        self,
        network: PreTrainedModel,
        visibility: Visibility,
        native: Visibility,
        vocabulary: Vocabulary,
    ) -> None:
        super().__init__()
        self.network = network
        self.visibility = visibility
        """Who sees whom when this model is used."""
        self.native = native
        """Who sees whom when the network gets no mask."""
        self.vocabulary = vocabulary
        self._transform = [head_transform(network)]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return int(self.network.config.hidden_size)

    @property
    def positions(self) -> int:
        """Longest input that the model has positions for."""
        return int(self.network.config.max_position_embeddings) - _position_offset(self.network)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Attention implementations that the network can use, the preferred first."""
        return ("sdpa", "eager") if self.network._supports_sdpa else ("eager",)

    @property
    def parameters_total(self) -> int:
        """Number of weights, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def hidden(self, input_ids: Tensor, real: Tensor | None = None) -> Tensor:
        """Return the last hidden states (batch, time, width).

        Args:
            input_ids: (batch, time).
            real: (batch, time) booleans, False on padding; padding stands on the right.
        """
        output = self.network.base_model(
            input_ids=input_ids, attention_mask=self.mask(input_ids, real), **self._no_cache()
        )
        return output.last_hidden_state  # type: ignore[no-any-return]

    def mask(self, input_ids: Tensor, real: Tensor | None = None) -> Tensor | None:
        """Return what the network is given as ``attention_mask``; see `attention_mask`."""
        return attention_mask(self.visibility, self.native, input_ids, real, self.network.dtype)

    def _no_cache(self) -> dict[str, bool]:
        return {"use_cache": False} if self.native is Visibility.CAUSAL else {}

    def logits_of(self, hidden: Tensor) -> Tensor:
        """Return logits (..., vocabulary) of hidden states (..., width)."""
        return self.network.get_output_embeddings()(self._transform[0](hidden))  # type: ignore[no-any-return]

    def logits(self, input_ids: Tensor, real: Tensor | None = None) -> Tensor:
        """Return logits (batch, time, vocabulary)."""
        return self.logits_of(self.hidden(input_ids, real))

    def nats(self, input_ids: Tensor, targets: Tensor, real: Tensor | None = None) -> Tensor:
        """Return the cross-entropy in nats, summed over all targets that are not `IGNORED`.

        The head runs at those positions only, and logits exist one chunk at a time.
        """
        hidden = self.hidden(input_ids, real)
        asked = targets != IGNORED
        output = self.network.get_output_embeddings()
        return linear_cross_entropy(
            self._transform[0](hidden[asked]), output.weight, output.bias, targets[asked]
        )
