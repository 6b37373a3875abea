"""What a decoder is: it writes a fixed number of new tokens behind a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mlmclm.errors import UserError
from mlmclm.models.token_model import TokenModel

Notice = Callable[[int], None]
"""Called whenever tokens have arrived, with their number."""


def ignore(tokens: int) -> None:
    """Take no notice."""


@dataclass(frozen=True, kw_only=True)
class Decoder(ABC):
    """A way of generating. Its fields are its options."""

    @abstractmethod
    def refusal(self, model: TokenModel) -> str | None:
        """Return why the model cannot be decoded like this, or None where it can."""

    def cached(self, model: TokenModel) -> bool:
        """Tell whether keys and values of earlier positions are kept."""
        return False

    @abstractmethod
    def passes(self, new_tokens: int) -> int:
        """Return the number of forward passes for so many tokens."""

    @abstractmethod
    def describe(self, model: TokenModel) -> str:
        """Name the decoder and its options."""

    @abstractmethod
    def write(
        self,
        model: TokenModel,
        prompt: Tensor,
        new_tokens: int,
        rng: torch.Generator,
        arrived: Notice,
    ) -> Tensor:
        """Return (batch, time + new_tokens) ids."""

    @torch.inference_mode()
    def generate(
        self,
        model: TokenModel,
        prompt: Tensor,
        new_tokens: int,
        rng: torch.Generator | None = None,
        arrived: Notice = ignore,
    ) -> Tensor:
        """Write exactly ``new_tokens`` tokens behind each prompt; none of them is special.

        Args:
            model: in evaluation mode.
            prompt: (batch, time) ids without padding.
            new_tokens: how many; nothing stops earlier.
            rng: where samples come from; a fixed one where it is not given.
            arrived: called when new tokens are there.

        Returns:
            (batch, time + new_tokens) ids.

        Raises:
            UserError: if the decoder does not fit the model, or the text would outgrow it.
        """
        if reason := self.refusal(model):
            raise UserError(reason)
        length = prompt.shape[1] + new_tokens
        if length > model.positions:
            raise UserError(
                f"{prompt.shape[1]} prompt and {new_tokens} new tokens are {length}, but the model "
                f"has {model.positions} positions"
            )
        rng = rng or torch.Generator(model.device).manual_seed(0)
        return self.write(model, prompt.to(model.device), new_tokens, rng, arrived)


def ordinary(logits: Tensor, model: TokenModel) -> Tensor:
    """Return float32 logits of (..., vocabulary), special tokens ruled out.

    A network may have more outputs than there are tokens; those behind the last are left out.
    """
    special = torch.tensor(sorted(model.vocabulary.special), device=logits.device)
    return logits[..., : model.vocabulary.size].float().index_fill(-1, special, -torch.inf)
