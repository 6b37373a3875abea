"""Mask-Predict (Ghazvininejad et al. 2019, arXiv:1904.09324, section 4).

All new positions start as [MASK]. Each iteration predicts all masked positions at once, then hides
the least certain again: after iteration t of T, ``N (T - t) / T`` of the N. Here the new positions
stand behind a prompt; the paper fills the decoder of a translation model, with a length predictor.
The text must fit the model's positions; how good it is beyond the block of training is untested.
Such a run of masks is also unlike training, where 15 % of a text is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlmclm.attention import Visibility
from mlmclm.decoding.base import Decoder, Notice, ordinary
from mlmclm.errors import UserError
from mlmclm.models.token_model import TokenModel


@dataclass(frozen=True, kw_only=True)
class MaskPredictDecoder(Decoder):
    """Fill all places at once, again and again, keeping the certain ones."""

    iterations: int | None = 10
    """T; None, or more than there are new tokens: one for each of them."""

    def __post_init__(self) -> None:
        if self.iterations is not None and self.iterations < 1:
            raise UserError(f"iterations must be at least 1, not {self.iterations}")

    def refusal(self, model: TokenModel) -> str | None:
        """Refuse models that do not see what is right of a mask."""
        if model.visibility is Visibility.FULL:
            return None
        return (
            "Mask-Predict needs a model that fills masks from both sides; this one predicts the "
            "next token (left-to-right generation fits it)"
        )

    def passes(self, new_tokens: int) -> int:
        """Return one for each iteration."""
        return min(self.iterations or new_tokens, new_tokens)

    def describe(self, model: TokenModel) -> str:
        """Give the number of iterations."""
        return f"Mask-Predict, T = {self.iterations or 'N'}"

    def write(
        self,
        model: TokenModel,
        prompt: Tensor,
        new_tokens: int,
        rng: torch.Generator,
        arrived: Notice,
    ) -> Tensor:
        """See `Decoder.generate`."""
        masks = prompt.new_full((len(prompt), new_tokens), model.vocabulary.mask)
        text = torch.cat([prompt, masks], 1)
        places = slice(prompt.shape[1], None)
        certainty = torch.zeros(masks.shape, device=text.device)
        rounds = self.passes(new_tokens)
        for done in range(1, rounds + 1):
            hidden = model.hidden(text)[:, places]
            best = ordinary(model.logits_of(hidden), model).softmax(-1).max(-1)
            masked = text[:, places] == model.vocabulary.mask
            new = text[:, places]
            text[:, places] = torch.where(masked, best.indices, new)
            certainty = torch.where(masked, best.values, certainty)
            again = new_tokens * (rounds - done) // rounds
            least = certainty.topk(again, dim=-1, largest=False).indices
            text[:, places] = text[:, places].scatter(-1, least, model.vocabulary.mask)
        arrived(new_tokens)
        return text
