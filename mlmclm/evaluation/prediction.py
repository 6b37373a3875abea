"""What a model says: candidates for a mask or for the next token, and text written on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mlmclm import seeds
from mlmclm.attention import Visibility
from mlmclm.decoding.base import Decoder
from mlmclm.errors import UserError
from mlmclm.models.token_model import TokenModel
from mlmclm.tokenization import TextTokenizer

Candidates = list[tuple[str, float]]
"""Texts of tokens with their probabilities, the most probable first."""
MASKS = ("[MASK]", "<mask>")
"""How a mask may be written, whatever the tokenizer calls it."""


def _ids(model: TokenModel, tokenizer: TextTokenizer, text: str) -> Tensor:
    """Return (1, time) ids behind the end-of-document token, as documents begin in training."""
    for mask in MASKS:
        text = text.replace(mask, str(tokenizer.fast.mask_token))
    ids = [model.vocabulary.end, *tokenizer.encode(text)]
    if len(ids) > model.positions:
        raise UserError(
            f"the text has {len(ids)} tokens with its beginning, but the model has "
            f"{model.positions} positions"
        )
    return torch.tensor([ids], device=model.device)


def _best(logits: Tensor, tokenizer: TextTokenizer, top: int) -> Candidates:
    """Return the most probable tokens of (vocabulary,) logits; outputs that are no token count."""
    size = tokenizer.vocabulary.size
    found = logits.float().softmax(-1)[:size].topk(min(top, size))
    return [
        (tokenizer.decode([int(token)]), float(probability))
        for probability, token in zip(found.values, found.indices, strict=True)
    ]


@torch.inference_mode()
def fill_masks(
    model: TokenModel, tokenizer: TextTokenizer, text: str, top: int
) -> list[tuple[str, Candidates]]:
    """Return the candidates for each mask of a text, all masks hidden at once.

    Raises:
        UserError: if there is no mask in it, or it is too long.
    """
    mask = str(tokenizer.fast.mask_token)
    ids = _ids(model, tokenizer, text)
    places = (ids[0] == model.vocabulary.mask).nonzero()[:, 0].tolist()
    if not places:
        raise UserError(
            "this model fills masks, and the text has none; write one as [MASK] or <mask>, as in "
            '"It is [MASK] today"'
        )
    logits = model.logits(ids)[0]
    return [
        (f"{mask} {number}", _best(logits[place], tokenizer, top))
        for number, place in enumerate(places, 1)
    ]


@torch.inference_mode()
def next_tokens(
    model: TokenModel, tokenizer: TextTokenizer, text: str, top: int
) -> list[tuple[str, Candidates]]:
    """Return the candidates for the token after a text, which may be empty.

    Raises:
        UserError: if it is too long, or holds a mask, which this model never saw in training.
    """
    ids = _ids(model, tokenizer, text)
    if (ids == model.vocabulary.mask).any():
        raise UserError(
            "this model predicts the next token and was never shown a mask; "
            "give the text up to where the mask stands"
        )
    return [("next token", _best(model.logits(ids)[0, -1], tokenizer, top))]


Predictor = Callable[[TokenModel, TextTokenizer, str, int], list[tuple[str, Candidates]]]
PREDICTORS: dict[Visibility, Predictor] = {
    Visibility.FULL: fill_masks,
    Visibility.CAUSAL: next_tokens,
}


def predictions(
    model: TokenModel, tokenizer: TextTokenizer, text: str, top: int
) -> list[tuple[str, Candidates]]:
    """Return what the model can say about a text: its masks, or what comes next."""
    return PREDICTORS[model.visibility](model, tokenizer, text, top)


def continue_text(
    model: TokenModel,
    tokenizer: TextTokenizer,
    prompt: str,
    new_tokens: int,
    decoders: Sequence[Decoder],
    seed: int = 0,
) -> str:
    """Write on by the first decoder that fits the model.

    Raises:
        UserError: if none fits, or the text would outgrow the model.
    """
    refusals = [each.refusal(model) for each in decoders]
    if None not in refusals:
        raise UserError("; ".join(filter(None, refusals)))
    decoder = decoders[refusals.index(None)]
    rng = torch.Generator(model.device).manual_seed(seeds.derive(seed, "sample"))
    ids = decoder.generate(model, _ids(model, tokenizer, prompt), new_tokens, rng)
    return tokenizer.decode(ids[0, 1:].tolist())
