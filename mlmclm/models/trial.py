"""A short trial of a network that nobody here has looked at: what its config does not say.

Some architectures ignore a mask or mix positions in a way of their own (FNet, Nystroemformer), some
stay causal whatever they are told (GPT-Neo), some scale their logits (Granite). Trained as if they
were like the others they would give wrong numbers without a word.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlmclm.models.token_model import TokenModel

TIME = 8
NOISE = 1e-6
"""Share of the largest value by which a position may move that nothing reached."""


@torch.no_grad()
def fault_of(model: TokenModel) -> str | None:
    """Return what a model does otherwise than its visibility and its head say, or None.

    One token after the other is changed to see which hidden states move, and logits are held
    against those of the network itself.
    """
    was_training = model.training
    model.eval()
    tokens, other = _tokens(model)
    seen = _reach(model, tokens, other)
    allowed = model.visibility.allowed(tokens.shape[1])
    ours, theirs = model.logits(tokens), _own_logits(model, tokens)
    model.train(was_training)
    name, kind = type(model.network).__name__, model.visibility.value
    if bool((seen & ~allowed).any()):
        return f"with {kind} attention a position of {name} sees what it must not see"
    if bool((allowed & ~seen).any()):
        return f"with {kind} attention a position of {name} does not see all that it must see"
    # a soft cap bends large logits only, and those of fresh weights are small
    capped = getattr(model.network.config, "final_logit_softcapping", None) is not None
    if capped or float((ours - theirs).abs().max()) > 1e-4 * float(theirs.abs().max()):
        return f"{name} makes its logits by more than one linear layer"
    return None


def _tokens(model: TokenModel) -> tuple[Tensor, int]:
    """Return (2, time) ordinary tokens, no two neighbours alike, and one that is not among them."""
    vocabulary = model.vocabulary
    ordinary = [each for each in range(vocabulary.size) if each not in vocabulary.special]
    *shown, other = ordinary[: TIME + 1]
    time = min(TIME, model.positions)
    return torch.tensor([(shown * TIME)[:time]] * 2, device=model.device), other


def _reach(model: TokenModel, tokens: Tensor, other: int) -> Tensor:
    """Return (output, input) booleans: did changing the input token move the output?"""
    before = model.hidden(tokens)[0]
    columns = []
    for place in range(tokens.shape[1]):
        changed = tokens.clone()
        changed[:, place] = other
        moved = (model.hidden(changed)[0] - before).abs().amax(-1)
        columns.append(moved > NOISE * before.abs().max())
    return torch.stack(columns, dim=1).cpu()


def _own_logits(model: TokenModel, tokens: Tensor) -> Tensor:
    return model.network(input_ids=tokens, attention_mask=model.mask(tokens)).logits  # type: ignore[no-any-return]
