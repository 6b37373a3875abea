"""One token after the other, each from all before it (Radford et al. 2019).

With a cache, keys and values of earlier positions are kept and each pass computes one position;
without one, each pass computes all of them again. The text is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from mlmclm.attention import Visibility
from mlmclm.decoding.base import Decoder, Notice, ordinary
from mlmclm.errors import UserError
from mlmclm.models.token_model import TokenModel


@dataclass(frozen=True, kw_only=True)
class LeftToRightDecoder(Decoder):
    """Greedy at temperature 0, else sampling, cut to the best k or to the nucleus p."""

    temperature: float = 0.0
    top_k: int | None = None
    """Draw from the k most probable only (Fan et al. 2018, arXiv:1805.04833)."""
    top_p: float | None = None
    """Draw from the most probable that add up to p (Holtzman et al. 2020, arXiv:1904.09751)."""
    cache: bool = True

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise UserError(f"temperature must be at least 0, not {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be above 0 and at most 1, not {self.top_p}")

    def refusal(self, model: TokenModel) -> str | None:
        """Refuse models that were trained to see what comes later."""
        if model.visibility is Visibility.CAUSAL:
            return None
        return (
            "left-to-right generation needs a model that predicts the next token; this one sees "
            "both sides (Mask-Predict fits it)"
        )

    def cached(self, model: TokenModel) -> bool:
        """Tell whether a cache is used: a network that is not causal by itself has none."""
        return self.cache and model.native is Visibility.CAUSAL

    def passes(self, new_tokens: int) -> int:
        """Return one for each token."""
        return new_tokens

    def describe(self, model: TokenModel) -> str:
        """Say whether there is a cache."""
        return f"left to right, {'KV cache' if self.cached(model) else 'no cache'}"

    def write(
        self,
        model: TokenModel,
        prompt: Tensor,
        new_tokens: int,
        rng: torch.Generator,
        arrived: Notice,
    ) -> Tensor:
        """See `Decoder.generate`."""
        memory = DynamicCache(config=model.network.config) if self.cached(model) else None
        text = fresh = prompt
        for _ in range(new_tokens):
            hidden = model.hidden(text) if memory is None else hidden_after(model, memory, fresh)
            logits = model.logits_of(hidden[:, -1])
            fresh = self._choose(ordinary(logits, model), rng)[:, None]
            text = torch.cat([text, fresh], 1)
            arrived(1)
        return text

    def _choose(self, logits: Tensor, rng: torch.Generator) -> Tensor:
        if self.temperature == 0:
            return logits.argmax(-1)
        logits = logits / self.temperature
        if self.top_k is not None:
            least = logits.topk(min(self.top_k, logits.shape[-1]))[0][:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p is not None:
            logits = _nucleus(logits, self.top_p)
        return torch.multinomial(logits.softmax(-1), 1, generator=rng)[:, 0]


def hidden_after(model: TokenModel, memory: DynamicCache, fresh: Tensor) -> Tensor:
    """Return hidden states (batch, time, width) of new positions, and add them to the cache.

    Args:
        model: causal by itself, so that it needs no mask.
        memory: keys and values of all positions before.
        fresh: (batch, time) ids.
    """
    output = model.network.base_model(input_ids=fresh, cache=memory, use_cache=True)
    return output.last_hidden_state  # type: ignore[no-any-return]


def _nucleus(logits: Tensor, share: float) -> Tensor:
    ordered, places = logits.sort(-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    cut = ordered.masked_fill(before >= share, -torch.inf)
    return torch.empty_like(logits).scatter_(-1, places, cut)
